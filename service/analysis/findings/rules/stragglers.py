"""One long member keeps the places of members that ended before it."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import WORTH_IT, Facts, Finding
from service.messages.text import counted, per_second, percent, seconds

LEAST_BATCHES = 2
MUCH = 0.25


def find(facts: Facts) -> Finding | None:
    batches = facts.earlier_batches
    known = (batches.steps > 0) & (batches.size > 1)
    count = int(np.count_nonzero(known))
    if count < LEAST_BATCHES:
        return None
    places = batches.steps[known] * batches.size[known]
    vacant = float(batches.vacant[known].sum() / places.sum())
    if vacant < MUCH:
        return None
    lost_s = float((batches.finished - batches.started)[known].sum() * vacant)
    waiting = float(facts.queues.total.mean())
    queued = f" while {waiting:.1f} requests waited" if waiting >= 1 else ""
    return Finding(
        "stragglers",
        "warning" if waiting >= 1 else "info",
        "Stragglers hold their batches",
        evidence=f"In the last {counted(count, 'batch')} {percent(vacant)} of the places stood empty because one "
        f"member ran on{queued}: as much as {seconds(lost_s)} of the engine.",
        data={"batches": count, "vacant_share": vacant, "lost_s": lost_s, "mean_waiting": waiting},
        advice=f"Set formation to continuous: others then take these places{_gain(facts)}. Else ask for completions of "
        "more equal length (max_tokens).",
        control="formation",
    )


def _gain(facts: Facts) -> str:
    now_per_s = facts.capacity_per_s(facts.cap)
    if facts.cost is None or now_per_s is None:
        return ""
    then_per_s = facts.cost.under("continuous").capacity(facts.cap, facts.replicas).requests_per_s
    if then_per_s <= WORTH_IT * now_per_s:
        return ""
    return f", and the engine could answer {per_second(then_per_s)} instead of {now_per_s:.1f}"
