"""How regularly requests arrive: intervals with a mean of one, each kind with a random stream of its own."""

from __future__ import annotations

import random
from typing import Protocol

from service.messages.load import ConstantRate, GammaArrivals, Pattern


class Intervals(Protocol):
    """Intervals between arrivals, for a rate of one."""

    def draw(self) -> float: ...
    def retune(self, pattern: Pattern) -> bool:
        """Go on as `pattern`; false if that takes other intervals."""


class EvenIntervals:
    """As regular as a clock's ticks."""

    def draw(self) -> float:
        return 1.0

    def retune(self, pattern: Pattern) -> bool:
        return isinstance(pattern, ConstantRate)


class ExponentialIntervals:
    """Independent arrivals: a Poisson process."""

    def __init__(self, seed: int) -> None:
        self._random = _stream(seed)

    def draw(self) -> float:
        return self._random.expovariate(1.0)

    def retune(self, pattern: Pattern) -> bool:
        return not isinstance(pattern, ConstantRate | GammaArrivals)


class GammaIntervals:
    """Clustered below a shape of one, Poisson at one, more regular above.

    The shape is what vLLM's `bench serve` calls burstiness (`get_request` in vllm/benchmarks/serve.py draws
    ``gamma(shape=burstiness, scale=1 / (rate * burstiness))``); the coefficient of variation is 1/√shape.
    """

    def __init__(self, shape: float, seed: int) -> None:
        self._shape = shape
        self._random = _stream(seed)

    def draw(self) -> float:
        return self._random.gammavariate(self._shape, 1 / self._shape)

    def retune(self, pattern: Pattern) -> bool:
        if not isinstance(pattern, GammaArrivals):
            return False
        self._shape = pattern.shape
        return True


def intervals_of(pattern: Pattern, seed: int) -> Intervals:
    """The intervals that a pattern with a rate declares."""
    match pattern:
        case ConstantRate():
            return EvenIntervals()
        case GammaArrivals(shape=shape):
            return GammaIntervals(shape, seed)
    return ExponentialIntervals(seed)


def _stream(seed: int) -> random.Random:
    return random.Random(f"arrivals-{seed}")
