"""More requests arrive than the engine can answer, even with full batches."""

from __future__ import annotations

from service.analysis.findings.facts import Facts, Finding, advise_larger_cap
from service.analysis.findings.rules.queue_grows import growth
from service.messages.text import per_second, percent

MARGIN = 1.02


def find(facts: Facts) -> Finding | None:
    capacity, offered = facts.capacity_per_s(facts.cap), facts.offered_per_s
    if capacity is None or offered is None or facts.is_bounded_load or offered < MARGIN * capacity:
        return None
    if facts.declared_per_s is None and growth(facts) is None:
        return None  # a rate that was merely counted may be chance as long as no queue grows
    excess = offered / capacity - 1
    advice, control = advise_larger_cap(facts)
    full = f"with all {facts.cap} places taken the engine" if facts.is_continuous else f"full batches of {facts.cap}"
    return Finding(
        "saturated",
        "warning",
        "The engine is saturated",
        evidence=f"{per_second(offered)} arrive, {full} can answer {capacity:.1f}: {percent(excess)} too many.",
        data={"offered_per_s": offered, "capacity_per_s": capacity, "excess": excess, "max_batch_size": facts.cap},
        advice=advice,
        control=control,
    )
