"""Records of a replica on another machine, with their times moved to our clock."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from service.messages.clock import ClockOffset

Record = TypeVar("Record", bound=msgspec.Struct)


def on_our_clock(record: Record, offset: ClockOffset) -> Record:
    """`record` with all its times, the fields named `…_s`, on our clock."""
    if offset.is_shared:
        return record
    times = {name: getattr(record, name) for name in record.__struct_fields__ if name.endswith("_s")}
    return msgspec.structs.replace(record, **{n: offset.to_ours(t) for n, t in times.items() if t is not None})
