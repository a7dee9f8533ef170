"""Rules on the load: whether the engine and the load generator keep up with it."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from service.analysis.findings.facts import Facts, Finding
from service.analysis.findings.mend import carry_load
from service.analysis.findings.rules.queueing import queue_grows, requests_shed
from service.messages.load import spoiling_lag_ms
from service.messages.text import counted, per_second, percent

LEAST_REQUESTS = 10
LAG_ALONE_MS = 50.0  # spoils where no latency is known
MARGIN = 1.02


def generator_lags(facts: Facts) -> Finding | None:
    """The load generator sends late or drops arrivals, so the figures describe it rather than the service."""
    lag_ms, dropped = _lag_p99_ms(facts), _dropped(facts)
    p50_s = facts.latency_p50_s if len(facts.latencies_s) >= LEAST_REQUESTS else None  # of the first few it says little
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
    """The offered load as a share of the capacity that was seen: of full batches, or of the largest so far.

    Withheld for users that wait for their answers, whose rate follows from the capacity, and while a queue stands.
    """
    offered, capacity = facts.offered, facts.capacity
    if offered is None or capacity is None or not offered.per_s or facts.is_bounded_load:
        return None
    size, rate = capacity.size, capacity.rate
    is_queueing = facts.waiting > facts.cap * facts.places or facts.refused[0]
    if offered.per_s > rate.low_per_s or is_queueing:
        return None
    full = f"with {size} running" if facts.is_continuous else f"if every batch held {size}"
    of = f"{rate.words} {full}" if capacity.is_full else f"{capacity.words} {full}, the most so far"
    return Finding(
        "load_share",
        "info",
        f"Load is {'' if capacity.is_full else 'at most '}{percent(offered.per_s / capacity.per_s)} of capacity",
        evidence=f"{offered.per_s:.1f} of {of}.",
        data={
            "offered_per_s": offered.per_s,
            "capacity_per_s": rate.per_s,
            "capacity_low_per_s": rate.low_per_s,
            "capacity_high_per_s": rate.high_per_s,
            "of_size": size,
            "max_batch_size": facts.cap,
        },
    )


def saturated(facts: Facts) -> Finding | None:
    """More requests arrive than the engine can answer, even with full batches, beyond the errors of both rates."""
    offered = facts.offered
    if facts.capacity is None or not facts.capacity.is_full or offered is None or facts.is_bounded_load:
        return None
    capacity = facts.capacity.rate
    excess_per_s = offered.per_s - capacity.per_s
    error_per_s = math.hypot(offered.per_s - offered.low_per_s, capacity.high_per_s - capacity.per_s)
    if excess_per_s < max((MARGIN - 1) * capacity.per_s, error_per_s):
        return None
    if facts.declared_per_s is None:  # the rate was merely counted
        stands = facts.waiting >= facts.cap * facts.places or facts.refused[0]
        if not stands or facts.arriving_per_s < capacity.per_s:
            return None  # no queue stands, or it was a burst
    excess = excess_per_s / capacity.per_s
    full = f"with all {facts.cap} places taken the engine" if facts.is_continuous else f"full batches of {facts.cap}"
    return Finding(
        "saturated",
        "warning",
        "The engine is saturated",
        evidence=f"{per_second(offered.per_s)} arrive, {full} can answer {capacity.per_s:.1f}: {_too_many(excess)}."
        f"{_consequences(facts)}",
        data={
            "offered_per_s": offered.per_s,
            "capacity_per_s": capacity.per_s,
            "excess": excess,
            "max_batch_size": facts.cap,
        },
        **asdict(carry_load(facts)),
    )


def _too_many(excess: float) -> str:
    """
    >>> _too_many(0.4), _too_many(10.9)
    ('40 % too many', '12 times as many')
    """
    return f"{percent(excess)} too many" if excess < 1 else f"{1 + excess:.0f} times as many"


def _consequences(facts: Facts) -> str:
    """What becomes of the requests, since the findings that say so alone are left out beside this one."""
    shed, growth = requests_shed(facts), queue_grows(facts)
    if shed is not None:
        return f" {shed.evidence}"
    return "" if growth is None else f" The queue {growth.evidence.removeprefix('It ')}"
