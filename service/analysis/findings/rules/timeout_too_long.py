"""Waiting for more requests costs more than running them together saves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.findings.facts import Facts, Finding
from service.analysis.findings.recent import AT_ONCE_S
from service.analysis.observed.columns import Bools, Floats, Ints
from service.messages.text import seconds

MOST_BUSY = 0.85  # beyond that larger batches also keep the queue short, which is not counted here


@dataclass(frozen=True)
class WaitEffect:
    """The effect of waiting for more requests on a batch, on average.

    Attributes:
        held_s: how long it was held while the engine was free.
        size_before: members it would have had without the wait.
        gained_s: by how much a request was answered earlier for it; negative if later, ``None`` if unknown.
    """

    held_s: float
    size_before: float
    gained_s: float | None


def find(facts: Facts) -> Finding | None:
    if not facts.has_batches or not facts.timeout_s or not facts.is_late or facts.busy_share > MOST_BUSY:
        return None
    effect = wait_effect(facts)
    if effect.gained_s is None or not facts.is_felt(-effect.gained_s):
        return None
    mean_size = facts.batches.mean_size
    return Finding(
        "timeout_too_long",
        "warning",
        "The timeout costs more than it gains",
        evidence=f"The free engine held batches {seconds(effect.held_s)}, in which they grew from "
        f"{effect.size_before:.1f} to {mean_size:.1f}. Had they run at once, requests would have been answered "
        f"{seconds(-effect.gained_s)} earlier.",
        data={
            "held_s": effect.held_s,
            "size_before": effect.size_before,
            "mean_batch": mean_size,
            "lost_s": -effect.gained_s,
            "latency_p50_s": facts.latency_p50_s or 0.0,
        },
        advice="Lower batch_wait_timeout_s; under late formation batches still grow while the engine is busy.",
        control="batch_wait_timeout_s",
    )


def wait_effect(facts: Facts) -> WaitEffect:
    """Compare each batch with the same requests without a wait: those there at once run, the others after them."""
    batches = facts.batches
    members = _members(facts)
    joiners = np.bincount(members.batch, members.joined, len(batches)).astype(np.int64)
    before = np.maximum(batches.size - joiners, 1)
    if joiners.any():
        gained_s = _gained_s(facts, members, before, joiners)
    else:
        gained_s = -float(np.average(batches.held, weights=batches.size))
    return WaitEffect(float(batches.held.mean()), float(before.mean()), gained_s)


@dataclass(frozen=True)
class _Members:
    """Requests of the batches: their batch, the delay after its engine was ready, and whether it waited for them."""

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
