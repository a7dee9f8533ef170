"""A free engine holds batches back because they may not leave small, or only on a tick."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import Facts, Finding
from service.messages.settings import LONGEST_WAIT_S
from service.messages.text import counted, seconds

LEAST_BATCHES = 2  # of half a minute: a batch that waits to be full may take a third of that


def find(facts: Facts) -> Finding | None:
    batches, settings = facts.earlier_batches, facts.settings
    if (settings.allow_small_batch and not settings.stride_s) or len(batches) < LEAST_BATCHES:
        return None
    held_s = float(np.maximum(batches.started - batches.ready, 0.0).mean())
    if not facts.is_felt(held_s):
        return None
    small = int(np.count_nonzero(batches.size < batches.cap))
    if settings.allow_small_batch:
        control, title = "stride_s", "Batches wait for their tick"
        why = f": they leave every {settings.stride_s:g} s at most."
        advice = "Set stride_s to 0, and batches leave as soon as they may."
    else:
        control, title = "allow_small_batch", "Batches wait to be full"
        why = f"; {small} of them were not full after {LONGEST_WAIT_S:g} s." if small else "."
        advice = "Switch allow_small_batch on, or lower max_batch_size to the number of requests that come together."
    return Finding(
        "held_back",
        "warning",
        title,
        evidence=f"The last {counted(len(batches), 'batch')} could have run {seconds(held_s)} earlier, with fewer "
        f"requests{why}",
        data={"batches": len(batches), "small": small, "held_s": held_s, "stride_s": settings.stride_s},
        advice=advice,
        control=control,
    )
