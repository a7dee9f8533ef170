"""Rules on the load: whether the engine, the queue, the replicas and the load generator keep up with it."""

from __future__ import annotations

import math

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, Finding, advise_larger_cap
from service.analysis.observed.requests import STATE_CODES
from service.messages.load import spoiling_lag_ms
from service.messages.text import counted, per_second, percent, seconds

LEAST_REQUESTS = 10
LAG_ALONE_MS = 50.0  # spoils where no latency is known
MARGIN = 1.02
LEAST_GROWTH_S = 5.0
LEAST_GROWTH = 6.0
LEAST_STARTS = 3
MUCH_IDLE = 0.2
AT_LIMIT = 0.95  # of the places in the queue
SIGMAS = 2.5  # of the chance difference between arrivals and answers over the span


def generator_lags(facts: Facts) -> Finding | None:
    """The load generator sends late or drops arrivals, so the figures describe it rather than the service."""
    lag_ms, dropped, p50_s = _lag_p99_ms(facts), _dropped(facts), facts.latency_p50_s
    is_late = lag_ms > (spoiling_lag_ms(p50_s) if p50_s else LAG_ALONE_MS)
    if not is_late and not dropped:
        return None
    evidence, until = [], []
    if is_late:
        until.append("Until then latencies, which count from the intended send, are longer than the service's own.")
        compared = f", {percent(lag_ms / 1e3 / p50_s)} of the median latency" if p50_s else ""
        evidence.append(f"1 of 100 requests was sent {lag_ms:.0f} ms late or more{compared}.")
    if dropped:
        until.append("What is dropped is in no latency.")
        evidence.append(f"{counted(dropped, 'arrival')} were dropped at the cap on outstanding requests.")
    told = " ".join(until)
    return Finding(
        "generator_lags",
        "warning",
        "The load generator is the bottleneck",
        evidence=" ".join(evidence),
        data={"lag_p99_ms": lag_ms, "dropped": dropped, "latency_p50_ms": 1e3 * (p50_s or 0.0)},
        advice=f"Lower the rate, raise the cap on outstanding requests, or send from another machine. {told}",
    )


def _lag_p99_ms(facts: Facts) -> float:
    """The lag of the requests themselves, or the generator's own report where too few are known; 0 where both lack."""
    columns = facts.history.requests.columns
    sent = (columns["sent"] > facts.since_s) & (columns["sent"] <= facts.at_s)
    lag_s = columns["sent"][sent] - columns["intended"][sent]
    if len(lag_s) >= LEAST_REQUESTS:
        return float(np.percentile(lag_s, 99.0)) * 1e3
    load = facts.history.statuses.load
    lately = load["lag_ms"][(load["at"] > facts.since_s) & (load["at"] <= facts.at_s) & np.isfinite(load["lag_ms"])]
    return float(lately[-1]) if len(lately) else 0.0


def _dropped(facts: Facts) -> int:
    load = facts.history.statuses.load
    before, until = np.searchsorted(load["at"], [facts.since_s, facts.at_s], "right")
    dropped = load["dropped"][max(before - 1, 0) : until]
    return max(int(dropped[-1] - dropped[0]), 0) if len(dropped) else 0


def load_share(facts: Facts) -> Finding | None:
    """The offered load as a share of the engine's capacity."""
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


def saturated(facts: Facts) -> Finding | None:
    """More requests arrive than the engine can answer, even with full batches."""
    capacity, offered = facts.capacity_per_s(facts.cap), facts.offered_per_s
    if capacity is None or offered is None or facts.is_bounded_load or offered < MARGIN * capacity:
        return None
    if facts.declared_per_s is None and queue_grows(facts) is None:
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


def queue_grows(facts: Facts) -> Finding | None:
    """The queue grows without bound: more requests come than leave, all the time.

    A bounded queue swings with every batch, and a long batch lets it rise for long. So the measure is the number of
    requests that batches leave behind when they start, since they take all that they can.
    """
    span_s = facts.at_s - facts.steady_since_s
    if facts.is_bounded_load or span_s < LEAST_GROWTH_S:
        return None
    totals = facts.steady_queues.total
    begin, end = float(totals[0]), float(totals[-1])
    grown, limit = end - begin, facts.settings.max_queued_requests * facts.replicas
    if min(float(np.median(totals[len(totals) // 2 :])), end) >= AT_LIMIT * limit:
        return None  # it cannot grow: further requests are refused
    if grown < max(LEAST_GROWTH, SIGMAS * math.sqrt(facts.steady_arrivals)) or not _leave_more_and_more(facts, grown):
        return None
    growth_per_s = grown / span_s
    left_s = max(limit - end, 0) / growth_per_s
    when = f"At this pace the limit of {limit} is reached in {seconds(left_s)}." if left_s else "Its limit is reached."
    advice, control = advise_larger_cap(facts)
    if facts.settings.formation == "early":
        advice, control = "Set formation to late, so that batches grow with the queue.", "formation"
    return Finding(
        "queue_grows",
        "warning",
        "The queue grows without bound",
        evidence=f"From {begin:.0f} to {end:.0f} requests in {seconds(span_s)}, by {growth_per_s:.1f} a second. {when}",
        data={
            "begin": begin,
            "end": end,
            "span_s": span_s,
            "growth_per_s": growth_per_s,
            "limit": limit,
            "full_in_s": left_s,
        },
        advice=advice,
        control=control,
    )


def _leave_more_and_more(facts: Facts, grown: float) -> bool:
    started = np.sort(facts.history.batches.columns["started"])
    begin, end = np.searchsorted(started, [facts.steady_since_s, facts.at_s], "right")
    queues = facts.steady_queues
    moments = np.searchsorted(queues.at_s, started[begin:end]).clip(max=len(queues.at_s) - 1)
    left = queues.total[moments]
    if len(left) < LEAST_STARTS:
        return grown > 2 * facts.settings.max_batch_size * facts.replicas  # more than the next batches can take
    first, second = (float(half.mean()) for half in np.array_split(left, 2))
    return second - first >= grown / 4 and bool(left[-1] >= MOSTLY * left.max())


def requests_shed(facts: Facts) -> Finding | None:
    """The queue was full, so requests were refused with 503."""
    columns = facts.history.requests.columns
    states = columns["state"][(columns["received"] > facts.since_s) & (columns["received"] <= facts.at_s)]
    received, refused = len(states), int(np.count_nonzero(states == STATE_CODES["refused"]))
    if not refused:
        return None
    limit = facts.settings.max_queued_requests
    return Finding(
        "requests_shed",
        "warning",
        "Requests are refused",
        evidence=f"{refused} of the last {received} ({percent(refused / received)}) found the queue of {limit} full.",
        data={"refused": refused, "received": received, "max_queued_requests": limit},
        advice="Raise max_queued_requests if these come in bursts. Where more arrive than the engine can do, a longer "
        "queue only makes all wait longer.",
        control="max_queued_requests",
    )


def replica_idle(facts: Facts) -> Finding | None:
    """A replica has nothing to do while requests queue at another."""
    queues = facts.queues
    if np.count_nonzero(queues.is_present) < 2:
        return None
    queueing = ((queues.waiting > 0) & (queues.running > 0)).any(axis=0)  # requests behind a batch that runs
    idle = (queues.waiting == 0) & (queues.running == 0) & queues.is_present[:, None] & queueing
    shares = idle.mean(axis=1)
    slot = int(np.argmax(shares))
    if shares[slot] < MUCH_IDLE:
        return None
    longest = queues.waiting[:, idle[slot]].max(axis=1)
    other = int(np.argmax(longest))
    idle_name, busy_name = (facts.history.slots.name_of(n) for n in (slot, other))
    return Finding(
        "replica_idle",
        "warning",
        "A replica idles while another queues",
        evidence=f"{idle_name} had nothing to do {percent(shares[slot])} of the time while up to {longest[other]} "
        f"requests waited at {busy_name}.",
        data={"idle_share": float(shares[slot]), "longest_queue": int(longest[other])},
        advice="A request stays with the replica it was given to. Raise max_batch_size so that the busy one takes its "
        "queue at once, or run one replica on the whole machine.",
        control="max_batch_size",
    )
