"""A free engine holds batches back because they may not leave small, or only on a tick."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import Facts
from service.analysis.findings.finding import Finding
from service.analysis.findings.recent import RecentBatches
from service.analysis.findings.rules.timeout_too_long import LEAST_LOSS_S, LEAST_LOSS_SHARE
from service.analysis.observed.columns import Floats
from service.messages.settings import LONGEST_WAIT_S
from service.messages.text import counted, seconds

LEAST_BATCHES = 2  # of half a minute: one that waits to be full may take a third of that


def find(facts: Facts) -> Finding | None:
    batches, settings = facts.earlier_batches, facts.settings
    if (settings.allow_small_batch and not settings.stride_s) or len(batches) < LEAST_BATCHES:
        return None
    held_s = float(_held_s(batches).mean())
    if not len(facts.latencies_s) or held_s < max(LEAST_LOSS_S, LEAST_LOSS_SHARE * float(np.median(facts.latencies_s))):
        return None
    small = int(np.count_nonzero(batches.size < batches.cap))
    data = {"batches": len(batches), "small": small, "held_s": held_s, "stride_s": settings.stride_s}
    last = f"The last {counted(len(batches), 'batch')} could have run {seconds(held_s)} earlier, with fewer requests"
    is_full_wanted = not settings.allow_small_batch
    if is_full_wanted:
        why = f"; {small} of them were not full after {LONGEST_WAIT_S:g} s." if small else "."
    else:
        why = f": they leave every {settings.stride_s:g} s at most."
    return Finding(
        rule="held_back",
        severity="warning",
        title="Batches wait to be full" if is_full_wanted else "Batches wait for their tick",
        evidence=f"{last}{why}",
        data=data,
        advice="Switch allow_small_batch on, or lower max_batch_size to what comes together."
        if is_full_wanted
        else "Set stride_s to 0, and batches leave as soon as they may.",
        control="allow_small_batch" if is_full_wanted else "stride_s",
    )


def _held_s(batches: RecentBatches) -> Floats:
    """How long each could have run and did not."""
    return np.maximum(batches.started - batches.ready, 0.0)
