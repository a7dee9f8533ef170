"""The clock of the frames, how long frames take, and the work that takes turns after them.

A frame is due on a fixed grid of `FRAME_INTERVAL_MS`. Its time runs from the moment it was due until the event loop has
painted it and is free again: lateness, refreshing of the plots and painting together. Frames that fall due while the
loop is busy are painted together by the next one and each counts from when it was due itself; so a stall of 200 ms is
six slow frames, not one.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from PySide6.QtCore import QObject, Qt, QTimer, Signal

FRAME_INTERVAL_MS: Final = 33
BIN_MS: Final = 0.25
BINS: Final = 8_000
RECENT_FRAMES: Final = 300


@dataclass(frozen=True)
class FrameTimes:
    """Statistics over all measured frames; ``None`` before the first."""

    count: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class FrameMeter:
    """Counts frame times in bins of a quarter of a millisecond: its memory does not grow.

    >>> meter = FrameMeter()
    >>> for ms in (4.0, 5.0, 90.0):
    ...     meter.record(ms)
    >>> meter.times()
    FrameTimes(count=3, p50_ms=5.0, p99_ms=90.0, max_ms=90.0)
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT_FRAMES)
        self.reset()

    def reset(self) -> None:
        self._counts = [0] * BINS
        self._count = 0
        self._max_ms = 0.0
        self._recent.clear()

    def record(self, ms: float) -> None:
        self._counts[min(math.ceil(ms / BIN_MS), BINS - 1)] += 1
        self._count += 1
        self._max_ms = max(self._max_ms, ms)
        self._recent.append(ms)

    def times(self) -> FrameTimes:
        """Count, percentiles (to a quarter of a millisecond, rounded up) and the longest."""
        if not self._count:
            return FrameTimes(0, None, None, None)
        return FrameTimes(self._count, self._percentile(0.50), self._percentile(0.99), round(self._max_ms, 2))

    def recent_p99_ms(self) -> float | None:
        """The 99th percentile of the last ten seconds or so."""
        if not self._recent:
            return None
        return sorted(self._recent)[math.ceil(0.99 * len(self._recent)) - 1]

    def _percentile(self, share: float) -> float:
        index = bisect_left(list(accumulate(self._counts)), math.ceil(share * self._count))
        max_ms = round(self._max_ms, 2)
        return min(index * BIN_MS, max_ms) if index < BINS - 1 else max_ms


class FrameClock(QObject):
    """Calls `paint` once a frame for as long as it runs, and records in its meter how long each due frame took."""

    painted = Signal()  # a frame is done; work done now delays the next only if it outlasts the rest of the interval

    def __init__(self, paint: Callable[[], None], meter: FrameMeter, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._paint = paint
        self._meter = meter
        self._interval_s = FRAME_INTERVAL_MS / 1e3
        self._next_due_s = 0.0
        self._timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_due)
        self._rest = QTimer(self, singleShot=True, interval=0)
        self._rest.timeout.connect(self._on_painted)
        self._first_due_s = 0.0

    def start(self) -> None:
        """Begin; the first frame is due now."""
        self._next_due_s = time.monotonic()
        self._timer.start(0)

    def stop(self) -> None:
        self._timer.stop()
        self._rest.stop()

    def _on_due(self) -> None:
        self._first_due_s = self._next_due_s
        while self._next_due_s <= time.monotonic():
            self._next_due_s += self._interval_s
        try:
            self._paint()
        finally:  # one frame that fails is not the last
            # A zero timer fires after the events that were posted before it, among them the request to be painted.
            self._rest.start()

    def _on_painted(self) -> None:
        now_s = time.monotonic()
        due_s = self._first_due_s
        while due_s < self._next_due_s:
            self._meter.record((now_s - due_s) * 1e3)
            due_s += self._interval_s
        self.painted.emit()
        self._timer.start(max(0, math.ceil((self._next_due_s - time.monotonic()) * 1e3)))


@dataclass
class _Task:
    """Work that is due again `every_s` after its last start."""

    work: Callable[[], None]
    every_s: float
    due_s: float = 0.0


class RoundRobin:
    """Runs, at each turn, the one task that has been due longest.

    >>> done = []
    >>> round_robin = RoundRobin(clock=lambda: 1.0)
    >>> round_robin.add(lambda: done.append("numbers"), every_s=0.25)
    >>> round_robin.add(lambda: done.append("rows"), every_s=0.1)
    >>> for _ in range(3):
    ...     round_robin.take()
    >>> done
    ['numbers', 'rows']
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tasks: list[_Task] = []

    def add(self, work: Callable[[], None], every_s: float) -> None:
        """Run `work` every `every_s`, or as soon after as its turn comes."""
        self._tasks.append(_Task(work, every_s))

    def take(self) -> None:
        """Run the task that has been due longest, if any is due."""
        now_s = self._clock()
        task = min(self._tasks, key=lambda each: each.due_s)
        if task.due_s <= now_s:
            task.due_s = now_s + task.every_s
            task.work()
