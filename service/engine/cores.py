"""The processor's cores: how many there are to compute on, and one for each thread. Imports no torch."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final, NamedTuple, Self

import psutil

SPINS = 5_000_000  # a tenth of a second or two, after which an engine that is idle takes no processor

COUNTED_S: Final = 1.0  # counted in steps of 10 ms
LEAST_FREE: Final = 0.75  # of a core, for a thread that computes all the time beside short work of others

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Physical cores that the calling thread may use at once, by its affinity and its control group.

    To be asked before `bind_openmp_threads`, which leaves the thread that loads torch a single one.
    """
    if not hasattr(os, "sched_getaffinity"):
        return psutil.cpu_count(logical=False) or 1
    logical = len(os.sched_getaffinity(0))
    share = (psutil.cpu_count(logical=False) or logical) / (psutil.cpu_count() or logical)
    return max(1, min(round(logical * share), quota_cores() or logical))


def bind_openmp_threads() -> None:
    """Give each of torch's threads a core of its own; to be called before torch is imported.

    They meet at a barrier several hundred times a step. Nice as they are, Linux does not care to part two of them that
    sit on one core, and then each barrier takes a time slice: on two cores with a busy window, no batch in 10 s
    instead of 120 tokens a second.

    Nor shall they sleep at once where one of them is late because the window was served first: to wake up takes longer.
    On two cores with the window open 16 users got 194 tokens a second with this, and 110 to 135 without.
    """
    os.environ.setdefault("OMP_PROC_BIND", "true")
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))


class FreeCores:
    """How many cores other programs leave to this process, counted anew every second.

    Threads that meet at barriers go at the pace of the slowest: a program that computes on one core slows all of them.
    Without that core they are fewer, but none of them waits.
    """

    def __init__(self, most: int) -> None:
        self._most = self._count = most
        self._share = (psutil.cpu_count(logical=False) or most) / (psutil.cpu_count() or most)
        self._since = ProcessorTime.now()

    def count(self) -> int:
        """From 0, where all cores have other work, to `most`."""
        if self._most > 1 and time.monotonic() - self._since.at_s >= COUNTED_S:
            now = ProcessorTime.now()
            free = now.free_since(self._since) * self._share
            self._count = min(round(free), self._most) if free >= LEAST_FREE else 0
            self._since = now
        return self._count


class ProcessorTime(NamedTuple):
    """What the processor's logical cores have done since the machine started, in seconds of one core."""

    at_s: float
    idle_s: float
    own_s: float

    @classmethod
    def now(cls) -> Self:
        return cls(time.monotonic(), psutil.cpu_times().idle, time.process_time())

    def free_since(self, before: ProcessorTime) -> float:
        """Cores that were idle or worked for this process."""
        return (self.idle_s - before.idle_s + self.own_s - before.own_s) / (self.at_s - before.at_s)


def quota_cores() -> int | None:
    """Cores that the control group grants, rounded up; ``None`` if it sets no limit."""
    with contextlib.suppress(OSError, ValueError):
        quota_us, period_us = CGROUP_QUOTA.read_text().split()
        return -(-int(quota_us) // int(period_us))
    return None
