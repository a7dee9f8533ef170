"""Rules on `batch_wait_timeout_s`: what waiting for more requests costs, and what it gains."""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, Finding, share
from service.analysis.findings.mend import Advice
from service.analysis.findings.recent import AT_ONCE_S
from service.analysis.observed.columns import Floats, Ints
from service.messages.text import counted, seconds

MOST_BUSY = 0.85  # beyond that larger batches also keep the queue short, which is not counted here
SURE = 2.0  # standard errors
MANY = 0.3  # of the requests
LEAST_REQUESTS = 5


class WaitEffect(NamedTuple):
    """The effect of waiting for more requests on a batch, on average.

    Attributes:
        held_s: how long it was held while the engine was free.
        size_before: members it would have had without the wait.
        gained_s: by how much a request was answered earlier for it; negative if later, ``None`` if unknown.
        error_s: the standard error of that mean over the batches.
    """

    held_s: float
    size_before: float
    gained_s: float | None
    error_s: float

    @property
    def surely_gained_s(self) -> float:
        """What of it is no chance; 0 where its sign might be."""
        gained_s, doubt_s = self.gained_s or 0.0, SURE * self.error_s
        return max(gained_s - doubt_s, 0.0) + min(gained_s + doubt_s, 0.0)


def timeout_too_long(facts: Facts) -> Finding | None:
    """Waiting for more requests costs more than running them together saves."""
    if not facts.has_batches or not facts.timeout_s or not facts.is_late or facts.busy_share > MOST_BUSY:
        return None
    effect = _wait_effect(facts)
    if effect.gained_s is None or not facts.is_felt(-effect.surely_gained_s):
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
        advice="Set batch_wait_timeout_s to 0; under late formation batches still grow while the engine is busy.",
        control="batch_wait_timeout_s",
        change={"batch_wait_timeout_s": 0.0},
        expected=f"Answers about {seconds(-effect.gained_s)} earlier.",
    )


def timeout_waited(facts: Facts) -> Finding | None:
    """Every batch waits its whole timeout while the engine is free; the advice depends on what that gains."""
    batches, timeout_s = facts.batches, facts.timeout_s
    if not facts.has_batches or not timeout_s or not facts.is_late:
        return None
    if share(batches.held >= 0.9 * timeout_s) < MOSTLY:
        return None
    effect = _wait_effect(facts)
    return Finding(
        "timeout_waited",
        "info",
        "Batches wait their whole timeout",
        evidence=f"The engine was free, yet the last {counted(len(batches), 'batch')} waited {timeout_s:.3f} s. They "
        f"grew from {effect.size_before:.1f} to {batches.mean_size:.1f} of {facts.cap} requests.",
        data={
            "batches": len(batches),
            "batch_wait_timeout_s": timeout_s,
            "size_before": effect.size_before,
            "mean_batch": batches.mean_size,
            "largest_batch": int(batches.size.max()),
        },
        **asdict(_advice(facts, effect)),
    )


def timeout_needless(facts: Facts) -> Finding | None:
    """Formation `continuous`: a free engine waits for requests that could join a running batch anyway."""
    timeout_s, begun = facts.timeout_s, len(facts.begun)
    if not facts.is_continuous or not timeout_s or begun < LEAST_REQUESTS:
        return None
    batches = facts.batches
    waited = batches.released("timeout") & (batches.held >= 0.9 * timeout_s)
    held = int(batches.size[waited].sum())
    if held < MANY * begun or facts.latency_p50_s is None:
        return None
    return Finding(
        "timeout_needless",
        "warning" if facts.is_felt(timeout_s) else "info",
        "The timeout holds requests for nothing",
        evidence=f"{held} of the last {counted(begun, 'request')} found the engine free and were held up to "
        f"{timeout_s:.3f} s for others.",
        data={"held": held, "begun": begun, "batch_wait_timeout_s": timeout_s, "latency_p50_s": facts.latency_p50_s},
        advice="Set batch_wait_timeout_s to 0: a later request joins at the next step.",
        control="batch_wait_timeout_s",
        change={"batch_wait_timeout_s": 0.0},
        expected=f"These are answered up to {seconds(timeout_s)} earlier.",
    )


def timeout_without_effect(facts: Facts) -> Finding | None:
    """Requests are always waiting when the engine comes free, so the timeout never runs out."""
    if not facts.has_batches or facts.timeout_s <= AT_ONCE_S or not facts.is_late:
        return None
    at_once = share(facts.batches.held <= AT_ONCE_S)
    if at_once < MOSTLY or not facts.full_share:
        return None
    return Finding(
        "timeout_without_effect",
        "info",
        "batch_wait_timeout_s has no effect",
        evidence="A full batch was waiting whenever the engine came free.",
        data={"at_once_share": at_once, "full_share": facts.full_share},
    )


def _wait_effect(facts: Facts) -> WaitEffect:
    """Compare each batch with the same requests without a wait: those there at once run, the others after them."""
    batches, table = facts.batches, facts.history.requests.columns
    members = np.isin(table["batch"], batches.row) & np.isfinite(table["queued"])
    order = np.argsort(batches.row)
    batch_of = order[np.searchsorted(batches.row, table["batch"][members], sorter=order)]
    late_s = np.maximum(table["queued"][members] - batches.ready[batch_of], 0.0)  # after the engine was ready
    joined = (late_s > AT_ONCE_S) & (batches.held[batch_of] > AT_ONCE_S)  # the batch waited for them
    joiners = np.bincount(batch_of, joined, len(batches)).astype(np.int64)
    before = np.maximum(batches.size - joiners, 1)
    run_s = _run_times(facts, {*before.tolist(), *batches.size.tolist(), *joiners.tolist()})
    gains_s: Floats | None = None  # by member
    if not joiners.any():
        gains_s = -batches.held[batch_of]
    elif run_s is not None:
        with_wait_s = batches.held[batch_of] - np.where(joined, late_s, 0.0) + run_s[batches.size][batch_of]
        first_s = run_s[before][batch_of]
        after_s = np.maximum(first_s - late_s, 0.0) + run_s[joiners][batch_of]
        gains_s = np.where(joined, after_s, first_s) - with_wait_s
    gained_s, error_s = (None, 0.0) if gains_s is None or not len(gains_s) else _mean_of_groups(gains_s, batch_of)
    return WaitEffect(float(batches.held.mean()), float(before.mean()), gained_s, error_s)


def _mean_of_groups(values: Floats, group: Ints) -> tuple[float, float]:
    """The mean, and its standard error where the values of a group are no evidence beside one another."""
    mean = float(values.mean())
    sums = np.bincount(group, values - mean)
    return mean, float(np.sqrt((sums**2).sum()) / len(values))


def _run_times(facts: Facts, sizes: set[int]) -> Floats | None:
    """Seconds a batch takes, by its size, where they are known for all of these sizes."""
    cost, known = facts.cost, sizes - {0}
    if cost is None or not all(cost.is_sure_of(size) for size in known):
        return None
    by_size = np.zeros(max(sizes) + 1)
    by_size[list(known)] = [cost.batch_s(size) for size in known]
    return by_size


def _advice(facts: Facts, effect: WaitEffect) -> Advice:
    """What to do with the timeout: nothing where its effect may be chance, or is too small to be felt."""
    sizes = facts.batches.size
    if sizes.min() == sizes.max() < facts.cap:
        expected = f"Answers up to {seconds(facts.timeout_s)} earlier, if never more than {sizes.max()} come together."
        return Advice.of(facts, facts.settings.revised({"max_batch_size": int(sizes.max())}), expected)
    gained_s = effect.surely_gained_s
    if effect.gained_s is not None and facts.is_felt(gained_s):
        told = f"It pays: run at once, requests would have been answered {seconds(effect.gained_s)} later."
        return Advice(told, "batch_wait_timeout_s")
    if effect.gained_s is not None and facts.is_felt(-gained_s):
        change: dict[str, object] = {"batch_wait_timeout_s": 0.0}
        expected = f"Answers about {seconds(-effect.gained_s)} earlier."
        return Advice("Set batch_wait_timeout_s to 0.", "batch_wait_timeout_s", change, expected)
    if effect.gained_s is None or not gained_s:
        return Advice("These batches do not show whether this pays.", "batch_wait_timeout_s")
    does = "gains" if gained_s > 0 else "costs"
    return Advice(f"It {does} a request about {seconds(abs(effect.gained_s))}: too little to matter.")
