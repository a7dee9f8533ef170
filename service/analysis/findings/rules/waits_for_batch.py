"""Formation `late`: requests wait for a running batch to end although it had room for them."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, Finding
from service.analysis.observed.columns import Floats
from service.messages.text import seconds

LEAST_REQUESTS = 10
LEAST_WAIT_S = 0.1
MUCH = 0.4  # of the time to the first token


def find(facts: Facts) -> Finding | None:
    if not facts.is_late or len(facts.begun) < LEAST_REQUESTS or facts.full_share >= MOSTLY:
        return None
    columns = facts.history.requests.columns
    wait_s, first_s = _waits_s(facts), columns["first_token"][facts.begun] - columns["queued"][facts.begun]
    known = np.isfinite(wait_s) & np.isfinite(first_s)
    if np.count_nonzero(known) < LEAST_REQUESTS:
        return None
    wait_p50_s, first_p50_s = (float(np.median(values[known])) for values in (wait_s, first_s))
    if wait_p50_s < max(LEAST_WAIT_S, MUCH * first_p50_s):
        return None
    mean_size = facts.batches.mean_size
    result = "first token" if facts.generates else "result"
    return Finding(
        "waits_for_batch",
        "info",
        "Requests wait for the batch before theirs",
        evidence=f"Half of them waited {seconds(wait_p50_s)} or more for it to end, of {seconds(first_p50_s)} to their "
        f"{result}, while it held {mean_size:.1f} of {facts.cap} requests on average.",
        data={
            "wait_p50_s": wait_p50_s,
            "first_token_p50_s": first_p50_s,
            "mean_batch": mean_size,
            "max_batch_size": facts.cap,
        },
        advice=_advice(facts),
        control="formation" if facts.generates else None,
    )


def _waits_s(facts: Facts) -> Floats:
    """The time of each request in the queue before the engine was free; NaN where unknown."""
    columns, batches = facts.history.requests.columns, facts.batches
    batch, queued = columns["batch"][facts.begun], columns["queued"][facts.begun]
    free = dict(zip(batches.row.tolist(), batches.free.tolist(), strict=True))
    free_s = np.array([free.get(row, np.nan) for row in batch.tolist()])
    wait_s: Floats = np.maximum(free_s - queued, 0.0)
    return wait_s


def _advice(facts: Facts) -> str:
    """Empty for a function, which is called for whole batches: no request can join one that runs."""
    if not facts.generates:
        return ""
    each = ""
    if facts.cost is not None:
        each = f", of {seconds(facts.cost.step_s + facts.cost.row_s * facts.batches.mean_size)} each"
    return f"Set formation to continuous: they then join the running batch at the next step{each}."
