"""How a slider's travel maps to a setting's range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

TRAVEL: Final = 1000  # positions of a slider, 0 included: 0 … TRAVEL
ZERO_TRAVEL: Final = 15  # of them belong to 0, where it is a step of its own
LOG_ABOVE: Final = 100  # a range that spans more than two powers of ten is logarithmic


@dataclass(frozen=True)
class Scale:
    """A range and its steps.

    Attributes:
        finest: the smallest value above 0 that can be reached, and the coarsest grid values are rounded to.

    >>> batch = Scale(1, 256, integral=True)
    >>> batch.value_at(500), batch.position_of(16)
    (16.0, 500)
    >>> Scale(0, 5).value_at(0)
    0.0
    """

    low: float
    high: float
    integral: bool = False
    finest: float = 0.001

    @property
    def is_logarithmic(self) -> bool:
        return self.high / self._least > LOG_ABOVE

    @property
    def least_step(self) -> float:
        return 1.0 if self.integral else self.finest

    def value_at(self, position: int) -> float:
        if self._zero_travel and position < self._zero_travel:
            return 0.0
        share = (position - self._zero_travel) / (TRAVEL - self._zero_travel)
        if self.is_logarithmic:
            return self.rounded(self._least * (self.high / self._least) ** share)
        return self.rounded(self.low + (self.high - self.low) * share)

    def position_of(self, value: float) -> int:
        value = min(self.high, max(self.low, value))
        if self._zero_travel and value < self._least:
            return 0
        if self.is_logarithmic:
            share = math.log(value / self._least) / math.log(self.high / self._least)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self._zero_travel + share * (TRAVEL - self._zero_travel))

    def stepped(self, value: float, steps: int) -> float:
        """`value` moved by `steps` of its second significant digit (of 1, where whole numbers are wanted)."""
        step = 1.0 if self.integral else max(self.finest, 10.0 ** (_exponent(value) - 1))
        return self._within(value + steps * step)

    def doubled(self, value: float, times: int) -> float:
        """`value` doubled, or halved where `times` is negative."""
        if times > 0 and value == 0:
            return self._within(self._least)
        if times < 0 and value <= self._least:
            return self.low
        return self._within(value * 2.0**times)

    def rounded(self, value: float) -> float:
        """`value` to two significant digits, to a whole number where that is wanted."""
        if self.integral:
            return self._clamped(float(round(value)))
        return self._within(value)

    @property
    def _least(self) -> float:
        return self.low if self.low > 0 else (1.0 if self.integral else self.finest)

    @property
    def _zero_travel(self) -> int:
        return ZERO_TRAVEL if self.is_logarithmic and self.low == 0 else 0

    def _within(self, value: float) -> float:
        if self.integral:
            return self._clamped(float(round(value)))
        digits = max(-math.floor(math.log10(self.finest)), 0)
        return self._clamped(round(value, min(digits, 1 - _exponent(value))))

    def _clamped(self, value: float) -> float:
        return min(self.high, max(self.low, value))


def _exponent(value: float) -> int:
    return math.floor(math.log10(abs(value)) + 1e-9) if value else -3
