"""How much of the processor other programs take while something is measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import psutil

NOT_WORK: Final = frozenset({"idle", "iowait", "guest", "guest_nice"})  # a guest's is in the user's as well


class Used(NamedTuple):
    """Processor time so far, in seconds: of all programs, and of what is measured and measures."""

    all_s: float
    own_s: float


class OtherWork:
    """Adds up the runs; what is between them does not count.

    What the machine's host took away counts as other work: it is not there for the model either.
    """

    def __init__(self, used: Callable[[], Used] | None = None, cores: int | None = None) -> None:
        self._used = used or processor_time
        self._cores = cores or psutil.cpu_count() or 1
        self._begun = Used(0.0, 0.0)
        self._others_s = 0.0
        self._possible_s = 0.0

    def begin(self) -> None:
        self._begun = self._used()

    def end(self, ran_s: float) -> None:
        now = self._used()
        self._others_s += max((now.all_s - self._begun.all_s) - (now.own_s - self._begun.own_s), 0.0)
        self._possible_s += ran_s * self._cores

    @property
    def share(self) -> float:
        """Of all cores, from 0 to 1."""
        return min(self._others_s / self._possible_s, 1.0) if self._possible_s else 0.0


def processor_time() -> Used:
    """This process and its descendants are what measures and is measured."""
    times = psutil.cpu_times()._asdict()
    me = psutil.Process()
    return Used(
        all_s=sum(seconds for name, seconds in times.items() if name not in NOT_WORK),
        own_s=sum(map(_time_of, (me, *me.children(recursive=True)))),
    )


def _time_of(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        times = process.cpu_times()
        return times.user + times.system
    return 0.0
