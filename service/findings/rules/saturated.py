"""More requests arrive than the engine can answer, even with full batches."""

from __future__ import annotations

from service.findings.facts import Facts
from service.findings.finding import Finding
from service.findings.rules.queue_grows import growth
from service.findings.words import per_second, percent
from service.messages import BOUNDS

MARGIN = 1.02
WORTH_IT = 1.05


def find(facts: Facts) -> Finding | None:
    cap = facts.settings.max_batch_size
    capacity, offered = facts.capacity_per_s(cap), facts.offered_per_s
    if capacity is None or offered is None or facts.is_bounded_load or offered < MARGIN * capacity:
        return None
    if facts.declared_per_s is None and growth(facts) is None:
        return None  # what was merely counted may be chance as long as no queue bears it out
    excess = offered / capacity - 1
    is_worth_raising, advice = _advice(facts, capacity)
    return Finding(
        rule="saturated",
        severity="warning",
        title="The engine is saturated",
        evidence=f"{per_second(offered)} arrive, full batches of {cap} can answer {capacity:.1f}: {percent(excess)} "
        "too many.",
        data={"offered_per_s": offered, "capacity_per_s": capacity, "excess": excess, "max_batch_size": cap},
        advice=advice,
        control="max_batch_size" if is_worth_raising else None,
    )


def _advice(facts: Facts, capacity: float) -> tuple[bool, str]:
    """Whether a larger cap would help, as far as is known, and the sentence."""
    cap = facts.settings.max_batch_size
    larger = min(2 * cap, int(BOUNDS["max_batch_size"].high))
    reached = facts.capacity_per_s(larger)
    if reached is None:
        return True, "Raise max_batch_size and watch whether throughput grows; else send less or add replicas."
    if reached > WORTH_IT * capacity:
        return True, f"Raise max_batch_size: batches of {larger} would answer {per_second(reached)}."
    return False, "Send less, add replicas or take a smaller model: a larger batch would gain little."
