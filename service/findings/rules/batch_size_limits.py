"""The cap: batches are full and more would come, or they no longer are."""

from __future__ import annotations

import numpy as np

from service.findings.cap import larger_cap
from service.findings.facts import MOSTLY, Facts, share
from service.findings.finding import Finding
from service.findings.words import counted


def find(facts: Facts) -> Finding | None:
    if not facts.has_batches:
        return None
    full, batches = int(np.count_nonzero(facts.batches.released("full"))), len(facts.batches)
    data = {"full": full, "batches": batches, "waiting": facts.waiting, "max_batch_size": facts.settings.max_batch_size}
    if facts.full_share >= MOSTLY and facts.waiting:
        larger = larger_cap(facts)
        waits = "waits" if facts.waiting == 1 else "wait"
        return Finding(
            rule="batch_size_limits",
            severity="warning",
            title="max_batch_size limits",
            evidence=f"{full} of the last {batches} batches were full, and {counted(facts.waiting, 'request')} "
            f"{waits}.",
            data=data,
            advice=larger.advice,
            control=larger.control,
        )
    previous = facts.previous_batches
    if full == 0 and previous is not None and share(previous.released("full")) >= MOSTLY:
        return Finding(
            rule="batch_size_no_longer_limits",
            severity="check",
            title="max_batch_size no longer limits",
            evidence=f"None of the last {batches} batches reached the cap of {facts.settings.max_batch_size}.",
            data=data,
        )
    return None
