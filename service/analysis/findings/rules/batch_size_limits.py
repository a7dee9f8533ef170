"""The cap: batches are full and more would come, or they no longer are."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, larger_cap
from service.analysis.findings.finding import Finding
from service.messages.text import counted, percent


def find(facts: Facts) -> Finding | None:
    if not facts.has_batches:
        return None
    full, batches, cap = int(np.count_nonzero(facts.batches.is_full)), len(facts.batches), facts.settings.max_batch_size
    data = {"full": full, "batches": batches, "waiting": facts.waiting, "max_batch_size": cap}
    if facts.full_share >= MOSTLY and facts.waiting:
        larger = larger_cap(facts)
        waits = "waits" if facts.waiting == 1 else "wait"
        taken = f"{full} of the last {batches} batches were full"
        if facts.is_continuous:
            taken = f"All {cap} places were taken {percent(facts.full_share)} of the time"
        return Finding(
            rule="batch_size_limits",
            severity="warning",
            title="max_batch_size limits",
            evidence=f"{taken}, and {counted(facts.waiting, 'request')} {waits}.",
            data=data,
            advice=larger.advice,
            control=larger.control,
        )
    previous = facts.previous_batches
    if full == 0 and previous is not None and previous.share(previous.is_full) >= MOSTLY:
        most = f"None of the last {batches} batches reached the cap of {cap}."
        if facts.is_continuous:
            most = f"Never more than {facts.batches.size.max()} of {cap} places were taken."
        return Finding(
            rule="batch_size_no_longer_limits",
            severity="check",
            title="max_batch_size no longer limits",
            evidence=most,
            data=data,
        )
    return None
