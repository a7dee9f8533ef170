"""Latency: a point for every answered request; p50, p95 and p99 of the last ten seconds as lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from gui.history import History
from gui.series.declaration import Declaration, Entry, Readout, rounded
from gui.series.thinning import one_per_cell, thinned
from gui.series.time_range import TimeRange
from gui.store.columns import Floats
from gui.store.requests import samples_between
from gui.store.rolling import STEP_S, step_of

NAMES: Final = ("p50", "p95", "p99")
CELL: Final = 2  # pixels: points closer than this are one

PLOT: Final = Declaration(
    name="latency",
    title="Latency",
    unit="seconds from intended send",
    entries=tuple(Entry(name, "line", name) for name in NAMES),
    empty_text="A point for every request,\nwith p50, p95 and p99",
    axis_units=("s",),
)


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


def latencies(history: History, view: TimeRange, rows: int) -> Latencies:
    """Points no closer than can be told apart on a plot `rows` pixels high, and the lines, broken at each change."""
    finished, latency, _ = samples_between(history.requests.samples, view.start_s, view.end_s)
    peak = float(latency.max()) if len(latency) else 0.0
    chosen = one_per_cell(view.positions(finished) / CELL, latency / max(peak, 1e-9), max(rows // CELL, 1))
    lines = _lines(history, view)
    highest = max((float(np.nanmax(ys)) for _, ys in lines.values() if not np.isnan(ys).all()), default=0.0)
    return Latencies((finished[chosen], latency[chosen]), lines, max(peak, highest))


def readout(history: History, at_s: float) -> Readout:
    """The percentiles at that moment."""
    values = values_at(history, at_s)
    return {name: rounded(value, 2) for name, value in values.items()}


def values_at(history: History, at_s: float) -> Mapping[str, float]:
    last_s = history.last_s
    step = step_of(at_s if last_s is None else min(at_s, last_s))
    return dict(zip(NAMES, history.percentiles_at(step), strict=True))


def _lines(history: History, view: TimeRange) -> Mapping[str, tuple[Floats, Floats]]:
    first, last = step_of(view.start_s) - 1, step_of(view.end_s) + 1
    if history.last_s is not None:
        last = min(last, step_of(history.last_s))
    times = np.arange(first, last + 1) * STEP_S
    breaks = [step_of(regime.start_s) + 1 - first for regime in history.batches.regimes]
    inside = [index for index in breaks if 0 <= index < len(times)]
    lines = {}
    for name, grid in zip(NAMES, history.percentiles.grids, strict=True):
        values = grid.read(first, last)
        values[inside] = np.nan
        lines[name] = thinned(times, values, view)
    return lines
