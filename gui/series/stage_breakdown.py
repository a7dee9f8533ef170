"""Where the time goes: of requests by stage, and of the engine by reading prompts, decoding and being idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gui.series.declaration import Entry, Readout
from gui.series.scope import Scope
from service.analysis.observed import stages
from service.analysis.observed.columns import Floats, Ints
from service.analysis.observed.history import History
from service.analysis.observed.requests import STATE_CODES
from service.analysis.observed.stages import Stage
from service.messages.telemetry import RequestState

ENTRIES: Final = tuple(Entry(name, "none", "t2") for name in ("engine reads prompts", "decodes", "idle"))


@dataclass(frozen=True)
class EngineTime:
    """Shares of the time of all engines; what is left is idle."""

    prefill: float
    decode: float

    @property
    def idle(self) -> float:
        return max(1.0 - self.prefill - self.decode, 0.0)

    @property
    def readout(self) -> Readout:
        """
        >>> EngineTime(0.18, 0.7).readout
        {'engine reads prompts': '18 %', 'decodes': '70 %', 'idle': '12 %'}
        """
        shares = (self.prefill, self.decode, self.idle)
        return {entry.name: f"{100 * share:.0f} %" for entry, share in zip(ENTRIES, shares, strict=True)}


def engine_time(history: History, scope: Scope) -> EngineTime | None:
    """The engine's time in a scope, whatever it ran then; ``None`` where it is not reported, as in older recordings.

    How long a batch under way reads prompts is known at its end: until then it counts like those that have ended.
    """
    columns = history.batches.columns
    begun, ended = np.maximum(columns["started"], scope.start_s), np.minimum(columns["finished"], scope.end_s)
    rows = np.flatnonzero(begun < ended)
    has_ended = rows[np.isfinite(columns["prefill_s"][rows])]
    run_s = columns["finished"][has_ended] - columns["started"][has_ended]
    read_s = np.minimum(columns["prefill_s"][has_ended], run_s)
    total_s = scope.span_s * max(len(history.replicas), 1)
    if total_s <= 0 or not read_s.any():
        return None
    slots = columns["slot"][rows]
    busy_s = sum(_covered_s(begun[rows][slots == slot], ended[rows][slots == slot]) for slot in np.unique(slots))
    busy, prefill = min(busy_s / total_s, 1.0), float(read_s.sum() / run_s.sum())
    return EngineTime(busy * prefill, busy * (1.0 - prefill))


def _covered_s(begun: Floats, ended: Floats) -> float:
    """How long at least one of these spans lasted.

    >>> _covered_s(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0]))
    4.0
    """
    order = np.argsort(begun)
    begun, ended = begun[order], ended[order]
    covered_until = np.concatenate(([-np.inf], np.maximum.accumulate(ended)[:-1]))
    return float(np.maximum(ended - np.maximum(begun, covered_until), 0.0).sum())


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
    return StageBreakdown(
        stages.stages_of(history.unit, history.server), len(spans), spans.mean(axis=0), _about_p95(spans)
    )


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
