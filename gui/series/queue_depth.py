"""Queue depth: how many requests wait, are sealed in a batch that does not run yet, and run, one above the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gui.history import History
from gui.series.declaration import Declaration, Entry, Readout
from gui.series.time_range import TimeRange
from gui.store.columns import Floats, Ints

PER_COLUMN: Final = 4  # moments looked at in each column of pixels

PLOT: Final = Declaration(
    name="queue-depth",
    title="Queue depth",
    unit="requests",
    entries=(
        Entry("waiting", "area", "waiting"),
        Entry("formed", "area", "formed"),
        Entry("running", "area", "running"),
    ),
    empty_text="How many requests wait,\nand how many run",
)


@dataclass(frozen=True)
class QueueDepths:
    """Requests by stage at `times`, of which there are two a column; stacked, running is at the bottom."""

    times: Floats
    running: Floats
    formed: Floats
    waiting: Floats

    @property
    def layers(self) -> tuple[Floats, Floats, Floats]:
        """The upper edges of running, formed and waiting."""
        formed = self.running + self.formed
        return self.running, formed, formed + self.waiting

    @property
    def peak(self) -> float:
        return float(self.layers[-1].max()) if len(self.times) else 0.0


def queue_depths(history: History, view: TimeRange) -> QueueDepths:
    """For each column the moments with the fewest and with the most requests."""
    columns = history.requests.columns
    finished = columns["finished"]
    visible = view.overlaps(np.minimum(columns["queued"], columns["received"]), finished)
    queued, formed, started, finished = (columns[n][visible] for n in ("queued", "formed", "started", "finished"))
    moments = _Moments(view)
    waiting = moments.level(queued, np.minimum(formed, finished))
    sealed = moments.level(formed, np.minimum(started, finished))
    running = moments.level(started, finished)
    chosen = moments.extremes(waiting + sealed + running)
    return QueueDepths(moments.times[chosen], running[chosen], sealed[chosen], waiting[chosen])


def readout(history: History, at_s: float) -> Readout:
    """How many requests were in each stage at that moment."""
    waiting, formed, running = history.depth_at(at_s)
    return {"waiting": str(waiting), "formed": str(formed), "running": str(running)}


class _Moments:
    """Evenly spaced moments at which intervals are counted: a sum over two histograms, whatever their number."""

    def __init__(self, view: TimeRange) -> None:
        self._view = view
        self._count = view.columns * PER_COLUMN
        self.times: Floats = view.start_s + np.arange(self._count) * (view.column_s / PER_COLUMN)

    def level(self, starts: Floats, ends: Floats) -> Floats:
        """How many of the half-open intervals contain each moment; an empty interval contains none."""
        real = starts < ends
        change = self._histogram(starts[real]) - self._histogram(ends[real])
        return np.cumsum(change).astype(np.float64)

    def extremes(self, values: Floats) -> Ints:
        """Of each column the moments of the smallest and the largest value, in order of time."""
        table = values.reshape(self._view.columns, PER_COLUMN)
        both = np.sort(np.stack((table.argmin(axis=1), table.argmax(axis=1)), axis=1), axis=1)
        return (both + np.arange(self._view.columns)[:, None] * PER_COLUMN).ravel()

    def _histogram(self, times: Floats) -> Ints:
        """How many of `times` come into force at each moment."""
        steps = np.ceil(self._view.positions(times) * PER_COLUMN)
        steps = np.clip(steps, 0, self._count).astype(np.int64)
        return np.bincount(steps, minlength=self._count + 1)[: self._count]
