"""How batch sizes are distributed, by why the batches were released."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gui.series.batch_size import CAP_IN_VIEW, LEAST_VIEW
from gui.series.declaration import (
    OF_WHOLE_BATCHES,
    Declaration,
    Entry,
    Readout,
    reason_entries,
    told_counts,
    with_reasons,
)
from gui.series.scope import Scope
from service.analysis.observed.batches import REASON_CODES, REASONS
from service.analysis.observed.columns import Floats, Ints
from service.analysis.observed.history import History
from service.messages.settings import ReleaseReason

MOST_BARS: Final = 64
OF_RUNNING: Final = tuple(code for reason, code in REASON_CODES.items() if reason not in OF_WHOLE_BATCHES)

PLOT: Final = Declaration(
    name="batch-distribution",
    title="Batch sizes",
    unit="share of batches",
    entries=(*reason_entries("area"), Entry("cap", "dash", "t2")),
    empty_text="How many batches held how many requests,\nby why they were released",
    axis_units=("%",),
)


@dataclass(frozen=True)
class BatchDistribution:
    """Per cent of the batches, one number a bar; the first bar stands for 1 to `width` requests.

    Attributes:
        is_by_time: whether it is per cent of the time that they ran, as where requests join and leave.
        by_reason: stacked in this order.
        cap: the largest `max_batch_size` that counts; ``None`` without batches.
    """

    width: int
    by_reason: Mapping[ReleaseReason, Floats]
    count: Mapping[ReleaseReason, int]
    cap: int | None
    is_by_time: bool = False

    @property
    def total(self) -> int:
        return sum(self.count.values())

    @property
    def outline(self) -> Floats:
        """All reasons together; nothing without batches."""
        result: Floats = np.sum(list(self.by_reason.values()), axis=0)
        return result if self.total else np.zeros(0)

    def sizes_of(self, bar: int) -> str:
        """The sizes that a bar stands for, in words."""
        first = bar * self.width + 1
        return str(first) if self.width == 1 else f"{first}–{first + self.width - 1}"


def largest_in_view(history: History, *scopes: Scope | None) -> int:
    """The size that the last bar stands for: the largest batch, and the cap where it is not far beyond."""
    sizes = [_batches(history, scope) for scope in scopes if scope is not None]
    largest = max((int(size.max(initial=0)) for size, *_ in sizes), default=0)
    cap = max((int(caps.max(initial=0)) for _, _, caps, _ in sizes), default=0)
    largest = max(largest, cap if cap <= CAP_IN_VIEW * max(largest, LEAST_VIEW) else largest, LEAST_VIEW)
    width = math.ceil(largest / MOST_BARS)
    return math.ceil(largest / width) * width


def batch_distribution(history: History, scope: Scope, largest: int) -> BatchDistribution:
    """The batches that ended in a scope, for bars up to the size `largest`."""
    size, reason, caps, run_s = _batches(history, scope)
    is_by_time = bool(np.isin(reason, OF_RUNNING).any())
    weights = run_s if is_by_time else np.ones(len(size))
    width = math.ceil(largest / MOST_BARS)
    bars = largest // width
    place = np.clip((size - 1) // width, 0, bars - 1)
    share = 100.0 / float(weights.sum() or 1.0)
    by_reason, count = {}, {}
    for code, name in enumerate(REASONS):
        of_reason = reason == code
        count[name] = int(np.count_nonzero(of_reason))
        by_reason[name] = np.bincount(place[of_reason], weights[of_reason], bars) * share
    return BatchDistribution(width, by_reason, count, int(caps.max()) if len(caps) else None, is_by_time)


def declared(sizes: BatchDistribution | None) -> Declaration:
    """With the release reasons that there are, and what the shares are of."""
    if sizes is None or not sizes.is_by_time:
        return PLOT
    seen = tuple(reason for reason, count in sizes.count.items() if count)
    return replace(with_reasons(PLOT, reason_entries("area", seen)), title="Running rows", unit="share of the time")


def readout(sizes: BatchDistribution, bar: int | None = None) -> Readout:
    """How many batches of each kind there are, or what shares stand in the bar under the pointer."""
    cap = {} if sizes.cap is None else {"cap": str(sizes.cap)}
    if bar is None:
        return {**told_counts(sizes.count), **cap}
    found = {name: shares[bar] for name, shares in sizes.by_reason.items() if bar < len(shares)}
    return {name: f"{share:.0f} %" for name, share in found.items() if share > 0}


def _batches(history: History, scope: Scope) -> tuple[Ints, Ints, Ints, Floats]:
    columns = history.batches.columns
    chosen = scope.contains(columns["finished"], columns["regime"])
    size, reason, caps = (columns[name][chosen] for name in ("size", "reason", "cap"))
    return size, reason, caps, columns["finished"][chosen] - columns["started"][chosen]
