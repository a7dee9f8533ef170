"""From what was simulated to figures, counted as they are where they are measured."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from service.analysis.observed.batches import mean_size
from service.analysis.predict.simulated import Run

GROWTH: Final = 0.05  # a queue that keeps this share of what arrives grows without bound
REFUSALS: Final = 0.01


class SimulatedFigures(NamedTuple):
    """See `Prediction`; 0 where there was nothing to count."""

    p50_s: float
    p95_s: float
    requests_per_s: float
    tokens_per_s: float
    mean_batch: float
    refused_share: float


def figures_of(run: Run, begin_s: float, end_s: float) -> SimulatedFigures:
    """Latencies of those who asked within that time, and what was answered and started within it."""
    asked = [request for request in run.requests if begin_s <= request.arrival.intended_s < end_s]
    served = [r.answered_s - r.arrival.intended_s for r in asked if not r.refused and r.answered_s is not None]
    answered = [
        r.arrival.tokens
        for r in run.requests
        if not r.refused and r.answered_s is not None and begin_s <= r.answered_s < end_s
    ]
    ran = [batch for batch in run.batches if begin_s <= batch.started_s < end_s]
    run_s = np.array([batch.finished_s - batch.started_s for batch in ran])
    mean_batch = mean_size(np.array([len(b.members) for b in ran]), run_s, np.array([b.is_open for b in ran], np.bool_))
    p50_s, p95_s = np.percentile(served, (50.0, 95.0)) if served else (0.0, 0.0)
    return SimulatedFigures(
        p50_s=float(p50_s),
        p95_s=float(p95_s),
        requests_per_s=len(answered) / (end_s - begin_s),
        tokens_per_s=sum(answered) / (end_s - begin_s),
        mean_batch=mean_batch or 0.0,
        refused_share=sum(request.refused for request in asked) / len(asked) if asked else 0.0,
    )


def is_growing(run: Run, until_s: float) -> bool:
    """Whether the last two thirds of the arrivals left more behind than they found, or many were refused."""
    intended_s = np.array([request.arrival.intended_s for request in run.requests])
    ends_s = np.array([np.inf if r.answered_s is None else r.answered_s for r in run.requests])
    refused = np.array([request.refused for request in run.requests])

    def present(at_s: float) -> int:
        return int(np.count_nonzero((intended_s <= at_s) & (ends_s > at_s)))

    since_s = until_s / 3
    arrived = np.count_nonzero(intended_s > since_s)
    grown = present(until_s) - present(since_s)
    return bool(grown > GROWTH * arrived or refused.mean() > REFUSALS) if arrived else False
