"""The memory of a replica's process grows steadily."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import Facts
from service.analysis.findings.finding import Finding
from service.messages.text import percent, seconds

REACH_S = 300.0
LEAST_S = 60.0
LEAST_BYTES = 100 * 2**20
LEAST_SHARE = 0.05
MIB = 2**20


def find(facts: Facts) -> Finding | None:
    return max(
        (found for slot in _slots(facts) if (found := _of_replica(facts, slot)) is not None),
        key=lambda found: found.data["grown_mib"],
        default=None,
    )


def _slots(facts: Facts) -> list[int]:
    return [int(slot) for slot in np.flatnonzero(facts.queues.is_present)]


def _of_replica(facts: Facts, slot: int) -> Finding | None:
    said = facts.history.statuses.replicas
    mine = (said["slot"] == slot) & (said["at"] > facts.at_s - REACH_S) & (said["at"] <= facts.at_s)
    mine &= said["pid"] == said["pid"][mine][-1]
    at_s, memory = said["at"][mine], said["memory"][mine]
    span_s = float(at_s[-1] - at_s[0])
    begin, *middle, end = (float(np.median(part)) for part in np.array_split(memory, 5)) if len(memory) > 5 else (0, 0)
    grown = end - begin
    if span_s < LEAST_S or grown < max(LEAST_BYTES, LEAST_SHARE * begin):
        return None
    if np.diff([begin, *middle, end]).min() < 0.1 * grown:  # steadily, not once
        return None
    return Finding(
        rule="memory_grows",
        severity="warning",
        title="Memory grows",
        evidence=f"{facts.history.slots.name_of(slot)} grew from {begin / MIB:.0f} to {end / MIB:.0f} MiB "
        f"({percent(grown / begin)}) in {seconds(span_s)}, without a pause.",
        data={"begin_mib": begin / MIB, "end_mib": end / MIB, "grown_mib": grown / MIB, "span_s": span_s},
        advice="Watch whether it stops. Shorter prompts, fewer tokens and a smaller max_batch_size need less.",
        control="max_batch_size",
    )
