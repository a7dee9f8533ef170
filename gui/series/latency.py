"""Latency over time, or another time of a request, with a point for every answered request, and its distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gui.look.tokens import GHOST_REACH
from gui.series.declaration import Declaration, Entry, Readout, figure_entry
from gui.series.scale import ValueAxis, value_axis
from gui.series.time_range import TimeRange, stride
from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History
from service.analysis.observed.register import PERCENTILES, Figures, readout
from service.analysis.observed.requests import SAMPLED, sampled_of, samples_between
from service.analysis.observed.rolling import LEVELS, STEP_S, step_of
from service.messages.objectives import TIMES, Objectives
from service.messages.text import format_number

NAMES: Final = ("p50", "p95", "p99")

PLOT: Final = Declaration(
    name="latency",
    title="Latency",
    unit="seconds from intended send",
    entries=tuple(figure_entry(key, "line", name) for key, name in zip(PERCENTILES, NAMES, strict=True)),
    empty_text="A point for every request,\nwith p50, p95 and p99",
    axis_units=("s",),
)


@dataclass(frozen=True)
class Measure:
    """A time of each answered request.

    Attributes:
        name: of the column of `RequestTable.samples`.
        words, brief, briefest: as the user reads it; the shorter ones where room lacks.
        declaration: of its plot over time.
        unit, per_s: in which it is shown, and how many of these make a second.
        decimals: of its percentiles.
    """

    name: str
    words: str
    brief: str
    briefest: str
    declaration: Declaration
    unit: str
    per_s: float
    decimals: int

    def shown(self, seconds: Floats) -> Floats:
        """Times in the unit in which they are shown."""
        return seconds * self.per_s if self.per_s != 1.0 else seconds

    def number(self, value: float | None) -> str:
        """A value in that unit, in words."""
        return format_number(value, self.decimals)


_BETWEEN: Final = replace(PLOT, unit="milliseconds per output token", axis_units=("ms",))


def _measure(name: str, brief: str, briefest: str, declaration: Declaration = PLOT, decimals: int = 2) -> Measure:
    words, unit, per_s = SAMPLED[name]
    return Measure(name, words, brief, briefest, declaration, unit, per_s, decimals)


ANSWER: Final = _measure("latency", "answer", "answer")
MEASURES: Final[Mapping[str, Measure]] = {
    "latency": ANSWER,
    "ttft": _measure("ttft", "first token", "first"),
    "tpot": _measure("tpot", "between", "between", _BETWEEN, decimals=1),
}


def measure_of(name: str, unit: str) -> Measure:
    """The measure of that name, or the latency where a workload that counts in this unit has no such.

    >>> measure_of("ttft", "tokens").name, measure_of("ttft", "sums").name, measure_of("unheard of", "tokens").name
    ('ttft', 'latency', 'latency')
    """
    return MEASURES[name] if name in sampled_of(unit) else ANSWER


def objective(measure: Measure, objectives: Objectives) -> float:
    """What requests are to meet, in the unit of the measure; NaN where nothing is asked for.

    >>> objective(MEASURES["tpot"], Objectives(tpot_s=0.05)), objective(ANSWER, Objectives(tpot_s=0.05))
    (50.0, nan)
    """
    wanted_s: float | None = getattr(objectives, TIMES[measure.name])
    return math.nan if wanted_s is None else wanted_s * measure.per_s


def declared(measure: Measure, objectives: Objectives) -> Declaration:
    """With the objective, if there is one; its value is its name, which stays where room lacks."""
    wanted, plot = objective(measure, objectives), measure.declaration
    if math.isnan(wanted):
        return plot
    tip = "The time that a request may take, as set under Load"
    limit = Entry(f"≤ {wanted:g} {measure.unit}", "dash", "t2", tip, has_value=False)
    return replace(plot, entries=(*plot.entries, limit))


@dataclass(frozen=True)
class Latencies:
    """What the plot shows, in the unit of its measure.

    Attributes:
        points: when requests were answered, and after how long.
        lines: times and values of each percentile; NaN is a break.
    """

    points: tuple[Floats, Floats]
    lines: Mapping[str, tuple[Floats, Floats]]
    peak: float


def latencies(history: History, view: TimeRange, measure: Measure = ANSWER) -> Latencies:
    """All points, and the lines, broken at each change of settings."""
    finished, values, _ = samples_between(history.requests.samples, view.start_s, view.end_s, measure.name)
    values, lines = measure.shown(values), _lines(history, view, measure)
    peaks = [float(np.nanmax(ys)) for _, ys in lines.values() if not np.isnan(ys).all()]
    peak, wanted = max([*peaks, float(values.max(initial=0.0))]), objective(measure, history.objectives)
    if wanted <= GHOST_REACH * peak:  # else it is out of all proportion
        peak = max(peak, wanted)
    return Latencies((finished, values), lines, peak)


def readout_at(history: History, at_s: float, measure: Measure = ANSWER) -> Readout:
    """The percentiles at that moment, of the curves."""
    values = values_at(history, at_s, measure)
    if measure is ANSWER:
        p50_s, p95_s, p99_s = values.values()
        return readout(Figures(p50_s=p50_s, p95_s=p95_s, p99_s=p99_s), PERCENTILES)
    return {name: measure.number(value) for name, value in values.items()}


def values_at(history: History, at_s: float, measure: Measure = ANSWER) -> Mapping[str, float]:
    """The percentiles at that moment, in the unit of the measure."""
    last_s = history.last_s
    step = step_of(at_s if last_s is None else min(at_s, last_s))
    grids = history.percentiles_of(measure.name).grids
    return dict(zip(NAMES, [float(measure.shown(grid.read(step, step))[0]) for grid in grids], strict=True))


def _lines(history: History, view: TimeRange, measure: Measure) -> Mapping[str, tuple[Floats, Floats]]:
    every = stride(view)
    first, last = step_of(view.start_s) // every * every, step_of(view.end_s) + 1
    if history.last_s is not None:
        last = min(last, step_of(history.last_s))
    steps = np.arange(first, last + 1, every)
    starts = np.array([regime.start_s for regime in history.batches.regimes]) / STEP_S
    after = np.searchsorted(steps, starts, side="right")
    breaks = after[(after > 0) & (after < len(steps))]
    failed = history.has_failed_at(steps * STEP_S)
    lines = {}
    for name, grid in zip(NAMES, history.percentiles_of(measure.name).grids, strict=True):
        values = measure.shown(grid.read(first, last)[::every])
        values[breaks] = values[failed] = np.nan
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
    """Latencies with a name, rising, in the unit of their measure."""

    name: str
    values: Floats
    measure: Measure = ANSWER

    def percentiles(self) -> dict[str, float]:
        """The latency that 50, 95 and 99 of 100 requests did not exceed; none without requests."""
        if not len(self.values):
            return {}
        return dict(zip(NAMES, np.percentile(self.values, LEVELS).tolist(), strict=True))

    def share_within(self, limits: Floats) -> Floats:
        """Per cent of the requests that took no longer.

        >>> Sample("A", np.array([1.0, 2.0, 3.0, 4.0])).share_within(np.array([0.5, 2.0, 9.0])).tolist()
        [0.0, 50.0, 100.0]
        """
        counted = np.searchsorted(self.values, limits, side="right")
        result: Floats = counted * (100.0 / max(len(self.values), 1))
        return result


def axis_of(*samples: Sample | None) -> ValueAxis:
    """The axis on which all of these can be read."""
    known = [sample for sample in samples if sample is not None]
    measure = known[0].measure if known else ANSWER
    return value_axis(*(sample.values for sample in known), unit=measure.unit)


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
