"""Queue depth: how many requests wait, are sealed in a batch that does not run yet, and run, one above the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gui.series.declaration import Declaration, Readout, figure_entry
from gui.series.time_range import TimeRange
from service.analysis.observed.columns import Floats, Ints
from service.analysis.observed.history import History
from service.analysis.observed.register import STAGES, Figures, readout

PER_COLUMN: Final = 4  # moments looked at in each column of pixels

PLOT: Final = Declaration(
    name="queue-depth",
    title="Queue depth",
    unit="requests",
    entries=tuple(figure_entry(stage, "area", stage) for stage in STAGES),
    empty_text="How many requests wait,\nand how many run",
)


@dataclass(frozen=True)
class Stack:
    """Requests by stage, one above the other with running at the bottom; the upper edge of each."""

    running: Floats
    formed: Floats
    waiting: Floats


@dataclass(frozen=True)
class QueueDepths:
    """For each column the stack at its shallowest and at its deepest moment."""

    low: Stack
    high: Stack

    @property
    def peak(self) -> float:
        return float(self.high.waiting.max(initial=0.0))


def queue_depths(history: History, view: TimeRange) -> QueueDepths:
    """What each column shows, whether few requests were in view or tens of thousands."""
    columns = history.requests.columns
    begun, ended = history.requests.spans()
    visible = view.overlaps(begun, ended)
    begun, formed, started, finished = (t[visible] for t in (begun, columns["formed"], columns["started"], ended))
    moments = _Moments(view)
    running = moments.level(started, finished)
    sealed = running + moments.level(formed, np.minimum(started, finished))
    waiting = sealed + moments.level(begun, np.minimum(formed, finished))
    low, high = moments.extremes(waiting)
    return QueueDepths(
        Stack(running[low], sealed[low], waiting[low]), Stack(running[high], sealed[high], waiting[high])
    )


def readout_at(history: History, at_s: float) -> Readout:
    """How many requests were in each stage at that moment."""
    waiting, formed, running = history.depth_at(at_s)
    return readout(Figures(waiting=waiting, formed=formed, running=running), STAGES)


class _Moments:
    """Evenly spaced moments at which intervals are counted: a sum over two histograms, whatever their number."""

    def __init__(self, view: TimeRange) -> None:
        self._view = view
        self._count = view.columns * PER_COLUMN

    def level(self, starts: Floats, ends: Floats) -> Floats:
        """How many of the half-open intervals contain each moment; an empty interval contains none."""
        real = starts < ends
        change = self._histogram(starts[real]) - self._histogram(ends[real])
        return np.cumsum(change).astype(np.float64)

    def extremes(self, values: Floats) -> tuple[Ints, Ints]:
        """Of each column the moments of the smallest and the largest value."""
        table = values.reshape(self._view.columns, PER_COLUMN)
        firsts = np.arange(self._view.columns) * PER_COLUMN
        return firsts + table.argmin(axis=1), firsts + table.argmax(axis=1)

    def _histogram(self, times: Floats) -> Ints:
        """How many of `times` come into force at each moment."""
        steps = np.ceil(self._view.positions(times) * PER_COLUMN)
        steps = np.clip(steps, 0, self._count).astype(np.int64)
        return np.bincount(steps, minlength=self._count + 1)[: self._count]
