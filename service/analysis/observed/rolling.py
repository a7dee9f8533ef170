"""Figures on a fixed grid of time, kept up to date as data arrive so that drawing them costs little."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from service.analysis.observed.columns import Columns, Floats, Ints
from service.messages.gaps import GAPS_STEP_S

STEP_S: Final = GAPS_STEP_S
WINDOW_S: Final = 10.0
LEVELS: Final = (50.0, 95.0, 99.0)
SHARES: Final = np.array(LEVELS) / 100.0
LATE_S: Final = 1.0  # from the end of a request to its report, at most


def step_of(at_s: float) -> int:
    """The number of the grid step that contains `at_s`."""
    return math.floor(at_s / STEP_S)


class Grid:
    """One number per step of `STEP_S` for the last `span_s`; a step that was never written reads as `blank`."""

    def __init__(self, span_s: float, blank: float) -> None:
        self._values: Floats = np.full(math.ceil(span_s / STEP_S), blank)
        self._blank = blank
        self._newest: int | None = None

    def __len__(self) -> int:
        return len(self._values)

    def put(self, step: int, value: float) -> None:
        if self._reach(step):
            self._values[step % len(self._values)] = value

    def add(self, step: int, amount: float) -> None:
        if self._reach(step):
            self._values[step % len(self._values)] += amount

    def add_over(self, start_s: float, end_s: float, amount: float) -> None:
        """Spread `amount` evenly over an interval of time."""
        first, last = step_of(start_s), step_of(end_s)
        if first >= last:
            self.add(last, amount)
            return
        per_second = amount / (end_s - start_s)
        first = max(first, last - len(self._values) + 1)
        for step in range(first, last + 1):
            covered_s = min(end_s, (step + 1) * STEP_S) - max(start_s, step * STEP_S)
            self.add(step, per_second * covered_s)

    def read(self, first: int, last: int) -> Floats:
        """The values of the steps from `first` to `last`, both included."""
        steps: Ints = np.arange(first, last + 1)
        if self._newest is None:
            return np.full(len(steps), self._blank)
        values = self._values[steps % len(self._values)]
        values[(steps > self._newest) | (steps <= self._newest - len(self._values))] = self._blank
        return values

    def _reach(self, step: int) -> bool:
        """Blank the steps between the newest and `step`; false if `step` is too old to be kept."""
        size = len(self._values)
        if self._newest is None:
            self._newest = step
        elif step - self._newest >= size:
            self._values[:] = self._blank
            self._newest = step
        elif step > self._newest:
            self._values[np.arange(self._newest + 1, step + 1) % size] = self._blank
            self._newest = step
        return step > self._newest - size


class RollingPercentiles:
    """p50, p95 and p99 at every step of time; NaN where nothing ended under the settings in force.

    Attributes:
        grids: one for each of `LEVELS`.
    """

    def __init__(self, span_s: float, begun_s: float = math.inf) -> None:
        """With `begun_s` the first `advance` computes all steps from there on, else the newest one only."""
        self._begun_s = begun_s
        self.grids = tuple(Grid(span_s, blank=math.nan) for _ in LEVELS)
        self._settled: int | None = None

    def advance(
        self,
        now_s: float,
        regime_start: Callable[[float], tuple[int, float]],
        look: Callable[[float, float, int], Floats],
    ) -> None:
        """Compute the steps up to now; the latest ones again, since a request is reported after its end.

        `regime_start` returns the number and the beginning of the regime of a moment, and `look` the values at `LEVELS`
        of a span of time under a regime.
        """
        newest = step_of(now_s)
        oldest_s = now_s - len(self.grids[0]) * STEP_S
        begun = step_of(min(self._begun_s, now_s))
        first = max(self._settled + 1 if self._settled is not None else begun, step_of(oldest_s))
        for step in range(first, newest + 1):
            at_s = step * STEP_S
            regime, start_s = regime_start(at_s)
            values = look(max(at_s - WINDOW_S, start_s), at_s, regime)
            for grid, value in zip(self.grids, values, strict=True):
                grid.put(step, value)
        self._settled = max(newest - math.ceil(LATE_S / STEP_S), first - 1)


def percentiles(samples: Columns, start_s: float, end_s: float, regime: int, name: str = "latency") -> Floats:
    """p50, p95 and p99, in seconds, of the requests that ended in (start, end] under one regime.

    They are of the latency, or of the time of that name.
    """
    finished: Floats = samples["finished"]
    tail = slice(int(np.searchsorted(finished, start_s - LATE_S)), int(np.searchsorted(finished, end_s + LATE_S)))
    finished = finished[tail]
    values: Floats = samples[name][tail]
    within = (finished > start_s) & (finished <= end_s) & (samples["regime"][tail] == regime) & np.isfinite(values)
    if not within.any():
        return np.full(len(LEVELS), math.nan)
    return _between(np.sort(values[within]))


def _between(ordered: Floats) -> Floats:
    """`np.percentile` at `LEVELS`, which takes five times as long for a few hundred values.

    >>> _between(np.array([1.0, 2.0, 3.0])).tolist()
    [2.0, 2.9, 2.98]
    """
    place = SHARES * (len(ordered) - 1)
    below = place.astype(np.int64)
    above = np.minimum(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
