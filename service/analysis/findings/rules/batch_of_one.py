"""The engine is busy, and still nearly every request runs alone."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, Finding
from service.messages.text import per_second, percent

BUSY = 0.8


def find(facts: Facts) -> Finding | None:
    alone = facts.batches.size == 1
    if not facts.has_batches or facts.batches.share(alone) < MOSTLY or facts.busy_share < BUSY:
        return None
    if facts.is_continuous and facts.cap > 1:
        return None  # waiting requests are about to join
    waiting = float(facts.queues.total.mean())
    if waiting < 1:
        return None
    of_one = int(np.count_nonzero(alone))
    few = f"{of_one} of the last {len(alone)} batches held a single request"
    return Finding(
        "batch_of_one",
        "warning",
        "Requests run one by one under load",
        evidence=f"{'One request ran at a time' if facts.is_continuous else few}, while the engine was busy "
        f"{percent(facts.busy_share)} of the time and {waiting:.1f} requests waited.",
        data={
            "batches": len(alone),
            "of_one": of_one,
            "busy_share": facts.busy_share,
            "mean_waiting": waiting,
            "max_batch_size": facts.cap,
        },
        advice=_advice(facts),
        control="max_batch_size" if facts.cap == 1 else "batch_wait_timeout_s",
    )


def _advice(facts: Facts) -> str:
    if facts.cap > 1:
        return "Raise batch_wait_timeout_s so that more requests come together, or use fewer replicas."
    alone, eight = facts.capacity_per_s(1), facts.capacity_per_s(8)
    gain = f": batches of 8 would do {per_second(eight)} instead of {alone:.1f}" if alone and eight else ""
    return f"Raise max_batch_size{gain}."
