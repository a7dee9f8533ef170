"""Where the time of the answered requests went: their stages on average, and of those about p95."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gui.series.scope import Scope
from service.analysis.observed import stages
from service.analysis.observed.columns import Floats, Ints
from service.analysis.observed.history import History
from service.analysis.observed.requests import STATE_CODES
from service.analysis.observed.stages import Stage
from service.messages.telemetry import RequestState

DONE: Final[RequestState] = "done"
TAIL: Final = 95.0
TAIL_HALF_WIDTH: Final = 2.5  # per cent of the requests on either side of p95 that stand for it


@dataclass(frozen=True)
class StageBreakdown:
    """Seconds a stage, in the order of `stages`; each line adds up to a latency.

    Attributes:
        at_p95: the mean of the requests whose latency is about the 95th percentile.
    """

    stages: tuple[Stage, ...]
    count: int
    mean: Floats
    at_p95: Floats


def stage_breakdown(history: History, scope: Scope) -> StageBreakdown | None:
    """Of the requests answered in a scope; ``None`` where there were none."""
    rows = _answered(history, scope)
    if not len(rows):
        return None
    spans = stages.durations(stages.marks(history.requests.columns, rows))
    spans = spans[np.isfinite(spans).all(axis=1)]
    if not len(spans):
        return None
    return StageBreakdown(stages.stages_of(history.unit), len(spans), spans.mean(axis=0), _about_p95(spans))


def _answered(history: History, scope: Scope) -> Ints:
    columns = history.requests.columns
    answered = np.where(np.isinf(columns["client_finished"]), columns["finished"], columns["client_finished"])
    chosen = scope.contains(answered, columns["regime"]) & (columns["state"] == STATE_CODES[DONE])
    return np.flatnonzero(chosen) + columns.first


def _about_p95(spans: Floats) -> Floats:
    """The mean of the requests nearest to p95, at least one."""
    order = np.argsort(spans.sum(axis=1), kind="stable")
    last = len(order) - 1
    first, until = (round(last * (TAIL + side) / 100) for side in (-TAIL_HALF_WIDTH, TAIL_HALF_WIDTH))
    result: Floats = spans[order[first : until + 1]].mean(axis=0)
    return result
