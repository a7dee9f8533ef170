"""The size of each batch by its release reason, and in `continuous` the rows that ran, over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gui.look.tokens import MARK_ROOM
from gui.series.declaration import Declaration, Entry, Readout, reason_entries, told_counts, with_reasons
from gui.series.time_range import TimeRange, one_per_cell, step_line
from service.analysis.observed.batches import CONTINUOUS, REASON_CODES, REASONS
from service.analysis.observed.budget import budget_now, requests_held
from service.analysis.observed.columns import Floats, Ints
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import batch_running, batch_summary
from service.messages.settings import ReleaseReason

CROWDED: Final = 2  # segments a column: from there on the line would only be a hedge
COLUMNS_AVERAGED: Final = 7


@dataclass(frozen=True)
class ActiveRows:
    """For each column of the view how many ran, while any did: on average and at most; 0 where none did.

    Where columns hold many changes, the average is one over some columns.
    """

    mean: Floats
    most: Floats


def active_rows(started: Floats, finished: Floats, size: Floats, view: TimeRange) -> ActiveRows:
    """From segments with the same members, each as if it alone were in the columns it covers in part."""
    left, right = (np.clip(view.positions(times), 0.0, view.columns) for times in (started, finished))
    segment, column = _cells(left, right)
    covered = np.minimum(right[segment], column + 1.0) - np.maximum(left[segment], column)
    covered = np.maximum(covered, 0.0)
    rows, ran, most = (np.zeros(view.columns) for _ in range(3))
    np.add.at(rows, column, covered * size[segment])
    np.add.at(ran, column, covered)
    np.maximum.at(most, column, size[segment] * (covered > 0))
    is_crowded = len(started) > CROWDED * view.columns
    if is_crowded:
        rows, ran = (np.convolve(sums, np.ones(COLUMNS_AVERAGED), "same") for sums in (rows, ran))
    return ActiveRows(np.divide(rows, ran, out=np.zeros(view.columns), where=(ran > 0) & (most > 0)), most)


def _cells(left: Floats, right: Floats) -> tuple[Ints, Ints]:
    """Every pair of a segment and a column that it reaches into."""
    first, last = np.floor(left).astype(np.int64), np.ceil(right).astype(np.int64)
    count = np.maximum(last - first, 0)
    segment = np.repeat(np.arange(len(left)), count)
    before = np.cumsum(count) - count
    return segment, np.arange(len(segment)) - before[segment] + first[segment]


CAP_IN_VIEW: Final = 4  # times the largest batch; a higher cap would press the batches flat
LEAST_VIEW: Final = 4
FIRST_OF_RUNNING: Final = REASON_CODES["joined"]
BUDGET_MOMENTS: Final = 120  # of a view for which it is computed how many requests the token budget holds
MARK_CELL: Final = 3  # columns of pixels: marks of one size closer than this are one

BUDGET_TIPS: Final[Mapping[str, str]] = {
    "memory": "Requests like those of the moment that memory holds at a time, where these are fewer than the cap",
    "max_batch_tokens": "Requests like those of the moment that the budget holds, where these are fewer than the cap",
}

PLOT: Final = Declaration(
    name="batch-size",
    title="Batch size",
    unit="requests",
    entries=(*reason_entries(), Entry("cap", "dash", "t2")),
    empty_text="A mark for every batch,\nby why it was released",
)


@dataclass(frozen=True)
class Bars:
    """Batches of one release reason: `left` to `right` they ran, `size` is how many they held; `marks` index them."""

    left: Floats
    right: Floats
    size: Floats
    marks: Ints


@dataclass(frozen=True)
class BatchSizes:
    """What the plot shows.

    Attributes:
        bars: of whole batches.
        marked: segments of batches that others joined, as far as they have room for a mark, and the first of each.
        active: rows that ran in such segments; ``None`` where there are none.
        cap: the corners of the step, times and values.
        budget: the corners of the requests that the token budget holds, NaN where they are not fewer than the cap.
        budget_source: what sets it; ``None`` where the line has no point.
        count: batches in view, each one, also where several share a column.
        peak: what must fit below the top.
    """

    bars: Mapping[ReleaseReason, Bars]
    marked: Mapping[ReleaseReason, Bars]
    active: ActiveRows | None
    cap: tuple[Floats, Floats]
    budget: tuple[Floats, Floats]
    budget_source: str | None
    count: Mapping[ReleaseReason, int]
    peak: float

    @property
    def seen(self) -> tuple[ReleaseReason, ...]:
        return tuple(reason for reason, count in self.count.items() if count)


def declared(sizes: BatchSizes, knows_cap: bool = True) -> Declaration:
    """With the release reasons that there are, and the token budget where it holds fewer than the cap."""
    plot, source = with_reasons(PLOT, reason_entries(seen=sizes.seen)), sizes.budget_source
    if not knows_cap:
        plot = replace(plot, entries=tuple(entry for entry in plot.entries if entry.name != "cap"))
    if source is None:
        return plot
    return replace(plot, entries=(*plot.entries, Entry(source, "dash", "t1", BUDGET_TIPS[source])))


def batch_sizes(history: History, view: TimeRange) -> BatchSizes:
    """The batches that ran in `view`; where more than one falls into a column, the largest has the bar."""
    columns = history.batches.columns
    visible = view.overlaps(columns["started"], columns["finished"])
    started, size = columns["started"][visible], columns["size"][visible].astype(np.float64)
    finished = np.minimum(columns["finished"][visible], view.end_s)
    reason = columns["reason"][visible]
    is_open = columns["formation"][visible] == CONTINUOUS
    is_wide = (finished - started >= MARK_ROOM * view.pixel_s) | (reason < FIRST_OF_RUNNING)
    largest = float(size.max()) if len(size) else 0.0
    bars, marked, count = {}, {}, {}
    for code, name in enumerate(REASONS):
        count[name] = int(np.count_nonzero(reason == code))
        bars[name], marked[name] = (
            _bars(started[chosen], finished[chosen], size[chosen], view)
            for chosen in ((reason == code) & ~is_open, (reason == code) & is_open & is_wide)
        )
    active = active_rows(started[is_open], finished[is_open], size[is_open], view) if is_open.any() else None
    cap = _cap(history, view)
    highest_cap = float(cap[1].max()) if len(cap[1]) else 0.0
    fits = highest_cap <= CAP_IN_VIEW * max(largest, LEAST_VIEW)
    source, budget = _budget(history, view, cap)
    highest = (largest, highest_cap if fits else 0.0, float(np.nanmax(budget[1])) if source else 0.0)
    return BatchSizes(bars, marked, active, cap, budget, source, count, max(highest))


def readout(history: History, at_s: float) -> Readout:
    """The batch that ran at that moment, and the cap."""
    row = batch_running(history, at_s)
    batch = None if row is None else batch_summary(history, row)
    if batch is not None:
        return {batch.reason: str(batch.size)} | ({"cap": str(batch.cap)} if history.knows_cap else {})
    _, caps = _cap(history, TimeRange(at_s, at_s + 1e-3, 1))
    return {"cap": f"{caps[0]:.0f}"} if len(caps) else {}


def summary(history: History, sizes: BatchSizes, is_live: bool = True) -> Readout:
    """How many batches of each kind are in view, and the cap that is in force: now, or else at the view's end."""
    texts = told_counts(sizes.count)
    if not is_live and len(sizes.cap[1]):
        texts["cap"] = f"{sizes.cap[1][-1]:.0f}"
    elif history.in_force is not None and history.knows_cap:
        texts["cap"] = str(history.in_force.settings.max_batch_size)
    if sizes.budget_source and np.isfinite(last := sizes.budget[1][-1]):
        texts[sizes.budget_source] = f"{last:.0f}"
    return texts


def _bars(started: Floats, finished: Floats, size: Floats, view: TimeRange) -> Bars:
    if len(started) > view.columns:
        started, finished, size = _largest_per_column(started, size, view)
    chosen = one_per_cell(
        view.grid_columns((started + finished) / 2), size.astype(np.int64), round(MARK_CELL * view.ratio)
    )
    return Bars(started, finished, size, chosen)


def _largest_per_column(started: Floats, size: Floats, view: TimeRange) -> tuple[Floats, Floats, Floats]:
    columns = np.maximum(view.grid_columns(started), view.grid_columns(np.array([view.start_s]))[0])
    first = int(columns.min())
    largest = np.zeros(int(columns.max()) - first + 1)
    np.maximum.at(largest, columns - first, size)
    taken = np.flatnonzero(largest)
    left = (first + taken) * view.column_s
    return left, left + view.column_s, largest[taken]


def _cap(history: History, view: TimeRange) -> tuple[Floats, Floats]:
    """The cap that batches were formed under, held from one that changed it to the next."""
    columns = history.batches.columns
    formed, caps = columns["formed"], columns["cap"]
    first_s = history.first_s
    if first_s is None or history.in_force is None or not history.knows_cap:
        return np.zeros(0), np.zeros(0)
    if len(formed) == 0:
        starts, values = np.array([first_s]), np.array([float(history.in_force.settings.max_batch_size)])
    else:
        changes = np.flatnonzero(np.diff(caps, prepend=-1))
        starts, values = formed[changes].copy(), caps[changes].astype(np.float64)
        starts[0] = min(first_s, starts[0])
    keep = max(int(np.searchsorted(starts, view.start_s, side="right")) - 1, 0)
    until = int(np.searchsorted(starts, view.end_s))
    end_s = view.end_s if history.ended_s is None else history.ended_s
    starts, values = np.maximum(starts[keep:until], view.start_s), values[keep:until]
    if len(starts) == 0 or end_s <= starts[-1]:
        return np.zeros(0), np.zeros(0)
    return step_line(starts, values, min(end_s, view.end_s))


def _budget(history: History, view: TimeRange, cap: tuple[Floats, Floats]) -> tuple[str | None, tuple[Floats, Floats]]:
    """What sets the token budget, and the corners of the line of requests that it holds where the cap is higher."""
    budget, (times, caps) = budget_now(history), cap
    nothing = None, (np.zeros(0), np.zeros(0))
    if budget is None or not len(times):
        return nothing
    moments = np.linspace(times[0], times[-1], BUDGET_MOMENTS, endpoint=False)
    held = np.maximum(np.floor(requests_held(history, budget.tokens, moments)), 1.0)
    held[held >= caps[np.searchsorted(times, moments, side="right") - 1]] = np.nan
    if np.isnan(held).all():
        return nothing
    return budget.source, step_line(moments, held, float(times[-1]))
