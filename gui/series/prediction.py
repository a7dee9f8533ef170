"""The prediction as courses right of what is measured, and the capacity as a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np

from gui.look.tokens import GHOST_REACH
from service.analysis.findings.facts import Facts, SeenCapacity
from service.analysis.observed.register import REGISTER, decimals_of_seconds
from service.analysis.predict.predict import Estimate, Prediction, Trajectory
from service.messages.text import per_second


class GhostPoint(NamedTuple):
    """A value on the way, and its interval; `share` of the horizon has passed by then."""

    share: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class GhostLevel:
    """A predicted value and the interval it is thought to lie in.

    Attributes:
        pane: of the plot, counted from the top.
        ink: name of its colour.
        course: the way there, from the present on; empty for a level that holds at once.
        words: two lines that say the level, if it is said here.
    """

    pane: int
    value: float
    low: float
    high: float
    ink: str
    course: tuple[GhostPoint, ...] = ()
    words: tuple[str, str] | None = None

    @property
    def peak(self) -> float:
        return max([self.value, *(point.value for point in self.course)])

    @property
    def upper_end(self) -> float:
        """Of the band."""
        return max([self.high, *(point.high for point in self.course)])


NO_GHOST: Final[Mapping[str, tuple[GhostLevel, ...]]] = {}


def ghost_levels(prediction: Prediction) -> Mapping[str, tuple[GhostLevel, ...]]:
    """The levels of each plot, by the plot's name; where a backlog is worked off first, the way there too."""
    then, comes = prediction, prediction.trajectory if prediction.is_moving else Trajectory()
    return {
        "latency": (
            *(replace(each, words=_latency_words(then)) for each in _level(then.p95_s, "p95", comes.p95_s)),
            *_level(then.p50_s, "p50", comes.p50_s),
        ),
        "throughput": (
            *_level(then.tokens_per_s, "t1", comes.tokens_per_s),
            *_level(then.requests_per_s, "t1", comes.requests_per_s, pane=1),
        ),
        "batch-size": () if then.is_after_backlog else _level(then.mean_batch, "t1"),
        "queue-depth": _level(comes.present[-1], "t1", comes.present) if then.is_moving else (),
    }


def _latency_words(then: Prediction) -> tuple[str, str] | None:
    """p95 as it comes to be, and its band."""
    if then.p95_s is None:
        return None
    value, low, high = msgspec.structs.astuple(then.p95_s)
    decimals = decimals_of_seconds([value])
    value_text, low_text, high_text = (REGISTER["p95_s"].number(each, decimals) for each in (value, low, high))
    when = "" if then.horizon_s is None else f" in {then.horizon_s:.0f} s"
    return f"p95 {value_text} s{when}", f"{low_text} to {high_text}"


def from_now_on(level: GhostLevel, passed: float) -> GhostLevel:
    """The level with its course from now on, after this share of the horizon has passed.

    >>> way = (GhostPoint(0.0, 8, 8, 8), GhostPoint(1.0, 0, 0, 0))
    >>> [(each.share, each.value) for each in from_now_on(GhostLevel(0, 0, 0, 0, "t1", way), 0.25).course]
    [(0.0, 6.0), (0.75, 0.0), (1.0, 0.0)]
    """
    points = level.course or (GhostPoint(0.0, level.value, level.low, level.high),)
    known = np.array(points, np.float64).T
    later = known[0] - passed
    shares = np.array([0.0, *later[(later > 0) & (later < 1)], 1.0])
    columns = [np.interp(shares + passed, known[0], values).tolist() for values in known[1:]]
    course = tuple(GhostPoint(*point) for point in zip(shares.tolist(), *columns, strict=True))
    return replace(level, course=course)


def with_ghost(peaks: Sequence[float], levels: Sequence[GhostLevel]) -> tuple[float, ...]:
    """The peaks that the scales have to reach: the data's, and the ghost's unless it is out of all proportion.

    >>> with_ghost([1.0], [GhostLevel(0, 1.2, 1.0, 1.5, "p50")]), with_ghost([1.0], [GhostLevel(0, 70, 60, 80, "p50")])
    ((1.5,), (2.0,))
    """
    return tuple(
        max([peak, *(_reached(level, GHOST_REACH * peak) for level in levels if level.pane == pane)])
        for pane, peak in enumerate(peaks)
    )


def _reached(level: GhostLevel, most: float) -> float:
    """What of a level a scale that grows to `most` shows: all of its band, or what it can of its values."""
    return level.upper_end if level.upper_end <= most else min(level.peak, most)


def _level(
    estimate: Estimate | None, ink: str, course: Sequence[Estimate | None] = (), pane: int = 0
) -> tuple[GhostLevel, ...]:
    """The level with its course; none where it is not known."""
    if estimate is None:
        return ()
    last = len(course) - 1
    points = (GhostPoint(n / last, each.value, each.low, each.high) for n, each in enumerate(course) if each)
    return (GhostLevel(pane, estimate.value, estimate.low, estimate.high, ink, tuple(points)),)


@dataclass(frozen=True)
class CapacityLevel:
    """What it is in one pane."""

    per_s: float
    words: str


@dataclass(frozen=True)
class CapacityLine:
    """Its levels in the plot's panes, tokens and requests a second.

    Attributes:
        since_s: since when the settings hold.
        seen: which says in words what the line says.
    """

    since_s: float
    seen: SeenCapacity

    @classmethod
    def of(cls, facts: Facts) -> CapacityLine | None:
        """``None`` as long as the time of the batches is not known well enough, or the engine is slowed."""
        seen = facts.capacity
        return None if seen is None or facts.disturbance is not None else cls(facts.regime.start_s, seen)

    @cached_property
    def levels(self) -> tuple[CapacityLevel, CapacityLevel]:
        """
        >>> from service.analysis.findings.facts import Rate
        >>> rate = Rate(12.53, 11.0, 14.0)
        >>> [level.words for level in CapacityLine(0.0, SeenCapacity(16, True, rate, 24.0)).levels]
        ['capacity 301 at 16', 'capacity 12.5']
        >>> [level.words for level in CapacityLine(0.0, SeenCapacity(3, False, rate, 24.0)).levels]
        ['capacity ≥ 264, seen at 3', 'capacity ≥ 11.0']
        """
        seen, requests_per_s = self.seen, self.seen.per_s
        tokens_per_s = requests_per_s * seen.tokens
        least, at = ("", f" at {seen.size}") if seen.is_full else ("≥ ", f", seen at {seen.size}")
        return (
            CapacityLevel(tokens_per_s, f"capacity {least}{tokens_per_s:.0f}{at}"),
            CapacityLevel(requests_per_s, f"capacity {least}{per_second(requests_per_s).removesuffix(' requests/s')}"),
        )


def with_capacity(peaks: Sequence[float], line: CapacityLine) -> tuple[float, ...]:
    """The peaks that the scales have to reach: the data's, and the line's unless it is out of all proportion.

    >>> from service.analysis.findings.facts import Rate
    >>> line = CapacityLine(0.0, SeenCapacity(16, True, Rate(12.5, 11.0, 14.0), 24.0))
    >>> with_capacity((200.0, 8.0), line), with_capacity((20.0, 0.8), line)
    ((300.0, 12.5), (20.0, 0.8))
    """
    pairs = zip(peaks, line.levels, strict=True)
    return tuple(level.per_s if peak < level.per_s <= GHOST_REACH * peak else peak for peak, level in pairs)
