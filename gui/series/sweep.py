"""Settings as dots: where they lie, which of them count, and which is nearest to a place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from service.analysis.compare.sweep import Sweep
from service.analysis.goal.search import Candidate, GoalSearch
from service.analysis.observed.columns import Floats

Places: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
REACH: Final = 3.0  # times the objective, or what the nearest setting takes: what takes longer is left out


class Spreads(NamedTuple):
    """The intervals of the dots that have any: which, of their times, and of their rates."""

    dots: Places
    low_s: Floats
    high_s: Floats
    low_per_s: Floats
    high_per_s: Floats


def _no_places() -> Places:
    return np.empty(0, dtype=np.int64)


def _nothing() -> Floats:
    return np.empty(0)


def _no_spreads() -> Spreads:
    return Spreads(_no_places(), _nothing(), _nothing(), _nothing(), _nothing())


@dataclass(frozen=True)
class Dots:
    """Settings by latency.

    Attributes:
        places: of each dot among the settings.
        front, best, beaten: indices of the dots on the line, of the best dot, and of the rest.
        limits_s: the objective, if there is one.
        asked_per_s: the load, if it is the same for all.
        names: of some dots, by index, the most important first.
        left_out: the number of settings beyond the end of the axis, which have no dot.
    """

    places: Places = field(default_factory=_no_places)
    latencies_s: Floats = field(default_factory=_nothing)
    rates: Floats = field(default_factory=_nothing)
    front: Places = field(default_factory=_no_places)
    best: Places = field(default_factory=_no_places)
    beaten: Places = field(default_factory=_no_places)
    limits_s: Floats = field(default_factory=_nothing)
    asked_per_s: Floats = field(default_factory=_nothing)
    spreads: Spreads = field(default_factory=_no_spreads)
    names: Mapping[int, str] = field(default_factory=dict)
    left_out: int = 0

    def index_of(self, place: int | None) -> Places:
        """The dot of a point, as an array of one or none."""
        return np.flatnonzero(self.places == (-1 if place is None else place))

    def beside(self, place: int | None, step: int) -> int | None:
        """The point to the right or to the left of another."""
        if not len(self.places):
            return None
        found = self.index_of(place)
        index = int(found[0]) + step if len(found) else 0
        return int(self.places[min(max(index, 0), len(self.places) - 1)])


NO_DOTS: Final = Dots()


def dots_of(sweep: Sweep | None) -> Dots:
    """The dots of the points that were measured; the line is the Pareto front."""
    if sweep is None:
        return NO_DOTS
    known = sweep.measured()
    places = np.array([dot.place for dot in known], dtype=np.int64)
    front, best = sweep.front(), sweep.best()
    is_best = places == (-1 if best is None else best)
    is_front = np.isin(places, front)
    return Dots(
        places=places,
        latencies_s=np.array([dot.latency_s for dot in known]),
        rates=np.array([dot.requests_per_s for dot in known]),
        front=np.flatnonzero(is_front),
        best=np.flatnonzero(is_best),
        beaten=np.flatnonzero(~is_front & ~is_best),
        limits_s=np.array([] if sweep.limit_s is None else [sweep.limit_s]),
    )


def dots_of_search(found: GoalSearch | None) -> Dots:
    """The dots of what was simulated; the line is the best for each number of replicas and places in memory."""
    if found is None:
        return NO_DOTS
    candidates, limit_s = found.candidates, found.limit_s
    reach_s = REACH * max(limit_s, min(each.time_s.value for each in candidates))
    shown = [place for place, each in enumerate(candidates) if each.time_s.value <= reach_s and not each.saturated]
    by_time = sorted(shown, key=lambda place: candidates[place].time_s.value)
    places = np.array(by_time, dtype=np.int64)
    is_front, is_best = np.isin(places, found.least_places), np.isin(places, found.holding[:1])
    named = [place for place in _named(found) if place in by_time]
    return Dots(
        places=places,
        latencies_s=np.array([candidates[place].time_s.value for place in by_time]),
        rates=np.array([candidates[place].goodput_per_s.value for place in by_time]),
        front=np.flatnonzero(is_front),
        best=np.flatnonzero(is_best),
        beaten=np.flatnonzero(~is_front & ~is_best),
        limits_s=np.array([limit_s]),
        asked_per_s=np.array([] if found.users else [found.rate_per_s]),
        spreads=_spreads([candidates[place] for place in named], [by_time.index(place) for place in named]),
        names={by_time.index(place): _brief(candidates[place]) for place in named},
        left_out=len(candidates) - len(places),
    )


def _named(found: GoalSearch) -> list[int]:
    """The cheapest that holds, the one that just misses, the line and the front, in this order."""
    missed = () if found.just_misses is None else (found.just_misses,)
    return list(dict.fromkeys((*found.holding[:1], *missed, *found.least_places, *found.frontier)))


def _spreads(candidates: Sequence[Candidate], dots: Sequence[int]) -> Spreads:
    times, rates = [each.time_s for each in candidates], [each.goodput_per_s for each in candidates]
    return Spreads(
        np.array(dots, dtype=np.int64),
        np.array([each.low for each in times]),
        np.array([each.high for each in times]),
        np.array([each.low for each in rates]),
        np.array([each.high for each in rates]),
    )


def _brief(candidate: Candidate) -> str:
    replicas = f" × {candidate.replicas}" if candidate.replicas > 1 else ""
    return f"{candidate.settings.formation} {candidate.settings.max_batch_size}{replicas}"


def nearest(xs: Floats, ys: Floats, x: float, y: float, reach: float) -> int | None:
    """The index of the dot that is nearest to a place, if it is within reach.

    >>> nearest(np.array([0.0, 10.0]), np.array([0.0, 0.0]), 8.0, 1.0, reach=5.0)
    1
    """
    if not len(xs):
        return None
    distances = np.hypot(xs - x, ys - y)
    index = int(np.argmin(distances))
    return index if distances[index] <= reach else None
