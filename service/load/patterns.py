"""Arrival processes: when requests are due, each a small object with its own seed and no clock."""

from __future__ import annotations

import random
from typing import Protocol

from service.messages import Burst, Pattern, Poisson


class OpenArrivals(Protocol):
    """Arrivals that do not wait for answers."""

    def next_interval_s(self) -> float | None:
        """Seconds from the arrival before (at first: from the start) to the next; ``None`` when there are no more."""

    def retune(self, pattern: Pattern) -> float | None:
        """Go on as `pattern`; the factor by which the time left to the next arrival grows, ``None`` if it cannot."""


class BurstArrivals:
    """All at once, then nothing; another burst while one goes out adds to it."""

    def __init__(self, count: int) -> None:
        self._left = count

    def next_interval_s(self) -> float | None:
        if self._left == 0:
            return None
        self._left -= 1
        return 0.0

    def retune(self, pattern: Pattern) -> float | None:
        if not isinstance(pattern, Burst):
            return None
        self._left += pattern.count
        return 1.0


class PoissonArrivals:
    """Exponential intervals.

    They are drawn for a rate of one a second and divided by the rate in force. So a change of rate rescales the
    interval that is running: arrivals neither pause nor bunch up while a slider is dragged, and the same seed gives the
    same sequence at every rate.
    """

    def __init__(self, rate_per_s: float, seed: int) -> None:
        self._rate_per_s = rate_per_s
        self._random = random.Random(f"arrivals-{seed}")

    def next_interval_s(self) -> float | None:
        return self._random.expovariate(1.0) / self._rate_per_s

    def retune(self, pattern: Pattern) -> float | None:
        if not isinstance(pattern, Poisson):
            return None
        stretch = self._rate_per_s / pattern.rate_per_s
        self._rate_per_s = pattern.rate_per_s
        return stretch


class PromptDeck:
    """The prompts of a load, each once a round, every round shuffled anew."""

    def __init__(self, prompts: tuple[str, ...], seed: int) -> None:
        self._prompts = prompts
        self._random = random.Random(f"prompts-{seed}")
        self._round: list[str] = []

    def draw(self) -> str:
        if not self._round:
            self._round = list(self._prompts)
            self._random.shuffle(self._round)
        return self._round.pop()


def open_arrivals(pattern: Burst | Poisson, seed: int) -> OpenArrivals:
    """The arrivals that `pattern` declares."""
    match pattern:
        case Burst(count=count):
            return BurstArrivals(count)
        case Poisson(rate_per_s=rate_per_s):
            return PoissonArrivals(rate_per_s, seed)
