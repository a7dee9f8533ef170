"""The batches of the last seconds, how each came to be, and how many requests waited and ran meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from service.analysis.observed.batches import FORMATION_CODES, REASON_CODES, mean_size
from service.analysis.observed.columns import Bools, Columns, Floats, Ints
from service.analysis.observed.history import History
from service.messages.settings import Formation, ReleaseReason

AT_ONCE_S: Final = 0.005  # an engine that gets its next batch within this was not kept waiting
REACH_S: Final = 120.0  # from the forming of a batch to its report, at most
MOMENTS: Final = 61
MOST_POINTS: Final = 200  # of a trend, whose cost grows with their square
STATUS_REACH_S: Final = 3.0  # a replica that is silent for longer is gone


@dataclass(frozen=True)
class RecentBatches:
    """Batches of one regime that were formed in a span of time, one entry each, in the order they were formed.

    In `continuous` they are segments with the same rows.

    Attributes:
        row: of the batch table.
        started, finished: NaN for a batch that had not by the end of the span.
        free: when its engine had finished the batch before; -infinity for an engine's first.
        queued: when its first member stood in the queue.
        steps, vacant: as the engine reported; -1 where unknown.
        prefill_s: that reading prompts took; NaN until it has ended.
        splits: how often memory did not hold all of its rows; 0 where unknown.
        is_open: whether others could join them.
        until_s: the end of the span.
    """

    row: Ints
    size: Ints
    cap: Ints
    reason: Ints
    formed: Floats
    started: Floats
    finished: Floats
    free: Floats
    queued: Floats
    steps: Ints
    vacant: Ints
    splits: Ints
    prefill_s: Floats
    is_open: bool
    until_s: float

    def __len__(self) -> int:
        return len(self.row)

    @property
    def mean_size(self) -> float:
        return mean_size(self.size, self.run_s, np.full(len(self), self.is_open)) or 0.0

    @cached_property
    def run_s(self) -> Floats:
        """Their run time within the span."""
        return np.maximum(np.where(np.isnan(self.finished), self.until_s, self.finished) - self.started, 0.0)

    @cached_property
    def is_full(self) -> Bools:
        return self.size >= self.cap if self.is_open else self.released("full")

    def share(self, which: Bools) -> float:
        """The share of the batches; where others can join them, of the time that they ran."""
        weights = self.run_s if self.is_open and self.run_s.any() else None
        return float(np.average(which, weights=weights)) if len(which) else 0.0

    def released(self, reason: ReleaseReason) -> Bools:
        released: Bools = self.reason == REASON_CODES[reason]
        return released

    @cached_property
    def ready(self) -> Floats:
        """When each could have run: its engine was free and its first member had come."""
        return np.maximum(self.free, self.queued)

    @cached_property
    def held(self) -> Floats:
        """How long each was held back although it could have run."""
        return np.maximum(self.formed - self.ready, 0.0)

    @cached_property
    def sealed(self) -> Floats:
        """How long each was sealed before its engine came free; so far, if it still waits."""
        return self.started - self.formed


def recent_batches(
    history: History, regime: int, since_s: float, at_s: float, formation: Formation | None = None
) -> RecentBatches:
    """Batches formed from `since_s` to `at_s`, as known then; of one formation, since older ones end after a change."""
    columns = history.batches.columns
    formed = columns["formed"]
    near = slice(int(np.searchsorted(formed, since_s - REACH_S)), None)  # about in order: reported frame by frame
    places = np.arange(len(formed))[near]
    chosen = (formed[near] >= since_s) & (formed[near] <= at_s) & (columns["regime"][near] == regime)
    if formation is not None:
        chosen &= columns["formation"][near] == FORMATION_CODES[formation]
    rows = places[chosen]
    rows = rows[np.argsort(formed[rows], kind="stable")]
    finished = columns["finished"][rows]
    ended = finished <= at_s
    return RecentBatches(
        row=rows + columns.first,
        size=columns["size"][rows],
        cap=columns["cap"][rows],
        reason=columns["reason"][rows],
        formed=formed[rows],
        started=np.minimum(columns["started"][rows], at_s),
        finished=np.where(ended, finished, np.nan),
        free=_free_since(columns, places)[rows - places[0]] if len(rows) else np.zeros(0),
        queued=_first_queued(history, rows),
        steps=np.where(ended, columns["steps"][rows], -1),
        vacant=np.where(ended, columns["vacant"][rows], -1),
        splits=np.where(ended, columns["splits"][rows], 0),
        prefill_s=np.where(ended, columns["prefill_s"][rows], np.nan),
        is_open=formation == "continuous",
        until_s=at_s,
    )


def _free_since(columns: Columns, places: Ints) -> Floats:
    """For each of these batches, the end of the one before it on its engine."""
    slot, started, finished = (columns[name][places] for name in ("slot", "started", "finished"))
    order = np.lexsort((started, slot))
    free = np.full(len(places), -np.inf)
    follows = slot[order][1:] == slot[order][:-1]
    free[order[1:][follows]] = finished[order[:-1][follows]]
    return free


def _first_queued(history: History, places: Ints) -> Floats:
    batches, requests = history.batches.columns, history.requests.columns
    first = np.full(len(batches), np.inf)
    batch = requests["batch"] - batches.first
    known = batch >= 0
    np.minimum.at(first, batch[known], requests["queued"][known])
    formed = batches["formed"][places]
    return np.where(np.isfinite(first[places]), first[places], formed)


@dataclass(frozen=True)
class Queues:
    """Numbers of requests at evenly spaced moments, a line a slot and a column a moment.

    Attributes:
        waiting: in the queue or in sealed batches.
        is_present: by slot, whether a replica held it all the time.
    """

    at_s: Floats
    waiting: Ints
    running: Ints
    is_present: Bools

    @property
    def total(self) -> Ints:
        total: Ints = self.waiting.sum(axis=0)
        return total


def queues(history: History, since_s: float, at_s: float) -> Queues:
    moments = np.linspace(since_s, at_s, MOMENTS)
    columns = history.requests.columns
    queued, finished = columns["queued"], columns["finished"]
    alive = (queued <= at_s) & (finished > since_s)
    slot, queued, finished = columns["slot"][alive], queued[alive], finished[alive]
    started = np.minimum(columns["started"][alive], finished)
    reported = history.statuses.replicas
    then, now = (
        set(reported["slot"][(reported["at"] > moment_s - STATUS_REACH_S) & (reported["at"] <= moment_s)].tolist())
        for moment_s in (since_s, at_s)
    )
    present = then & now
    slots = range(max([*slot.tolist(), *present], default=-1) + 1)
    return Queues(
        at_s=moments,
        waiting=_counts([(queued[slot == n], started[slot == n]) for n in slots], moments),
        running=_counts([(started[slot == n], finished[slot == n]) for n in slots], moments),
        is_present=np.array([n in present for n in slots], np.bool_),
    )


def _counts(spans: list[tuple[Floats, Floats]], moments: Floats) -> Ints:
    """The number of spans of each group that each moment lies in."""
    counts = np.zeros((len(spans), len(moments)), np.int64)
    for line, (begin, end) in enumerate(spans):
        counts[line] = np.searchsorted(np.sort(begin), moments, "right") - np.searchsorted(
            np.sort(end), moments, "right"
        )
    return counts


def trend(at_s: Floats, values: Floats | Ints) -> float:
    """The slope per second: the median of those of all pairs (Theil and Sen), which no single burst decides."""
    from scipy.stats import theilslopes  # slow to import, and not needed for the window's start

    chosen = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_POINTS)).astype(int))
    return float(theilslopes(values[chosen], at_s[chosen]).slope)
