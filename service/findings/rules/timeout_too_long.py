"""Waiting for company costs more than running together saves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.findings.batches import AT_ONCE_S
from service.findings.facts import Facts
from service.findings.finding import Finding
from service.findings.words import seconds

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
    batches, timeout_s = facts.batches, facts.settings.batch_wait_timeout_s
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
    batches, table = facts.batches, facts.history.requests.columns
    place = {int(row): n for n, row in enumerate(batches.row)}
    mine = np.isin(table["batch"], batches.row)
    of = np.array([place[int(row)] for row in table["batch"][mine]], np.int64)
    late_s = np.maximum(table["queued"][mine] - batches.ready[of], 0.0)
    joined = (late_s > AT_ONCE_S) & (batches.held[of] > AT_ONCE_S)
    joiners = np.bincount(of, joined, len(batches))
    before = np.maximum(batches.size - joiners, 1.0)
    held_s = float(batches.held.mean()) if len(batches) else 0.0
    mean_before = float(before.mean()) if len(batches) else 0.0
    run_s = _run_times(facts, int(batches.size.max(initial=1)))
    if not joiners.any():
        requests = max(float(batches.size.sum()), 1.0)
        return Trade(held_s, mean_before, -float((batches.held * batches.size).sum()) / requests)
    if run_s is None:
        return Trade(held_s, mean_before, None)
    first_s = run_s[before.astype(np.int64)]
    with_wait_s = batches.held[of] - np.where(joined, late_s, 0.0) + run_s[batches.size][of]
    after_s = np.maximum(first_s[of] - late_s, 0.0) + run_s[joiners.astype(np.int64)][of]
    without_s = np.where(joined, after_s, first_s[of])
    return Trade(held_s, mean_before, float((without_s - with_wait_s).mean()))


def _run_times(facts: Facts, largest: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    """Seconds a batch of each size takes, where all of them are known."""
    times = [0.0, *(facts.batch_s(size) for size in range(1, largest + 1))]
    return None if None in times else np.array(times, np.float64)
