"""Axes of values: a y axis that follows the data, and an x axis, both with round numbers at their ticks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gui.look.tokens import PLOT_HEADROOM, RESCALE_INTERVAL_S
from service.analysis.observed.columns import Floats

STEPS: Final = (1.0, 2.0, 4.0, 5.0)
SLACK: Final = 1.3  # times the data, which the smaller scale must hold before the scale shrinks


@dataclass(frozen=True)
class Axis:
    """Ticks from 0 in steps of `step`; `ceiling` is the largest value it was made for, `top` where the plot ends."""

    step: float
    ceiling: float

    @property
    def top(self) -> float:
        return self.ceiling / (1 - PLOT_HEADROOM)

    @property
    def ticks(self) -> tuple[float, ...]:
        return tuple(n * self.step for n in range(math.floor(self.ceiling / self.step + 1e-9) + 1))

    def label(self, value: float) -> str:
        """As many decimals as the step has.

        >>> Axis(0.02, 0.06).label(0.04), Axis(20, 60).label(40)
        ('0.04', '40')
        """
        decimals = max(0, -math.floor(math.log10(self.step)))
        return f"{value:.{decimals}f}" if value else "0"


def axis_for(peak: float, most_ticks: int, least_step: float) -> Axis:
    """The finest axis with no more than `most_ticks` that reaches `peak`.

    >>> axis_for(57, most_ticks=5, least_step=1).ticks
    (0.0, 20.0, 40.0, 60.0)
    """
    peak = max(peak, least_step)
    step = next(step for step in _steps(least_step) if math.floor(peak / step + 1e-9) < most_ticks)
    half = step / 2
    return Axis(step, max(math.ceil(peak / half - 1e-9) * half, step))


class StepScale:
    """An axis that follows the data, at most once a `RESCALE_INTERVAL_S`, and at once where it would cut them.

    Attributes:
        is_due: whether it was asked to follow too early.
    """

    def __init__(self, most_ticks: int = 5, least_step: float = 1.0) -> None:
        self._most_ticks = most_ticks
        self._least_step = least_step
        self._changed_s = -math.inf
        self.is_due = False
        self.axis = axis_for(0.0, most_ticks, least_step)

    def allow(self, most_ticks: int) -> None:
        """Another height has room for another number of ticks."""
        if most_ticks != self._most_ticks:
            self._most_ticks = most_ticks
            self.release()

    def release(self) -> None:
        """What is shown changed at once (another window of time), so the scale may, too."""
        self._changed_s = -math.inf

    def fit(self, peak: float, now_s: float) -> bool:
        """Adapt to the largest value in view; true if the axis changed."""
        axis = axis_for(peak, self._most_ticks, self._least_step)
        roomy = axis_for(peak * SLACK, self._most_ticks, self._least_step)
        is_first = math.isinf(self._changed_s)
        follows = axis != self.axis and (is_first or peak > self.axis.ceiling or roomy.ceiling < self.axis.ceiling)
        self.is_due = follows and peak <= self.axis.top and now_s - self._changed_s < RESCALE_INTERVAL_S
        if not follows or self.is_due:
            return False
        self.axis = axis
        self._changed_s = now_s
        return True


def _steps(least: float) -> Iterator[float]:
    """Round numbers from `least` on."""
    power = math.floor(math.log10(least) + 1e-9)
    while True:
        for step in STEPS:
            value = round(step * 10.0**power, 10)
            if value >= least:
                yield value
        power += 1


LOG_FROM: Final = 30.0  # the largest value over one of the smallest, from which on the axis is logarithmic
SMALL_SHARE: Final = 2.0  # per cent of the values may be smaller than that one
LOG_STEPS: Final = (1.0, 2.0, 5.0)
MOST_TICKS: Final = 7
LEAST_VALUE: Final = 0.01


@dataclass(frozen=True)
class ValueAxis:
    """From `low` to `high`, both round numbers."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False
    unit: str = "s"

    def shares(self, values: Floats) -> Floats:
        """Where values lie between the left edge, 0, and the right one, 1; what is beyond an edge lies on it."""
        inside = np.clip(values, self.low, self.high)
        if self.is_log:
            result: Floats = np.log(inside / self.low) / math.log(self.high / self.low)
        else:
            result = (inside - self.low) / (self.high - self.low)
        return result

    def value_at(self, share: float) -> float:
        if self.is_log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + share * (self.high - self.low)

    def edges(self, count: int) -> Floats:
        """The values that cut the axis into `count` equal lengths."""
        shares = np.linspace(0.0, 1.0, count + 1)
        return np.array([self.value_at(float(share)) for share in shares])

    def label(self, value: float) -> str:
        """A tick, in words."""
        return f"{value:g} {self.unit}"

    def words(self, value: float) -> str:
        """A value anywhere on the axis, in words.

        >>> ValueAxis(0.0, 2.0, ()).words(0.5), ValueAxis(0.0, 0.2, ()).words(0.05)
        ('0.50 s', '0.050 s')
        """
        return f"{value:.2f} {self.unit}" if self.high >= 1 else f"{value:.3f} {self.unit}"


def value_axis(*samples: Floats, unit: str = "s") -> ValueAxis:
    """The axis on which all of these (rising) can be read.

    >>> value_axis(np.array([0.5, 0.9, 1.3])).ticks
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4)
    >>> value_axis(np.array([0.2, 1.0, 40.0])).ticks
    (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    """
    return replace(_fitting(samples), unit=unit)


def _fitting(samples: Sequence[Floats]) -> ValueAxis:
    known = [sample for sample in samples if len(sample)]
    if not known:
        return _linear(LEAST_VALUE)
    largest = max(float(sample[-1]) for sample in known)
    smallest = min(float(np.percentile(sample, SMALL_SHARE)) for sample in known)
    if largest < LOG_FROM * max(smallest, LEAST_VALUE / 10):
        return _linear(largest)
    return _logarithmic(max(smallest, LEAST_VALUE / 10), largest)


def _linear(largest: float) -> ValueAxis:
    axis = axis_for(largest, MOST_TICKS, LEAST_VALUE)
    high = math.ceil(axis.ceiling / axis.step - 1e-9) * axis.step
    return ValueAxis(0.0, high, tuple(round(n * axis.step, 10) for n in range(round(high / axis.step) + 1)))


def _logarithmic(smallest: float, largest: float) -> ValueAxis:
    powers = range(math.floor(math.log10(smallest)), math.floor(math.log10(largest)) + 1)
    rounds = [round(step * 10.0**power, 10) for power in powers for step in LOG_STEPS]
    rounds.append(10.0**powers.stop)
    first = max((n for n, value in enumerate(rounds) if value <= smallest), default=0)
    last = next(n for n, value in enumerate(rounds) if value >= largest)
    ticks = tuple(rounds[first : max(last, first + 1) + 1])
    shown = ticks if len(ticks) <= MOST_TICKS + 2 else tuple(t for t in ticks if math.log10(t).is_integer())
    return ValueAxis(ticks[0], ticks[-1], shown, is_log=True)
