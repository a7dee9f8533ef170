"""The memory of a replica's process grows steadily."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import Facts, Finding
from service.messages.text import percent, seconds

REACH_S = 300.0
LEAST_S = 60.0
LEAST_BYTES = 100 * 2**20
LEAST_SHARE = 0.05
MIB = 2**20


def find(facts: Facts) -> Finding | None:
    slots = np.flatnonzero(facts.queues.is_present).tolist()
    found = [finding for slot in slots if (finding := _of_replica(facts, slot)) is not None]
    return max(found, key=lambda finding: finding.data["grown_mib"], default=None)


def _of_replica(facts: Facts, slot: int) -> Finding | None:
    reported = facts.history.statuses.replicas
    mine = (reported["slot"] == slot) & (reported["at"] > facts.at_s - REACH_S) & (reported["at"] <= facts.at_s)
    mine &= reported["pid"] == reported["pid"][mine][-1]
    at_s, memory = reported["at"][mine], reported["memory"][mine]
    span_s = float(at_s[-1] - at_s[0])
    begin, *middle, end = (float(np.median(part)) for part in np.array_split(memory, 5)) if len(memory) > 5 else (0, 0)
    grown = end - begin
    if span_s < LEAST_S or grown < max(LEAST_BYTES, LEAST_SHARE * begin):
        return None
    if np.diff([begin, *middle, end]).min() < 0.1 * grown:  # steadily, not once
        return None
    return Finding(
        "memory_grows",
        "warning",
        "Memory grows",
        evidence=f"{facts.history.slots.name_of(slot)} grew from {begin / MIB:.0f} to {end / MIB:.0f} MiB "
        f"({percent(grown / begin)}) in {seconds(span_s)}, without a pause.",
        data={"begin_mib": begin / MIB, "end_mib": end / MIB, "grown_mib": grown / MIB, "span_s": span_s},
        advice="Watch whether it stops. Shorter prompts, fewer tokens and a smaller max_batch_size need less.",
        control="max_batch_size",
    )
