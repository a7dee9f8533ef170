"""Rules on the sizes of batches, and on what limits them: settings and memory."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, Finding, share
from service.analysis.findings.mend import Advice, carry_load
from service.analysis.observed.budget import budget_now, requests_held
from service.analysis.observed.columns import Bools
from service.analysis.observed.statuses import UNKNOWN
from service.messages.text import counted, percent, seconds

BUSY = 0.8
TELEMETRY_READERS = 2  # each is a request that the replica holds
OFTEN = 0.4  # of the moments in which a replica holds something
MUCH_PREFILL = 0.35  # of the time that the engine runs
LEAST_BUSY = 0.5  # below that what takes the engine's time is no matter
LEAST_KNOWN = 3
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
    advice = Advice(
        "Raise batch_wait_timeout_s so that more requests come together, or use fewer replicas.", "batch_wait_timeout_s"
    )
    if facts.cap == 1:
        advice = carry_load(facts)
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
        **asdict(advice),
    )


def batch_size_limits(facts: Facts) -> Finding | None:
    """The cap: batches are full while requests wait, or no longer are."""
    if not facts.has_batches:
        return None
    full, batches = int(np.count_nonzero(facts.batches.is_full)), len(facts.batches)
    data = {"full": full, "batches": batches, "waiting": facts.waiting, "max_batch_size": facts.cap}
    cap = "The number of places" if facts.history.server else "max_batch_size"
    if facts.full_share >= MOSTLY and facts.waiting:
        taken = f"{full} of the last {batches} batches were full"
        if facts.is_continuous:
            taken = f"All {facts.cap} places were taken {percent(facts.full_share)} of the time"
        title, evidence = f"{cap} limits", f"{taken}, and {facts.waited}."
        advice = asdict(carry_load(facts))
        return Finding("batch_size_limits", "warning", title, evidence=evidence, data=data, **advice)
    previous = facts.previous_batches
    if full == 0 and previous is not None and previous.share(previous.is_full) >= MOSTLY:
        evidence = f"None of the last {batches} batches reached the cap of {facts.cap}."
        if facts.is_continuous:
            evidence = f"Never more than {facts.batches.size.max()} of {facts.cap} places were taken."
        title = f"{cap} no longer limits"
        return Finding("batch_size_no_longer_limits", "check", title, evidence=evidence, data=data)
    return None


def ongoing_capped(facts: Facts) -> Finding | None:
    """Ray lets a replica hold too few requests, those that wait and those that run, for batches to be full.

    What it holds falls whenever a batch ends, and rises to the limit again, but never beyond, while more were sent.
    """
    reported = facts.history.statuses.replicas
    limits = reported["max_ongoing"][(reported["at"] <= facts.at_s) & (reported["max_ongoing"] != UNKNOWN)]
    if not len(limits) or not facts.has_batches or facts.full_share >= MOSTLY:
        return None
    limit = int(limits[-facts.replicas :].min())  # the lowest that the replicas reported last
    held = (facts.queues.waiting + facts.queues.running).max(axis=0, initial=0)  # by the replica with the most
    at_limit = held >= max(limit - TELEMETRY_READERS, 1)
    if held.max() > limit or share(at_limit[held > 0]) < OFTEN or not _more_was_sent(facts, at_limit):
        return None
    batches, timeout_s = facts.batches, facts.timeout_s
    waits_all = timeout_s > 0 and share(batches.held >= 0.9 * timeout_s) >= MOSTLY
    also = f", and each waited its whole {seconds(timeout_s)} for more" if waits_all else ""
    had = f"the last {counted(len(batches), 'batch')} held {batches.mean_size:.1f} of {facts.cap} requests on average"
    if facts.is_continuous:
        had = f"{batches.mean_size:.1f} of {facts.cap} places were taken on average"
    return Finding(
        "ongoing_capped",
        "warning",
        "max_ongoing_requests caps the batches",
        evidence=f"Ray lets a replica hold {limit} requests at once, waiting, running or reading telemetry. It held up "
        f"to {held.max()} while more had been sent: {had}{also}.",
        data={
            "max_ongoing_requests": limit,
            "max_batch_size": facts.cap,
            "mean_batch": batches.mean_size,
            "most_held": int(held.max()),
            "mean_held_s": float(batches.held.mean()),
        },
        advice=f"Raise max_ongoing_requests to {facts.settings.max_ongoing_requests} or more, which holds a full "
        "batch and a full queue.",
        control="max_ongoing_requests",
    )


def _more_was_sent(facts: Facts, at_limit: Bools) -> bool:
    """Whether requests had mostly been sent that no replica held yet; true where no sender is known."""
    columns = facts.history.requests.columns
    sent, received = columns["sent"], columns["received"]
    if not np.isfinite(sent).any():
        return True
    moments = facts.queues.at_s[at_limit]
    ended = np.minimum(received, columns["client_finished"])
    return share(np.array([((sent <= at_s) & (ended > at_s)).any() for at_s in moments])) >= MOSTLY


def memory_full(facts: Facts) -> Finding | None:
    """Memory does not hold the rows of a batch all at once."""
    batches, held = facts.earlier_batches, facts.memory_rows
    if held is None:
        return None
    count = int(np.count_nonzero(batches.splits > 0))
    expected = "Nothing is then tried in vain."
    advice = Advice.of(facts, facts.settings.revised({"max_batch_size": held}), expected, "; shorter texts need less")
    return Finding(
        "memory_full",
        "warning",
        "Batches do not fit into memory",
        evidence=f"Memory did not hold all rows of {count} of the last {counted(len(batches), 'batch')}, but {held}: "
        "the others had to wait until these were done.",
        data={"split": count, "batches": len(batches), "rows": held},
        **asdict(advice),
    )


def memory_limits(facts: Facts) -> Finding | None:
    """Requests wait although places are free, since memory does not hold their keys and values beside the others'."""
    budget = budget_now(facts.history)
    if budget is None or budget.source != "memory" or not facts.waiting or not facts.has_batches:
        return None
    held, rows = budget.tokens, float(requests_held(facts.history, budget.tokens, np.array([facts.at_s]))[0])
    if not rows < facts.cap or facts.batches.mean_size > rows + 1:
        return None
    return Finding(
        "memory_limits",
        "warning",
        "Memory limits the batches",
        evidence=f"Memory has room for {held} tokens of prompts and max_tokens in a batch, and a request of now needs "
        f"{held / rows:.0f}: {counted(round(rows), 'request')} of {facts.cap}. {facts.waited}.",
        data={"memory_tokens": held, "tokens": held / rows, "rows": rows, "waiting": facts.waiting},
        advice="Ask for fewer tokens (max_tokens), shorten the prompts, or free memory and start the service anew.",
        control="max_batch_tokens",
    )


def prompts_dominate(facts: Facts) -> Finding | None:
    """Reading prompts takes a large share of the engine's time."""
    batches = facts.earlier_batches
    known = np.isfinite(batches.prefill_s) & np.isfinite(batches.finished)
    run_s = float((batches.finished - batches.started)[known].sum())
    if int(np.count_nonzero(known)) < LEAST_KNOWN or run_s <= 0 or facts.busy_share < LEAST_BUSY:
        return None
    part = float(batches.prefill_s[known].sum()) / run_s
    if part < MUCH_PREFILL:
        return None
    cost = facts.cost
    each = ""
    if cost is not None:
        each = f": {cost.prompt_tokens:.0f} tokens of a request's prompt, beside {cost.tokens:.0f} of its answer"
    return Finding(
        "prompts_dominate",
        "warning" if facts.waiting and facts.busy_share >= BUSY else "info",
        "Prompts take much of the engine's time",
        evidence=f"Reading prompts took {percent(part)} of the time in which the engine ran{each}.",
        data={"prefill_share": part, "run_s": run_s},
        advice="Shorten the prompts: while they are read, fewer tokens are generated or none.",
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
