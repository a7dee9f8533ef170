"""How many arrivals are expected over time: rates that stand still or change by themselves, and their inverse."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Protocol

from service.messages.load import ConstantRate, GammaArrivals, OnOff, Pattern, Poisson, Ramp, Steps


class Rate(Protocol):
    """A rate over the load's own time."""

    def expected(self, until_s: float) -> float:
        """How many arrive on average from the start until then."""

    def when(self, count: float) -> float:
        """When that many are expected, in seconds from the start."""


class SteadyRate:
    """Always the same."""

    def __init__(self, rate_per_s: float) -> None:
        self._rate_per_s = rate_per_s

    def expected(self, until_s: float) -> float:
        return until_s * self._rate_per_s

    def when(self, count: float) -> float:
        return count / self._rate_per_s


class OnOffRate:
    """A rate for a while, then none for a while, and so on."""

    def __init__(self, rate_per_s: float, on_s: float, off_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._on_s = on_s
        self._period_s = on_s + off_s

    def expected(self, until_s: float) -> float:
        periods, into_s = divmod(until_s, self._period_s)
        return (periods * self._on_s + min(into_s, self._on_s)) * self._rate_per_s

    def when(self, count: float) -> float:
        periods, into_s = divmod(count / self._rate_per_s, self._on_s)
        return periods * self._period_s + into_s


class RampRate:
    """From one rate evenly to another, which then stays."""

    def __init__(self, rate_per_s: float, rate_to_per_s: float, over_s: float) -> None:
        self._from = rate_per_s
        self._to = rate_to_per_s
        self._over_s = over_s
        self._slope = (rate_to_per_s - rate_per_s) / over_s
        self._on_the_way = (rate_per_s + rate_to_per_s) / 2 * over_s

    def expected(self, until_s: float) -> float:
        if until_s >= self._over_s:
            return self._on_the_way + (until_s - self._over_s) * self._to
        return self._from * until_s + self._slope * until_s**2 / 2

    def when(self, count: float) -> float:
        if count >= self._on_the_way:
            return self._over_s + (count - self._on_the_way) / self._to
        # The root of from·t + slope·t²/2 = count that stays exact as the slope goes to 0.
        return 2 * count / (self._from + math.sqrt(self._from**2 + 2 * self._slope * count))


class StepRate:
    """One rate after the other, each for as long; the last stays."""

    def __init__(self, rates_per_s: tuple[float, ...], step_s: float) -> None:
        self._rates = rates_per_s
        self._step_s = step_s
        self._before = [0.0]  # expected when each step begins
        for rate in rates_per_s[:-1]:
            self._before.append(self._before[-1] + rate * step_s)

    def expected(self, until_s: float) -> float:
        step = min(int(until_s // self._step_s), len(self._rates) - 1)
        return self._before[step] + (until_s - step * self._step_s) * self._rates[step]

    def when(self, count: float) -> float:
        step = bisect_right(self._before, count) - 1
        return step * self._step_s + (count - self._before[step]) / self._rates[step]


def rate_of(pattern: Pattern) -> Rate:
    """The rate that a pattern declares; raises `TypeError` for one that has none."""
    match pattern:
        case ConstantRate(rate_per_s=rate) | Poisson(rate_per_s=rate) | GammaArrivals(rate_per_s=rate):
            return SteadyRate(rate)
        case OnOff(rate_per_s=rate, on_s=on_s, off_s=off_s):
            return OnOffRate(rate, on_s, off_s)
        case Ramp(rate_per_s=rate, rate_to_per_s=rate_to, over_s=over_s):
            return RampRate(rate, rate_to, over_s)
        case Steps(rates_per_s=rates, step_s=step_s):
            return StepRate(rates, step_s)
    raise TypeError(f"{type(pattern).__name__} has no rate")
