"""Figures on a fixed grid of time, kept as data arrive so that drawing ten minutes costs no more than drawing one."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from service.analysis.observed.columns import Floats, Ints

STEP_S: Final = 0.25


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
        first = max(first, last - len(self._values) + 1)
        start_s = max(start_s, first * STEP_S)
        per_second = amount / (end_s - start_s)
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
        """Blank the steps between the newest and `step`; false where `step` is too old to be kept."""
        size = len(self._values)
        if self._newest is None or step - self._newest >= size:
            self._values[:] = self._blank
            self._newest = step
        elif step > self._newest:
            self._values[np.arange(self._newest + 1, step + 1) % size] = self._blank
            self._newest = step
        return step > self._newest - size
