"""Axes of a report's plots: from values to pixels, with round ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

MOST_TICKS: Final = 6
NARROW: Final = 4.0  # below that, a logarithmic axis has too few powers of ten and their halves
LOG_FROM: Final = 30.0  # the largest value over one of the smallest


@dataclass(frozen=True)
class Axis:
    """From values to pixels."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        if self.is_log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def values(self, count: int) -> list[float]:
        """`count` + 1 values in even distances."""
        shares = [n / count for n in range(count + 1)]
        if self.is_log:
            return [self.low * (self.high / self.low) ** share for share in shares]
        return [self.low + share * (self.high - self.low) for share in shares]

    def ticks(self) -> list[float]:
        if not self.is_log or self.high < NARROW * self.low:
            step = round_step(self.high - self.low)
            return [n * step for n in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        rounds = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        return [value for value in rounds if self.low * 0.999 <= value <= self.high * 1.001]


def round_step(span: float) -> float:
    """A round step that cuts `span` into a few.

    >>> round_step(2.0), round_step(47)
    (0.5, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(span / MOST_TICKS))
    return next(digit * power for digit in (1.0, 2.0, 5.0, 10.0) if span / (digit * power) <= MOST_TICKS)


def seconds_axis(values: np.ndarray[tuple[int], np.dtype[np.float64]], begin: float, end: float) -> Axis:
    """An axis on which all of `values` can be read: logarithmic where they spread too far for another."""
    low, high = float(np.percentile(values, 2)), float(values.max()) * 1.02
    if high < LOG_FROM * low:
        return Axis(0.0, high, begin, end)
    return Axis(low, high, begin, end, is_log=True)
