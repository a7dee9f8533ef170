"""One long member keeps the places of those that ended before it."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import WORTH_IT, Facts
from service.analysis.findings.finding import Finding
from service.messages.text import counted, per_second, percent, seconds

LEAST_BATCHES = 2
MUCH = 0.25


def find(facts: Facts) -> Finding | None:
    batches = facts.earlier_batches
    told = (batches.steps > 0) & (batches.size > 1)
    if np.count_nonzero(told) < LEAST_BATCHES:
        return None
    places = batches.steps[told] * batches.size[told]
    vacant = float(batches.vacant[told].sum() / places.sum())
    if vacant < MUCH:
        return None
    lost_s = float((batches.finished - batches.started)[told].sum() * vacant)
    waiting = float(facts.queues.total.mean())
    queued = f" while {waiting:.1f} requests waited" if waiting >= 1 else ""
    return Finding(
        rule="stragglers",
        severity="warning" if waiting >= 1 else "info",
        title="Stragglers hold their batches",
        evidence=f"In the last {counted(int(np.count_nonzero(told)), 'batch')} {percent(vacant)} of the places stood "
        f"empty because one member ran on{queued}: as much as {seconds(lost_s)} of the engine.",
        data={
            "batches": int(np.count_nonzero(told)),
            "vacant_share": vacant,
            "lost_s": lost_s,
            "mean_waiting": waiting,
        },
        advice=f"Set formation to continuous: others then take these places{_gain(facts)}. Else ask for completions of "
        "more equal length (max_tokens).",
        control="formation",
    )


def _gain(facts: Facts) -> str:
    cap = facts.settings.max_batch_size
    now_per_s = facts.capacity_per_s(cap)
    if facts.cost is None or now_per_s is None:
        return ""
    then_per_s = facts.cost.under("continuous").capacity(cap, facts.replicas).requests_per_s
    if then_per_s <= WORTH_IT * now_per_s:
        return ""
    return f", and the engine could answer {per_second(then_per_s)} instead of {now_per_s:.1f}"
