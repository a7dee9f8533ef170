"""Ray lets a replica hold fewer requests than a batch may have, so no batch can be full."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, Finding, share
from service.analysis.observed.statuses import UNKNOWN
from service.messages.text import counted, seconds

TELEMETRY_READERS = 2  # each is a request that the replica holds


def find(facts: Facts) -> Finding | None:
    limit, batches = _limit(facts), facts.batches
    if limit is None or limit >= facts.cap or not facts.has_batches:
        return None
    if batches.share(batches.size >= limit - TELEMETRY_READERS) < 0.5:
        return None
    largest = int(batches.size.max())
    timeout_s = facts.timeout_s
    waits_all = timeout_s > 0 and share(batches.held >= 0.9 * timeout_s) >= MOSTLY
    also = f", and each waited its whole {seconds(timeout_s)} for more" if waits_all else ""
    most = f"of the last {counted(len(batches), 'batch')} none had more than"
    if facts.is_continuous:
        most = "there never ran more than"
    return Finding(
        "ongoing_capped",
        "warning",
        "max_ongoing_requests caps the batches",
        evidence=f"Ray lets a replica hold {limit} requests at once, readers of telemetry included: {most} {largest}, "
        f"although max_batch_size is {facts.cap}{also}.",
        data={
            "max_ongoing_requests": limit,
            "max_batch_size": facts.cap,
            "largest_batch": largest,
            "mean_held_s": float(batches.held.mean()),
        },
        advice=f"Raise max_ongoing_requests to {facts.settings.max_ongoing_requests} or more, which holds a full "
        "batch and a full queue.",
        control="max_ongoing_requests",
    )


def _limit(facts: Facts) -> int | None:
    """The lowest of the limits that the replicas reported last."""
    reported = facts.history.statuses.replicas
    known = (reported["at"] <= facts.at_s) & (reported["max_ongoing"] != UNKNOWN)
    return int(np.min(reported["max_ongoing"][known][-facts.replicas :])) if known.any() else None
