"""Times between tokens, counted in bins: their memory is bounded, and their percentiles are known to 2.5 %."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import force_setattr

GROWTH: Final = 1.05
_LOG_GROWTH: Final = math.log(GROWTH)


@dataclass(frozen=True)
class LogBins:
    """Bins of times, each 5 % longer than the one before: bin 0 ends at `finest_s`, the last holds all that is longer.

    >>> bins = LogBins(0.001, 1.0)
    >>> bins.of(0.0), bins.of(0.001), bins.of(0.00104), bins.count, bins.of(9.0)
    (0, 0, 1, 143, 142)
    """

    finest_s: float
    longest_s: float

    @property
    def count(self) -> int:
        return self.of(self.longest_s) + 1

    def of(self, span_s: float) -> int:
        """The bin of a time in seconds."""
        if span_s <= self.finest_s:
            return 0
        return math.ceil(math.log(min(span_s, self.longest_s) / self.finest_s) / _LOG_GROWTH)

    def upper_s(self, bin: int) -> float:
        """The longest time of a bin."""
        return self.finest_s * math.exp(_LOG_GROWTH * bin)

    def middle_s(self, bin: int) -> float:
        """The geometric middle of a bin, at most 2.5 % from every time in it."""
        return self.finest_s * math.exp(_LOG_GROWTH * (bin - 0.5))


GAP_BINS: Final = LogBins(1e-4, 60.0)
GAPS_STEP_S: Final = 0.25
"""Gaps that ended in the same step of this length are counted together."""


class Gaps(msgspec.Struct, frozen=True, kw_only=True):
    """The times between successive tokens of a request, or of many: inter-token latencies (ITL).

    As in vLLM's `bench serve`, every gap counts once: a chunk that brings several tokens ends one gap, and what lies
    before the first token is no gap.

    Attributes:
        bins: how many gaps lie in each of `GAP_BINS`.
        total_s: their sum.
        longest_s: the longest of them, the longest stall.
    """

    bins: dict[int, int] = msgspec.field(default_factory=dict)
    total_s: float = 0.0
    longest_s: float = 0.0

    def add(self, gap_s: float) -> None:
        bin = GAP_BINS.of(gap_s)
        self.bins[bin] = self.bins.get(bin, 0) + 1
        self._count(gap_s, gap_s)

    def add_all(self, others: Iterable[Gaps]) -> None:
        for other in others:
            for bin, count in other.bins.items():
                self.bins[bin] = self.bins.get(bin, 0) + count
            self._count(other.total_s, other.longest_s)

    def _count(self, total_s: float, longest_s: float) -> None:
        """Count in place, as long as nothing has been sent: a new value a token would be many times the work."""
        force_setattr(self, "total_s", self.total_s + total_s)
        force_setattr(self, "longest_s", max(self.longest_s, longest_s))

    @property
    def count(self) -> int:
        return sum(self.bins.values())

    @property
    def mean_s(self) -> float | None:
        return self.total_s / self.count if self.bins else None

    def percentiles_s(self, *levels: float) -> list[float]:
        """The times that as many percent of the gaps do not exceed, in the order of `levels`, which ascend; [] of none.

        >>> gaps = Gaps()
        >>> for gap_s in (0.01, 0.01, 0.01, 0.2):
        ...     gaps.add(gap_s)
        >>> [round(gap_s, 3) for gap_s in gaps.percentiles_s(50, 99)]
        [0.01, 0.197]
        """
        count, below, found = self.count, 0, list[float]()
        for bin, held in sorted(self.bins.items()):
            below += held
            while len(found) < len(levels) and below >= max(count * levels[len(found)] / 100, 1):
                found.append(min(GAP_BINS.middle_s(bin), self.longest_s))
        return found
