"""Wasted work: places in the engine's batches that made no token of an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gui.series.declaration import Declaration, Entry, Readout
from gui.series.scope import Scope
from gui.series.time_range import TimeRange
from service.analysis.observed.columns import Bools, Floats, Ints
from service.analysis.observed.history import History
from service.messages.text import format_number

BINS: Final = 60
LEAST_BIN_S: Final = 1.0

PLOT: Final = Declaration(
    name="wasted-work",
    title="Wasted work",
    unit="share of all rows computed or held",
    entries=(Entry("ended rows", "area", "t3"), Entry("padding", "area", "t2")),
    empty_text="What share of the work was padding,\nor places of rows that had ended",
    axis_units=("%",),
)
SAVED: Final = Entry(
    "saved",
    "none",
    "t2",
    "The share of all prompt tokens that were not computed, since earlier prompts began with them",
)


@dataclass(frozen=True)
class Wasted:
    """Per cent of all places of a batch, a place being one row in one step or one token of a prompt.

    Attributes:
        vacant: of rows that had ended while the batch ran on; no other request could take them.
        padding: in front of prompts shorter than the longest of their batch.
        saved: of all tokens of prompts those that were not computed, since earlier prompts began with them.
    """

    vacant: float
    padding: float
    saved: float = 0.0

    @property
    def total(self) -> float:
        return self.vacant + self.padding


@dataclass(frozen=True)
class WastedOverTime:
    """For each column of the view what is wasted, NaN where no batch ended; and whether any tokens were saved."""

    padding: Floats
    vacant: Floats
    has_saved: bool

    @property
    def peak(self) -> float:
        total = self.padding + self.vacant
        return float(np.nanmax(total)) if not np.isnan(total).all() else 0.0


def wasted(history: History, scope: Scope) -> Wasted | None:
    """Over all batches that ended in a scope; ``None`` where none did, or nothing is known of their work."""
    columns = history.batches.columns
    chosen = scope.contains(columns["finished"], columns["regime"]) & (columns["computed"] >= 0)
    names = ("computed", "padding", "vacant", "prompts", "saved")
    computed, padding, vacant, prompts, saved = (int(columns[name][chosen].sum()) for name in names)
    places = computed + vacant
    if not places:
        return None
    return Wasted(100.0 * vacant / places, 100.0 * padding / places, 100.0 * saved / max(prompts + saved, 1))


def wasted_over_time(history: History, view: TimeRange) -> WastedOverTime:
    """In steps of time, of which one with a change in it shows the batches formed after that alone."""
    columns = history.batches.columns
    steps = _Steps(view)
    chosen = view.overlaps(columns["started"], columns["finished"]) & (columns["computed"] >= 0)
    ended = steps.of(columns["finished"][chosen])
    newest = _of_newest_settings(ended, columns["regime"][chosen])
    rows, ended = np.flatnonzero(chosen)[newest], ended[newest]
    computed, padding, vacant = (steps.sums(ended, columns[name][rows]) for name in ("computed", "padding", "vacant"))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = [100.0 * part / (computed + vacant) for part in (padding, vacant)]
    begun = steps.of(columns["started"][rows])
    padding_over_time, vacant_over_time = (steps.columns(_held_while_running(each, begun, ended)) for each in shares)
    return WastedOverTime(padding_over_time, vacant_over_time, bool((columns["saved"][rows] > 0).any()))


def declared(found: WastedOverTime) -> Declaration:
    """With what was saved, where anything was."""
    return replace(PLOT, entries=(*PLOT.entries, SAVED)) if found.has_saved else PLOT


def readout(found: Wasted | None) -> Readout:
    """The shares in the legend."""
    if found is None:
        return {}
    shares = {"ended rows": found.vacant, "padding": found.padding} | ({"saved": found.saved} if found.saved else {})
    return {name: f"{format_number(share, 1)} %" for name, share in shares.items()}


class _Steps:
    """The steps of time that a view is counted in; edges are multiples of their length, so nothing shimmers."""

    def __init__(self, view: TimeRange) -> None:
        self._view = view
        self._step_s = max(view.span_s / BINS, LEAST_BIN_S)
        self._first = int(np.floor(view.start_s / self._step_s))
        self._count = int(np.floor(view.end_s / self._step_s)) - self._first + 1

    def of(self, times: Floats) -> Ints:
        """The steps that moments fall into; what is beyond an edge of the view falls into the outermost."""
        result: Ints = np.floor(times / self._step_s).astype(np.int64) - self._first
        return np.clip(result, 0, self._count - 1)

    def sums(self, steps: Ints, values: Ints) -> Floats:
        result: Floats = np.bincount(steps, values, minlength=self._count).astype(np.float64)
        return result

    def columns(self, values: Floats) -> Floats:
        """The value for each column of pixels."""
        return values[self.of(self._view.middles())]


def _held_while_running(shares: Floats, begun: Ints, ended: Ints) -> Floats:
    """Steps in which no batch ended show what the one that then ran came to."""
    change = np.zeros(len(shares) + 1)
    np.add.at(change, begun, 1)
    np.add.at(change, ended + 1, -1)
    known = np.where(np.isnan(shares), len(shares), np.arange(len(shares)))
    following = np.minimum.accumulate(known[::-1])[::-1]
    filled = np.append(shares, np.nan)[following]
    return np.where(np.cumsum(change)[:-1] > 0, filled, np.nan)


def _of_newest_settings(step: Ints, regime: Ints) -> Bools:
    newest = np.full(int(step.max(initial=0)) + 1, -1, np.int64)
    np.maximum.at(newest, step, regime)
    result: Bools = regime == newest[step]
    return result
