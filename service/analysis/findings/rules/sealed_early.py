"""Formation `early`: batches are sealed while the engine is busy, and can no longer grow."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, Finding, share
from service.analysis.findings.recent import AT_ONCE_S
from service.messages.text import counted, per_second, percent, seconds

LEAST_BATCHES = 3


def find(facts: Facts) -> Finding | None:
    batches = facts.batches
    if facts.settings.formation != "early" or len(batches) < LEAST_BATCHES or facts.full_share >= MOSTLY:
        return None
    waited = batches.sealed > AT_ONCE_S
    if share(waited) < 0.5:
        return None
    sealed_s = float(np.median(batches.sealed[waited]))
    previous = facts.previous_batches
    before = f"{previous.mean_size:.1f} → " if previous is not None and len(previous) else ""
    return Finding(
        "sealed_early",
        "warning",
        "Batches are sealed too early",
        evidence=f"{np.count_nonzero(waited)} of {counted(len(batches), 'batch')} were sealed while the engine was "
        f"busy and waited {seconds(sealed_s)} for it, unable to grow. Mean batch {before}{batches.mean_size:.1f} of "
        f"{facts.cap}.",
        data={
            "batches": len(batches),
            "sealed_while_busy": int(np.count_nonzero(waited)),
            "sealed_wait_p50_s": sealed_s,
            "mean_batch": batches.mean_size,
            "waiting": facts.waiting,
        },
        advice=f"Set formation to late: batches then form when the engine is free.{_headroom(facts)}",
        control="formation",
    )


def _headroom(facts: Facts) -> str:
    capacity, offered = facts.capacity_per_s(facts.cap), facts.offered_per_s
    if capacity is None or offered is None or offered >= capacity:
        return ""
    used = percent(offered / capacity)
    return f" At batch {facts.cap} {per_second(offered)} would be {used} of what the engine can do."
