"""How one figure of B compares with A's, as a value and in words."""

from __future__ import annotations

from typing import Final

import msgspec

from service.analysis.compare.run import FigureName

FOLD: Final = 1.8  # from here on a factor reads better than a percentage


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What the rounds say of one figure.

    Attributes:
        a, b: the geometric means over the rounds, so that `ratio` is b / a.
        low, high: of the ratio, at 95 % confidence.
        spread: standard deviation of the logarithm of the ratio from round to round.
    """

    figure: FigureName
    rounds: int
    a: float
    b: float
    ratio: float
    low: float
    high: float
    spread: float

    @property
    def is_real(self) -> bool:
        """Whether the interval leaves out "the same"."""
        return not self.low <= 1.0 <= self.high

    @property
    def _is_fold(self) -> bool:
        return self.ratio >= FOLD or self.ratio <= 1 / FOLD

    @property
    def text(self) -> str:
        """How B stands to A: "4.1 times A's", "3 % lower than A's"."""
        if self._is_fold:
            return f"{_digits(self.ratio)} times A's"
        return f"{percent(abs(self.ratio - 1))} {'higher' if self.ratio >= 1 else 'lower'} than A's"

    @property
    def short_text(self) -> str:
        """The same for a table: "× 4.1", "−3 %"."""
        return f"× {_digits(self.ratio)}" if self._is_fold else _signed(self.ratio - 1)

    @property
    def interval_text(self) -> str:
        """The confidence interval: "3.6 to 4.7", "−8 % to +15 %"."""
        if self._is_fold:
            return f"{_digits(self.low)} to {_digits(self.high)}"
        return f"{_signed(self.low - 1)} to {_signed(self.high - 1)}"


def percent(share: float) -> str:
    """
    >>> percent(0.014), percent(0.37)
    ('1.4 %', '37 %')
    """
    return f"{100 * share:.{1 if share < 0.02 else 0}f} %"


def _digits(ratio: float) -> str:
    decimals = 3 if ratio < 0.1 else 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:.{decimals}f}"


def _signed(share: float) -> str:
    return f"{'−' if share < 0 else '+'}{percent(abs(share))}"
