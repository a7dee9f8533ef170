"""Ray lets a replica hold fewer requests than a batch may have, so no batch can be full."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, share
from service.analysis.findings.finding import Finding
from service.analysis.observed.statuses import UNKNOWN
from service.messages.text import counted, seconds

TELEMETRY_READERS = 2  # each also is a request that the replica holds


def find(facts: Facts) -> Finding | None:
    limit, cap = _limit(facts), facts.settings.max_batch_size
    batches = facts.batches
    if limit is None or limit >= cap or not facts.has_batches:
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
        rule="ongoing_capped",
        severity="warning",
        title="max_ongoing_requests caps the batches",
        evidence=f"Ray lets a replica hold {limit} requests at once, readers of telemetry included: {most} {largest}, "
        f"although max_batch_size is {cap}{also}.",
        data={
            "max_ongoing_requests": limit,
            "max_batch_size": cap,
            "largest_batch": largest,
            "mean_held_s": float(batches.held.mean()),
        },
        advice=f"Raise max_ongoing_requests to {facts.settings.max_ongoing_requests} or more, which holds a full "
        "batch and a full queue.",
        control="max_ongoing_requests",
    )


def _limit(facts: Facts) -> int | None:
    """The lowest limit that a replica told of last."""
    said = facts.history.statuses.replicas
    known = (said["at"] <= facts.at_s) & (said["max_ongoing"] != UNKNOWN)
    return int(np.min(said["max_ongoing"][known][-facts.replicas :])) if known.any() else None
