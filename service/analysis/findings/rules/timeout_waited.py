"""Every batch waits its whole timeout while the engine is free; the advice depends on what that gains."""

from __future__ import annotations

from service.analysis.findings.facts import MOSTLY, Facts, Finding, share
from service.analysis.findings.rules.timeout_too_long import WaitEffect, wait_effect
from service.messages.text import counted, seconds

HARDLY = 1.1


def find(facts: Facts) -> Finding | None:
    batches, timeout_s = facts.batches, facts.timeout_s
    if not facts.has_batches or not timeout_s or not facts.is_late:
        return None
    if share(batches.held >= 0.9 * timeout_s) < MOSTLY:
        return None
    effect = wait_effect(facts)
    return Finding(
        "timeout_waited",
        "info",
        "Batches wait their whole timeout",
        evidence=f"The engine was free, yet the last {counted(len(batches), 'batch')} waited {timeout_s:.3f} s. They "
        f"grew from {effect.size_before:.1f} to {batches.mean_size:.1f} of {facts.cap} requests.",
        data={
            "batches": len(batches),
            "batch_wait_timeout_s": timeout_s,
            "size_before": effect.size_before,
            "mean_batch": batches.mean_size,
            "largest_batch": int(batches.size.max()),
        },
        advice=_advice(facts, effect),
        control="batch_wait_timeout_s",
    )


def _advice(facts: Facts, effect: WaitEffect) -> str:
    sizes = facts.batches.size
    if sizes.mean() < HARDLY * effect.size_before:
        return "Lower batch_wait_timeout_s: batches hardly grow while they wait."
    if sizes.min() == sizes.max():
        return (
            f"If never more than {sizes.max()} come together, set max_batch_size to {sizes.max()}: batches then go as "
            "soon as they are full."
        )
    if effect.gained_s is not None and effect.gained_s > 0:
        return f"It pays: run at once, requests would have been answered {seconds(effect.gained_s)} later."
    return "Lower batch_wait_timeout_s and watch whether latency falls."
