"""A sweep as dots: where its points lie, which of them count, and which is nearest to a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from service.analysis.compare.sweep import Sweep
from service.analysis.observed.columns import Floats

Places: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True)
class Dots:
    """The points that have been measured, by latency.

    Attributes:
        places: of each dot in the sweep.
        front, best, beaten: indices of the dots on the Pareto front, of the best dot, and of the rest.
        limits_s: the objective, if there is one.
    """

    places: Places
    latencies_s: Floats
    rates: Floats
    front: Places
    best: Places
    beaten: Places
    limits_s: Floats

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


def dots_of(sweep: Sweep | None) -> Dots:
    """The dots of the points that were measured."""
    if sweep is None:
        no_places, nothing = np.empty(0, dtype=np.int64), np.empty(0)
        return Dots(no_places, nothing, nothing, no_places, no_places, no_places, nothing)
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
