"""How much of what the engine can do is asked of it."""

from __future__ import annotations

from service.analysis.findings.facts import Facts
from service.analysis.findings.finding import Finding
from service.messages.text import percent


def find(facts: Facts) -> Finding | None:
    cap = facts.settings.max_batch_size
    capacity, offered = facts.capacity_per_s(cap), facts.offered_per_s
    if capacity is None or not offered or facts.is_bounded_load or offered > capacity:
        return None
    return Finding(
        rule="load_share",
        severity="info",
        title=f"Load is {percent(offered / capacity)} of capacity",
        evidence=f"{offered:.1f} of {capacity:.1f} requests/s {'with' if facts.is_continuous else 'at batch'} {cap}"
        f"{' running' if facts.is_continuous else ''}.",
        data={"offered_per_s": offered, "capacity_per_s": capacity, "max_batch_size": cap},
    )
