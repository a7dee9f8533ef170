"""Latency over time, with a point for every answered request, and its distribution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gui.look.tokens import GHOST_REACH
from gui.series.declaration import Declaration, Entry, Readout, figure_entry
from gui.series.scale import ValueAxis
from gui.series.time_range import TimeRange, stride
from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History
from service.analysis.observed.register import PERCENTILES, Figures, readout
from service.analysis.observed.requests import samples_between
from service.analysis.observed.rolling import LEVELS, STEP_S, step_of
from service.messages.objectives import Objectives

NAMES: Final = ("p50", "p95", "p99")

PLOT: Final = Declaration(
    name="latency",
    title="Latency",
    unit="seconds from intended send",
    entries=tuple(figure_entry(key, "line", name) for key, name in zip(PERCENTILES, NAMES, strict=True)),
    empty_text="A point for every request,\nwith p50, p95 and p99",
    axis_units=("s",),
)


def declared(objectives: Objectives) -> Declaration:
    """With the objective, if there is one for the latency; its value is its name, which stays where room lacks."""
    if objectives.latency_s is None:
        return PLOT
    tip = "The latency that a request may have, as set under Load"
    objective = Entry(f"≤ {objectives.latency_s:g} s", "dash", "t2", tip)
    return replace(PLOT, entries=(*PLOT.entries, objective))


@dataclass(frozen=True)
class Latencies:
    """What the plot shows.

    Attributes:
        points: when requests were answered, and after how long.
        lines: times and values of each percentile; NaN is a break.
    """

    points: tuple[Floats, Floats]
    lines: Mapping[str, tuple[Floats, Floats]]
    peak: float


def latencies(history: History, view: TimeRange) -> Latencies:
    """All points, and the lines, broken at each change of settings."""
    finished, latency, _ = samples_between(history.requests.samples, view.start_s, view.end_s)
    lines = _lines(history, view)
    peaks = [float(np.nanmax(ys)) for _, ys in lines.values() if not np.isnan(ys).all()]
    peak, objective_s = max([*peaks, float(latency.max(initial=0.0))]), history.objectives.latency_s
    if objective_s is not None and objective_s <= GHOST_REACH * peak:  # else it is out of all proportion
        peak = max(peak, objective_s)
    return Latencies((finished, latency), lines, peak)


def readout_at(history: History, at_s: float) -> Readout:
    """The percentiles at that moment, of the curves."""
    p50_s, p95_s, p99_s = values_at(history, at_s).values()
    return readout(Figures(p50_s=p50_s, p95_s=p95_s, p99_s=p99_s), PERCENTILES)


def values_at(history: History, at_s: float) -> Mapping[str, float]:
    last_s = history.last_s
    step = step_of(at_s if last_s is None else min(at_s, last_s))
    return dict(zip(NAMES, [float(grid.read(step, step)[0]) for grid in history.percentiles.grids], strict=True))


def _lines(history: History, view: TimeRange) -> Mapping[str, tuple[Floats, Floats]]:
    every = stride(view)
    first, last = step_of(view.start_s) // every * every, step_of(view.end_s) + 1
    if history.last_s is not None:
        last = min(last, step_of(history.last_s))
    steps = np.arange(first, last + 1, every)
    starts = np.array([regime.start_s for regime in history.batches.regimes]) / STEP_S
    after = np.searchsorted(steps, starts, side="right")
    breaks = after[(after > 0) & (after < len(steps))]
    lines = {}
    for name, grid in zip(NAMES, history.percentiles.grids, strict=True):
        values = grid.read(first, last)[::every]
        values[breaks] = np.nan
        lines[name] = steps * STEP_S, values
    return lines


BIN_PIXELS: Final = 8

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
