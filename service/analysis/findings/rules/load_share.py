"""The offered load as a share of the engine's capacity."""

from __future__ import annotations

from service.analysis.findings.facts import Facts, Finding
from service.messages.text import percent


def find(facts: Facts) -> Finding | None:
    capacity, offered = facts.capacity_per_s(facts.cap), facts.offered_per_s
    if capacity is None or not offered or facts.is_bounded_load or offered > capacity:
        return None
    full = f"with {facts.cap} running" if facts.is_continuous else f"at batch {facts.cap}"
    return Finding(
        "load_share",
        "info",
        f"Load is {percent(offered / capacity)} of capacity",
        evidence=f"{offered:.1f} of {capacity:.1f} requests/s {full}.",
        data={"offered_per_s": offered, "capacity_per_s": capacity, "max_batch_size": facts.cap},
    )
