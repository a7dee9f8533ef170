"""Times of one machine's monotonic clock on that of another."""

from __future__ import annotations

from typing import TypeVar

import msgspec

Record = TypeVar("Record", bound=msgspec.Struct)


class ClockOffset:
    """What to add to a sender's times to have them on ours.

    Programs of one machine share its clock: the offset is 0 exactly. Otherwise it is the smallest difference seen
    between a message's arrival and its sending, which is too large by the fastest message's travel time (Cristian,
    1989, with one-way messages).
    """

    def __init__(self, our_clock: str) -> None:
        self._our_clock = our_clock
        self._smallest_s = float("inf")

    def learn(self, clock: str, sent_s: float, received_s: float) -> float:
        """The offset in seconds, after a message of `clock` that was sent and received at these times."""
        if clock == self._our_clock:
            return 0.0
        self._smallest_s = min(self._smallest_s, received_s - sent_s)
        return self._smallest_s


def shifted(record: Record, offset_s: float) -> Record:
    """`record` with all its times (the fields named `…_s`) moved by `offset_s`."""
    if offset_s == 0:
        return record
    times = {name: getattr(record, name) for name in record.__struct_fields__ if name.endswith("_s")}
    return msgspec.structs.replace(record, **{n: t + offset_s for n, t in times.items() if t is not None})
