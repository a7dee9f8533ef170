"""Rules on the sizes of batches, and on what limits them: settings and memory."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, Finding, advise_larger_cap, share
from service.analysis.observed.statuses import UNKNOWN
from service.messages.text import counted, per_second, percent, seconds

BUSY = 0.8
TELEMETRY_READERS = 2  # each is a request that the replica holds
GROWTH_REACH_S = 300.0
LEAST_GROWTH_S = 60.0
LEAST_GROWTH_BYTES = 100 * 2**20
LEAST_GROWTH_SHARE = 0.05
MIB = 2**20


def batch_of_one(facts: Facts) -> Finding | None:
    """The engine is busy, and still nearly every request runs alone."""
    alone = facts.batches.size == 1
    if not facts.has_batches or facts.batches.share(alone) < MOSTLY or facts.busy_share < BUSY:
        return None
    if facts.is_continuous and facts.cap > 1:
        return None  # waiting requests are about to join
    waiting = float(facts.queues.total.mean())
    if waiting < 1:
        return None
    of_one = int(np.count_nonzero(alone))
    few = f"{of_one} of the last {len(alone)} batches held a single request"
    advice = "Raise batch_wait_timeout_s so that more requests come together, or use fewer replicas."
    if facts.cap == 1:
        alone_per_s, eight_per_s = facts.capacity_per_s(1), facts.capacity_per_s(8)
        advice = "Raise max_batch_size."
        if alone_per_s and eight_per_s:
            advice = (
                f"Raise max_batch_size: batches of 8 would do {per_second(eight_per_s)} instead of {alone_per_s:.1f}."
            )
    return Finding(
        "batch_of_one",
        "warning",
        "Requests run one by one under load",
        evidence=f"{'One request ran at a time' if facts.is_continuous else few}, while the engine was busy "
        f"{percent(facts.busy_share)} of the time and {waiting:.1f} requests waited.",
        data={
            "batches": len(alone),
            "of_one": of_one,
            "busy_share": facts.busy_share,
            "mean_waiting": waiting,
            "max_batch_size": facts.cap,
        },
        advice=advice,
        control="max_batch_size" if facts.cap == 1 else "batch_wait_timeout_s",
    )


def batch_size_limits(facts: Facts) -> Finding | None:
    """The cap: batches are full while requests wait, or no longer are."""
    if not facts.has_batches:
        return None
    full, batches = int(np.count_nonzero(facts.batches.is_full)), len(facts.batches)
    data = {"full": full, "batches": batches, "waiting": facts.waiting, "max_batch_size": facts.cap}
    if facts.full_share >= MOSTLY and facts.waiting:
        advice, control = advise_larger_cap(facts)
        taken = f"{full} of the last {batches} batches were full"
        if facts.is_continuous:
            taken = f"All {facts.cap} places were taken {percent(facts.full_share)} of the time"
        waits = f"{counted(facts.waiting, 'request')} {'waits' if facts.waiting == 1 else 'wait'}"
        title, evidence = "max_batch_size limits", f"{taken}, and {waits}."
        return Finding(
            "batch_size_limits", "warning", title, evidence=evidence, data=data, advice=advice, control=control
        )
    previous = facts.previous_batches
    if full == 0 and previous is not None and previous.share(previous.is_full) >= MOSTLY:
        evidence = f"None of the last {batches} batches reached the cap of {facts.cap}."
        if facts.is_continuous:
            evidence = f"Never more than {facts.batches.size.max()} of {facts.cap} places were taken."
        title = "max_batch_size no longer limits"
        return Finding("batch_size_no_longer_limits", "check", title, evidence=evidence, data=data)
    return None


def ongoing_capped(facts: Facts) -> Finding | None:
    """Ray lets a replica hold fewer requests than a batch may have, so no batch can be full."""
    reported = facts.history.statuses.replicas
    limits = reported["max_ongoing"][(reported["at"] <= facts.at_s) & (reported["max_ongoing"] != UNKNOWN)]
    if not len(limits) or not facts.has_batches:
        return None
    limit = int(limits[-facts.replicas :].min())  # the lowest that the replicas reported last
    batches = facts.batches
    if limit >= facts.cap or batches.share(batches.size >= limit - TELEMETRY_READERS) < 0.5:
        return None
    largest = int(batches.size.max())
    timeout_s = facts.timeout_s
    waits_all = timeout_s > 0 and share(batches.held >= 0.9 * timeout_s) >= MOSTLY
    also = f", and each waited its whole {seconds(timeout_s)} for more" if waits_all else ""
    most = f"of the last {counted(len(batches), 'batch')} none had more than"
    if facts.is_continuous:
        most = "there never ran more than"
    return Finding(
        "ongoing_capped",
        "warning",
        "max_ongoing_requests caps the batches",
        evidence=f"Ray lets a replica hold {limit} requests at once, readers of telemetry included: {most} {largest}, "
        f"although max_batch_size is {facts.cap}{also}.",
        data={
            "max_ongoing_requests": limit,
            "max_batch_size": facts.cap,
            "largest_batch": largest,
            "mean_held_s": float(batches.held.mean()),
        },
        advice=f"Raise max_ongoing_requests to {facts.settings.max_ongoing_requests} or more, which holds a full "
        "batch and a full queue.",
        control="max_ongoing_requests",
    )


def memory_full(facts: Facts) -> Finding | None:
    """Memory does not hold the rows of a batch all at once."""
    batches = facts.earlier_batches
    split = batches.splits > 0
    if not split.any():
        return None
    # A request that waits in `continuous` does so beside all rows that memory holds; elsewhere parts are about equal.
    parts = 1 if batches.is_open else batches.splits[split] + 1
    held = int(np.min(np.ceil(batches.size[split] / parts)))
    count = int(np.count_nonzero(split))
    return Finding(
        "memory_full",
        "warning",
        "Batches do not fit into memory",
        evidence=f"Memory did not hold all rows of {count} of the last {counted(len(batches), 'batch')}, but {held}: "
        "the others had to wait until these were done.",
        data={"split": count, "batches": len(batches), "rows": held},
        advice=f"Set max_batch_size to {held}: then nothing is tried in vain. Shorter texts need less memory.",
        control="max_batch_size",
    )


def memory_grows(facts: Facts) -> Finding | None:
    """The memory of a replica's process grows steadily."""
    slots = np.flatnonzero(facts.queues.is_present).tolist()
    found = [finding for slot in slots if (finding := _growth_of(facts, slot)) is not None]
    return max(found, key=lambda finding: finding.data["grown_mib"], default=None)


def _growth_of(facts: Facts, slot: int) -> Finding | None:
    reported = facts.history.statuses.replicas
    mine = (reported["slot"] == slot) & (reported["at"] > facts.at_s - GROWTH_REACH_S) & (reported["at"] <= facts.at_s)
    mine &= reported["pid"] == reported["pid"][mine][-1]
    at_s, memory = reported["at"][mine], reported["memory"][mine]
    span_s = float(at_s[-1] - at_s[0])
    begin, *middle, end = (float(np.median(part)) for part in np.array_split(memory, 5)) if len(memory) > 5 else (0, 0)
    grown = end - begin
    if span_s < LEAST_GROWTH_S or grown < max(LEAST_GROWTH_BYTES, LEAST_GROWTH_SHARE * begin):
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
