"""Every batch waits its whole timeout while the engine is free, and what that buys."""

from __future__ import annotations

from service.analysis.findings.facts import MOSTLY, Facts, share
from service.analysis.findings.finding import Finding
from service.analysis.findings.rules.timeout_too_long import Trade, trade
from service.messages.text import counted, seconds

HARDLY = 1.1


def find(facts: Facts) -> Finding | None:
    batches, timeout_s = facts.batches, facts.timeout_s
    if not facts.has_batches or not timeout_s or facts.settings.formation != "late":
        return None
    if share(batches.held >= 0.9 * timeout_s) < MOSTLY:
        return None
    bought = trade(facts)
    return Finding(
        rule="timeout_waited",
        severity="info",
        title="Batches wait their whole timeout",
        evidence=f"The engine was free, yet the last {counted(len(batches), 'batch')} waited {timeout_s:.3f} s. They "
        f"grew from {bought.size_before:.1f} to {batches.mean_size:.1f} of {facts.settings.max_batch_size} requests.",
        data={
            "batches": len(batches),
            "batch_wait_timeout_s": timeout_s,
            "size_before": bought.size_before,
            "mean_batch": batches.mean_size,
            "largest_batch": int(batches.size.max()),
        },
        advice=_advice(facts, bought),
        control="batch_wait_timeout_s",
    )


def _advice(facts: Facts, bought: Trade) -> str:
    sizes = facts.batches.size
    if sizes.mean() < HARDLY * bought.size_before:
        return "Lower batch_wait_timeout_s: batches hardly grow while they wait."
    if sizes.min() == sizes.max():
        return (
            f"If never more than {sizes.max()} come together, set max_batch_size to {sizes.max()}: batches then go as "
            "soon as they are full."
        )
    if bought.gained_s is not None and bought.gained_s > 0:
        return f"It pays: run at once, requests would have been answered {seconds(bought.gained_s)} later."
    return "Lower batch_wait_timeout_s and watch whether latency falls."
