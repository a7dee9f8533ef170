"""The y axis: from 0 to a round number above the data, changed in steps and seldom, or it would read as data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gui.look.tokens import PLOT_HEADROOM, RESCALE_INTERVAL_S

STEPS: Final = (1.0, 2.0, 4.0, 5.0)
SLACK: Final = 1.3  # the scale shrinks only if it would also fit data so many times larger


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
    """An axis that follows the data, at most once a `RESCALE_INTERVAL_S`."""

    def __init__(self, most_ticks: int, least_step: float) -> None:
        self._most_ticks = most_ticks
        self._least_step = least_step
        self._changed_s = -math.inf
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
        if now_s - self._changed_s < RESCALE_INTERVAL_S:
            return False
        axis = axis_for(peak, self._most_ticks, self._least_step)
        roomy = axis_for(peak * SLACK, self._most_ticks, self._least_step)
        is_first = math.isinf(self._changed_s)
        if axis == self.axis or not (is_first or peak > self.axis.ceiling or roomy.ceiling < self.axis.ceiling):
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
