"""More requests arrive than the engine can answer, even with full batches."""

from __future__ import annotations

from service.analysis.findings.facts import Facts, larger_cap
from service.analysis.findings.finding import Finding
from service.analysis.findings.rules.queue_grows import growth
from service.messages.text import per_second, percent

MARGIN = 1.02


def find(facts: Facts) -> Finding | None:
    cap = facts.settings.max_batch_size
    capacity, offered = facts.capacity_per_s(cap), facts.offered_per_s
    if capacity is None or offered is None or facts.is_bounded_load or offered < MARGIN * capacity:
        return None
    if facts.declared_per_s is None and growth(facts) is None:
        return None  # what was merely counted may be chance as long as no queue bears it out
    excess = offered / capacity - 1
    larger = larger_cap(facts)
    who = f"with all {cap} places taken the engine" if facts.is_continuous else f"full batches of {cap}"
    return Finding(
        rule="saturated",
        severity="warning",
        title="The engine is saturated",
        evidence=f"{per_second(offered)} arrive, {who} can answer {capacity:.1f}: {percent(excess)} too many.",
        data={"offered_per_s": offered, "capacity_per_s": capacity, "excess": excess, "max_batch_size": cap},
        advice=larger.advice,
        control=larger.control,
    )
