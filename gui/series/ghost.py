"""What is predicted, as levels at the right edge of the plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gui.look.tokens import GHOST_REACH
from service.analysis.predict.predict import Estimate, Prediction


@dataclass(frozen=True)
class GhostLevel:
    """A predicted value and the interval it is thought to lie in.

    Attributes:
        strip: of the plot, counted from the top.
        ink: name of its colour.
    """

    strip: int
    value: float
    low: float
    high: float
    ink: str


NO_GHOST: Final[Mapping[str, tuple[GhostLevel, ...]]] = {}


def ghost_levels(prediction: Prediction) -> Mapping[str, tuple[GhostLevel, ...]]:
    """The levels of each plot, by the plot's name."""
    return {
        "latency": (_level(prediction.p95_s, "p95"), _level(prediction.p50_s, "p50")),
        "throughput": (_level(prediction.tokens_per_s, "t1"), _level(prediction.requests_per_s, "t1", strip=1)),
        "batch-size": (_level(prediction.mean_batch, "t1"),),
    }


def with_ghost(peaks: Sequence[float], levels: Sequence[GhostLevel]) -> tuple[float, ...]:
    """The peaks that the scales have to reach: those of the data, and a ghost that is not out of all proportion.

    >>> with_ghost([1.0], [GhostLevel(0, 1.2, 1.0, 1.5, "p50")]), with_ghost([1.0], [GhostLevel(0, 70, 60, 80, "p50")])
    ((1.2,), (2.0,))
    """
    return tuple(
        max([peak, *(min(level.value, GHOST_REACH * peak) for level in levels if level.strip == strip)])
        for strip, peak in enumerate(peaks)
    )


def _level(estimate: Estimate, ink: str, strip: int = 0) -> GhostLevel:
    return GhostLevel(strip, estimate.value, estimate.low, estimate.high, ink)
