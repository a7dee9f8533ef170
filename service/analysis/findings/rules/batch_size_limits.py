"""The cap: batches are full while requests wait, or no longer are."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, Finding, advise_larger_cap
from service.messages.text import counted, percent


def find(facts: Facts) -> Finding | None:
    if not facts.has_batches:
        return None
    full, batches = int(np.count_nonzero(facts.batches.is_full)), len(facts.batches)
    data = {"full": full, "batches": batches, "waiting": facts.waiting, "max_batch_size": facts.cap}
    if facts.full_share >= MOSTLY and facts.waiting:
        advice, control = advise_larger_cap(facts)
        taken = f"{full} of the last {batches} batches were full"
        if facts.is_continuous:
            taken = f"All {facts.cap} places were taken {percent(facts.full_share)} of the time"
        waits = f"{counted(facts.waiting, 'request')} {'waits' if facts.waiting == 1 else 'wait'}"
        title, evidence = "max_batch_size limits", f"{taken}, and {waits}."
        return Finding(
            "batch_size_limits", "warning", title, evidence=evidence, data=data, advice=advice, control=control
        )
    previous = facts.previous_batches
    if full == 0 and previous is not None and previous.share(previous.is_full) >= MOSTLY:
        evidence = f"None of the last {batches} batches reached the cap of {facts.cap}."
        if facts.is_continuous:
            evidence = f"Never more than {facts.batches.size.max()} of {facts.cap} places were taken."
        title = "max_batch_size no longer limits"
        return Finding("batch_size_no_longer_limits", "check", title, evidence=evidence, data=data)
    return None
