"""Waiting for company costs more than running together saves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.findings.facts import Facts
from service.analysis.findings.finding import Finding
from service.analysis.findings.recent import AT_ONCE_S
from service.analysis.observed.columns import Bools, Floats, Ints
from service.messages.text import seconds

MOST_BUSY = 0.85  # beyond that larger batches also keep the queue short, which is not counted here
LEAST_LOSS_S = 0.01
LEAST_LOSS_SHARE = 0.1  # of the median latency


@dataclass(frozen=True)
class Trade:
    """What waiting bought, a batch on average.

    Attributes:
        held_s: how long it was held while the engine was free.
        size_before: members it would have had at once.
        gained_s: by how much a request was answered earlier for it; negative if later, ``None`` if unknown.
    """

    held_s: float
    size_before: float
    gained_s: float | None


def find(facts: Facts) -> Finding | None:
    batches, timeout_s = facts.batches, facts.timeout_s
    if not facts.has_batches or not timeout_s or facts.settings.formation != "late" or facts.busy_share > MOST_BUSY:
        return None
    bought = trade(facts)
    if bought.gained_s is None or not len(facts.latencies_s):
        return None
    if -bought.gained_s < max(LEAST_LOSS_S, LEAST_LOSS_SHARE * float(np.median(facts.latencies_s))):
        return None
    return Finding(
        rule="timeout_too_long",
        severity="warning",
        title="The timeout costs more than it gains",
        evidence=f"The free engine held batches {seconds(bought.held_s)}, in which they grew from "
        f"{bought.size_before:.1f} to {batches.mean_size:.1f}. Had they run at once, requests would have been answered "
        f"{seconds(-bought.gained_s)} earlier.",
        data={
            "held_s": bought.held_s,
            "size_before": bought.size_before,
            "mean_batch": batches.mean_size,
            "lost_s": -bought.gained_s,
            "latency_p50_s": float(np.median(facts.latencies_s)),
        },
        advice="Lower batch_wait_timeout_s; under late formation batches still grow while the engine is busy.",
        control="batch_wait_timeout_s",
    )


def trade(facts: Facts) -> Trade:
    """Each batch as it was, beside the same requests without a wait: those there at once run, the others after them."""
    batches = facts.batches
    members = _members(facts)
    joiners = np.bincount(members.batch, members.joined, len(batches)).astype(np.int64)
    before = np.maximum(batches.size - joiners, 1)
    if joiners.any():
        gained_s = _gained_s(facts, members, before, joiners)
    else:
        gained_s = -float(np.average(batches.held, weights=batches.size))
    return Trade(float(batches.held.mean()), float(before.mean()), gained_s)


@dataclass(frozen=True)
class _Members:
    """Requests of the batches: which batch, how much later than its engine was ready, and whether it was waited for."""

    batch: Ints
    late_s: Floats
    joined: Bools


def _members(facts: Facts) -> _Members:
    batches, table = facts.batches, facts.history.requests.columns
    mine = np.isin(table["batch"], batches.row)
    order = np.argsort(batches.row)
    batch = order[np.searchsorted(batches.row, table["batch"][mine], sorter=order)]
    late_s = np.maximum(table["queued"][mine] - batches.ready[batch], 0.0)
    return _Members(batch, late_s, (late_s > AT_ONCE_S) & (batches.held[batch] > AT_ONCE_S))


def _gained_s(facts: Facts, members: _Members, before: Ints, joiners: Ints) -> float | None:
    batches, of = facts.batches, members.batch
    run_s = _run_times(facts, {*before.tolist(), *batches.size.tolist(), *joiners.tolist()})
    if run_s is None:
        return None
    with_wait_s = batches.held[of] - np.where(members.joined, members.late_s, 0.0) + run_s[batches.size][of]
    first_s = run_s[before][of]
    after_s = np.maximum(first_s - members.late_s, 0.0) + run_s[joiners][of]
    return float((np.where(members.joined, after_s, first_s) - with_wait_s).mean())


def _run_times(facts: Facts, sizes: set[int]) -> Floats | None:
    """Seconds a batch takes, by its size, where they are known for all of these sizes."""
    times = {size: facts.batch_s(size) for size in sizes - {0}}
    if None in times.values():
        return None
    by_size = np.zeros(max(sizes) + 1)
    by_size[list(times)] = list(times.values())
    return by_size
