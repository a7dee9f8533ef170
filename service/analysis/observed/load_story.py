"""How the load changed: marks that stand on every plot, and the rate that was offered."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from service.analysis.observed.marks import OuterMark, describe_load_change
from service.messages.load import Burst, ConstantRate, GammaArrivals, Pattern, Poisson

MARK_GAP_S: Final = 1.0  # changes of load closer than this (a slider that is dragged) become one mark
MOST_KEPT: Final = 500


@dataclass
class LoadStory:
    """What the load was, in order of time.

    Attributes:
        marks: its changes.
        offered: moments at which the offered rate changed and the rate from then on (``None``: not an open loop).
    """

    marks: list[OuterMark] = field(default_factory=list)
    offered: list[tuple[float, float | None]] = field(default_factory=list)
    _marked_from: Pattern | None = None

    def note(self, previous: Pattern | None, pattern: Pattern | None, at_s: float, *, has_failed: bool) -> None:
        """The pattern changed; `has_failed` says that there is no service to send it to."""
        rate = pattern.rate_per_s if isinstance(pattern, ConstantRate | Poisson | GammaArrivals) else None
        self.offered = [*self.offered[-MOST_KEPT:], (at_s, rate)]
        if pattern is None and (isinstance(previous, Burst) or has_failed):
            return  # a burst ends by itself, any load with its service
        follows = bool(self.marks) and at_s - self.marks[-1].at_s < MARK_GAP_S
        self._marked_from = self._marked_from if follows else previous
        mark = OuterMark(at_s, describe_load_change(self._marked_from, pattern))
        if follows:
            self.marks[-1] = replace(mark, at_s=self.marks[-1].at_s)
        else:
            self.marks.append(mark)

    def drop_before(self, at_s: float) -> None:
        self.marks = [mark for mark in self.marks[-MOST_KEPT:] if mark.at_s >= at_s]
        self.offered = [o for n, o in enumerate(self.offered) if o[0] >= at_s or n == len(self.offered) - 1]
