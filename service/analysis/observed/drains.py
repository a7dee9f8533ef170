"""How long work that was formed under older settings went on after a change was in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from service.analysis.observed.columns import Columns

LATEST_S: Final = 5.0  # what a service has not told of older batches by then, it will not tell any more


@dataclass(frozen=True)
class Drain:
    """From when a change was in force to the end of the last batch formed before it; open as long as one is left."""

    in_force_s: float
    end_s: float | None

    @property
    def after_s(self) -> float | None:
        return None if self.end_s is None else self.end_s - self.in_force_s

    @property
    def words(self) -> str:
        """
        >>> Drain(1.0, 2.8).words, Drain(1.0, None).words
        ('old settings drained after 1.8 s', 'old settings still drain')
        """
        return (
            "old settings still drain" if self.after_s is None else f"old settings drained after {self.after_s:.1f} s"
        )

    @property
    def brief(self) -> str:
        """The same where room lacks."""
        return "draining" if self.after_s is None else f"drained {self.after_s:.1f} s"


class Drains:
    """Finds the drain of a change in the table of batches, and remembers it once it is over."""

    def __init__(self, batches: Columns) -> None:
        self._batches = batches
        self._known: dict[int, Drain | None] = {}

    def of(self, regime: int, in_force_s: float) -> Drain | None:
        """``None`` where no older batch was left when the change was in force."""
        if regime not in self._known:
            found = self._find(regime, in_force_s)
            if (found is not None and found.end_s is None) or self._newest_s() < in_force_s + LATEST_S:
                return found
            self._known[regime] = found
        return self._known[regime]

    def forget_before(self, regime: int) -> None:
        self._known = {number: drain for number, drain in self._known.items() if number >= regime}

    def _find(self, regime: int, in_force_s: float) -> Drain | None:
        finished = self._batches["finished"]
        left = finished[(self._batches["regime"] < regime) & (finished > in_force_s)]
        if not len(left):
            return None
        return Drain(in_force_s, None if np.isinf(left.max()) else float(left.max()))

    def _newest_s(self) -> float:
        formed = self._batches["formed"]
        return float(formed[-1]) if len(formed) else -np.inf
