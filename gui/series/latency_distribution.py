"""How latencies are distributed: a histogram, and the share of requests answered within a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gui.series.declaration import Declaration, Entry
from gui.series.value_axis import ValueAxis
from service.analysis.observed.columns import Floats
from service.analysis.observed.rolling import LEVELS

BIN_PIXELS: Final = 8
NAMES: Final = ("p50", "p95", "p99")

HISTOGRAM: Final = Declaration(
    name="latency-histogram",
    title="Latency",
    unit="share of requests",
    entries=(Entry("requests", "area", "running"), Entry("before", "dash", "t2")),
    empty_text="How many requests took how long",
    axis_units=("%",),
)
CUMULATIVE: Final = Declaration(
    name="latency-cumulative",
    title="Cumulative",
    unit="share answered within",
    entries=tuple(Entry(name, "line", name) for name in NAMES),
    empty_text="What share of the requests\nwas answered within which time",
    axis_units=("%",),
)


@dataclass(frozen=True)
class Sample:
    """Latencies with a name, in seconds, rising."""

    name: str
    values: Floats

    def percentiles(self) -> dict[str, float]:
        """The latency that 50, 95 and 99 of 100 requests did not exceed; none without requests."""
        if not len(self.values):
            return {}
        return dict(zip(NAMES, np.percentile(self.values, LEVELS).tolist(), strict=True))

    def share_within(self, seconds: Floats) -> Floats:
        """Per cent of the requests that took no longer.

        >>> Sample("A", np.array([1.0, 2.0, 3.0, 4.0])).share_within(np.array([0.5, 2.0, 9.0])).tolist()
        [0.0, 50.0, 100.0]
        """
        counted = np.searchsorted(self.values, seconds, side="right")
        result: Floats = counted * (100.0 / max(len(self.values), 1))
        return result


@dataclass(frozen=True)
class Bins:
    """Per cent of a sample between each two neighbouring edges."""

    edges: Floats
    shares: Floats

    @property
    def peak(self) -> float:
        return float(self.shares.max(initial=0.0))

    def share_at(self, value: float) -> float:
        """Of the bin that a value falls into."""
        place = int(np.searchsorted(self.edges, value, side="right")) - 1
        return float(self.shares[min(max(place, 0), len(self.shares) - 1)])


def histogram(sample: Sample, axis: ValueAxis, pixels: int) -> Bins:
    """As many bins as the axis has room for; on a logarithmic axis they are as wide as they look."""
    edges = axis.edges(max(pixels // BIN_PIXELS, 1))
    counts, _ = np.histogram(np.clip(sample.values, edges[0], edges[-1]), edges)
    return Bins(edges, counts * (100.0 / max(len(sample.values), 1)))
