"""How much of the processor other programs take while something is measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, Self

import psutil

DISTURBING_SHARE: Final = 0.05
NOT_WORK: Final = frozenset({"idle", "iowait", "guest", "guest_nice"})  # a guest's is in the user's as well


class Used(NamedTuple):
    """Processor time so far: of all programs, and of what is measured and measures; and when that was."""

    at_s: float
    all_s: float
    own_s: float


class OtherWork:
    """Adds up the blocks in which it is entered.

    What the machine's host took away counts as other work: it is not there for the model either.
    """

    def __init__(self, used: Callable[[], Used] | None = None, cores: int | None = None) -> None:
        self._used = used or processor_time
        self._cores = cores or psutil.cpu_count() or 1
        self._begun = Used(0.0, 0.0, 0.0)
        self._others_s = 0.0
        self._possible_s = 0.0

    def __enter__(self) -> Self:
        self._begun = self._used()
        return self

    def __exit__(self, *exc_info: object) -> None:
        before, now = self._begun, self._used()
        self._others_s += max((now.all_s - before.all_s) - (now.own_s - before.own_s), 0.0)
        self._possible_s += (now.at_s - before.at_s) * self._cores

    @property
    def share(self) -> float:
        """Of all cores, from 0 to 1."""
        return min(self._others_s / self._possible_s, 1.0) if self._possible_s else 0.0

    @property
    def warnings(self) -> list[str]:
        """A sentence where the share is such that it spoils the figures."""
        if self.share < DISTURBING_SHARE:
            return []
        return [f"Other programs used {100 * self.share:.0f} % of the processor meanwhile: the figures are too slow."]


def processor_time() -> Used:
    """This process and its descendants are what measures and is measured."""
    times = psutil.cpu_times()._asdict()
    me = psutil.Process()
    return Used(
        at_s=time.monotonic(),
        all_s=sum(seconds for name, seconds in times.items() if name not in NOT_WORK),
        own_s=sum(map(_time_of, (me, *me.children(recursive=True)))),
    )


def _time_of(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        times = process.cpu_times()
        return times.user + times.system
    return 0.0
