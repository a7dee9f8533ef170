"""The times between tokens (ITL) of all replicas, counted on the grid of time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from service.analysis.observed.columns import Floats
from service.analysis.observed.rolling import LEVELS, STEP_S, step_of
from service.messages.gaps import Gaps
from service.messages.telemetry import TokenGaps


@dataclass(frozen=True)
class Stall:
    """The longest gap between two tokens of one request in some time.

    Attributes:
        at_s: when it ended.
        request: id that the service gave.
    """

    at_s: float
    gap_s: float
    replica: str
    request: str

    @property
    def since_s(self) -> float:
        return self.at_s - self.gap_s


class GapTable:
    """How many gaps of which length ended in each step of time, and the longest of each step."""

    def __init__(self) -> None:
        self._gaps: dict[int, Gaps] = {}  # by step, as are the stalls; few steps hold more than ten lengths
        self._longest: dict[int, Stall] = {}
        self._heard_s: dict[tuple[int, str], float] = {}  # the newest step of each

    def add(self, service: int, reported: Iterable[TokenGaps]) -> None:
        """Add what replicas of a service reported: each one's steps in order, and what comes again is left out."""
        for each in reported:
            replica = service, each.replica
            if each.at_s <= self._heard_s.get(replica, -math.inf):
                continue
            self._heard_s[replica] = each.at_s
            step, gaps = step_of(each.at_s), each.gaps
            self._gaps.setdefault(step, Gaps()).add_all([gaps])
            known = self._longest.get(step)
            if known is None or gaps.longest_s > known.gap_s:
                self._longest[step] = Stall(each.longest_at_s, gaps.longest_s, each.replica, each.request)

    def between(self, start_s: float, end_s: float) -> Gaps:
        """The gaps that ended from `start_s` to `end_s`, in the steps that begin there: none that ended before."""
        first, last = _steps(start_s, end_s)
        found = Gaps()
        found.add_all(gaps for step in range(first, last + 1) if (gaps := self._gaps.get(step)) is not None)
        return found

    def stalls(self, start_s: float, end_s: float) -> list[Stall]:
        """The longest of the same gaps in each step."""
        first, last = _steps(start_s, end_s)
        return [stall for step in range(first, last + 1) if (stall := self._longest.get(step)) is not None]

    def percentiles(self, start_s: float, end_s: float, _regime: int) -> Floats:
        """p50, p95 and p99 of the same gaps, in seconds; NaN of none."""
        found = self.between(start_s, end_s).percentiles_s(*LEVELS)
        return np.array(found) if found else np.full(len(LEVELS), math.nan)

    def drop_before(self, time_s: float) -> None:
        before = step_of(time_s)
        while self._gaps and (oldest := next(iter(self._gaps))) < before:
            del self._gaps[oldest], self._longest[oldest]


def _steps(start_s: float, end_s: float) -> tuple[int, int]:
    """The steps that begin in [start, end)."""
    return math.ceil(start_s / STEP_S), math.ceil(end_s / STEP_S) - 1
