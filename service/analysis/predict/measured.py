"""What was measured over a span, counted as the simulation counts, so that both can stand side by side."""

from __future__ import annotations

import msgspec
import numpy as np

from service.analysis.observed.batches import CONTINUOUS, mean_size
from service.analysis.observed.history import History
from service.analysis.predict.requests import observed_requests


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Latency of those who asked within the span and have their answer, and what was answered and run within it."""

    p50_s: float | None
    p95_s: float | None
    requests_per_s: float
    tokens_per_s: float
    mean_batch: float | None
    requests: int


def measured(history: History, start_s: float, end_s: float) -> Measured:
    """The figures of a span of time."""
    asked = observed_requests(history, start_s, end_s)
    latencies_s = (asked.answered_s - asked.intended_s)[np.isfinite(asked.answered_s)]
    everybody = observed_requests(history, -np.inf, end_s)
    is_answered = (everybody.answered_s >= start_s) & (everybody.answered_s < end_s)
    batches = history.batches.columns
    ran = (batches["started"] >= start_s) & (batches["started"] < end_s)
    run_s = np.minimum(batches["finished"][ran], end_s) - batches["started"][ran]
    p50_s, p95_s = np.percentile(latencies_s, (50.0, 95.0)).tolist() if len(latencies_s) else (None, None)
    return Measured(
        p50_s=p50_s,
        p95_s=p95_s,
        requests_per_s=float(np.count_nonzero(is_answered)) / (end_s - start_s),
        tokens_per_s=float(everybody.tokens[is_answered].sum()) / (end_s - start_s),
        mean_batch=mean_size(batches["size"][ran], run_s, batches["formation"][ran] == CONTINUOUS),
        requests=len(latencies_s),
    )
