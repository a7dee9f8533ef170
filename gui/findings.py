"""What it means: rules that read the last ten seconds and say, with numbers, what limits and what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from service.messages import Poisson, Settings
from service.observed.batches import REASON_CODES, Regime
from service.observed.columns import Floats, Ints
from service.observed.history import History
from service.observed.percentiles import WINDOW_S
from service.observed.requests import STATE_CODES

MOST: Final = 3
LEAST_BATCHES: Final = 5
MOSTLY: Final = 0.8
AT_ONCE_S: Final = 0.005  # an engine that gets its next batch within this was not kept waiting
CAPACITY_REACH: Final = 2.0  # the fitted line is trusted up to so many times the largest batch seen


@dataclass(frozen=True)
class Finding:
    """A sentence with its evidence.

    Attributes:
        icon: "warning" is to be changed, "check" is as it should be, "info" is good to know.
        control: the setting that would change it, or ``None``.
    """

    icon: Literal["warning", "check", "info"]
    title: str
    evidence: str
    control: str | None = None


def findings(history: History, at_s: float | None = None) -> tuple[Finding, ...]:
    """At most three, the most useful first."""
    at_s = history.now_s() if at_s is None else at_s
    regime = history.regime_at(at_s)
    if regime is None or history.in_force is None or history.failed_since_s is not None:
        return ()
    facts = _Facts.gathered(history, regime, history.in_force.settings, at_s)
    found = (finding for rule in RULES for finding in rule(facts))
    return tuple(finding for finding, _ in zip(found, range(MOST), strict=False))


@dataclass(frozen=True)
class _Facts:
    """What the rules read, of the last ten seconds under the present settings.

    Attributes:
        size, reason: of each batch that started.
        held_s: how long each batch was held back while the engine was free and its first request was there.
        previous_full_share: of the settings before; ``None`` if there were none.
        seconds_per_request: of the engine, by size of batch, as far as it can be told.
    """

    settings: Settings
    waiting: int
    formed: int
    refused: int
    received: int
    size: Ints
    reason: Ints
    held_s: Floats
    previous_mean: float | None
    previous_full_share: float | None
    offered_per_s: float | None
    capacity_per_s: float | None

    @property
    def full_share(self) -> float:
        return _share(self.reason == REASON_CODES["full"])

    @property
    def has_batches(self) -> bool:
        return len(self.size) >= LEAST_BATCHES

    @classmethod
    def gathered(cls, history: History, regime: Regime, settings: Settings, at_s: float) -> _Facts:
        since_s = max(at_s - WINDOW_S, regime.start_s)
        batches, requests = history.batches.columns, history.requests.columns
        recent = (batches["started"] > since_s) & (batches["started"] <= at_s) & (batches["regime"] == regime.number)
        waiting, formed, _ = history.depth_at(at_s)
        received = (requests["received"] > since_s) & (requests["received"] <= at_s)
        previous = history.batches.regime_before(regime)
        before = batches["regime"] == (previous.number if previous else -1)
        before &= batches["formed"] > regime.start_s - WINDOW_S
        before_any = bool(before.any())
        pattern = history.load.pattern if history.load else None
        return cls(
            settings=settings,
            waiting=waiting,
            formed=formed,
            refused=int(np.count_nonzero(received & (requests["state"] == STATE_CODES["refused"]))),
            received=int(np.count_nonzero(received)),
            size=batches["size"][recent],
            reason=batches["reason"][recent],
            held_s=_held_s(history, np.flatnonzero(recent)),
            previous_mean=float(batches["size"][before].mean()) if before_any else None,
            previous_full_share=_share(batches["reason"][before] == REASON_CODES["full"]) if before_any else None,
            offered_per_s=pattern.rate_per_s if isinstance(pattern, Poisson) else None,
            capacity_per_s=_capacity_per_s(history, settings.max_batch_size),
        )


Rule = Callable[[_Facts], Iterator[Finding]]


def _sealed_too_early(facts: _Facts) -> Iterator[Finding]:
    if facts.settings.formation != "early" or facts.formed < 2 or not len(facts.size):
        return
    mean = float(facts.size.mean())
    fell = f" Mean batch {facts.previous_mean:.1f} → {mean:.1f}." if facts.previous_mean else f" Mean batch {mean:.1f}."
    evidence = f"{facts.formed} requests wait in sealed batches that can no longer grow.{fell}"
    yield Finding("warning", "Batches are sealed too early", evidence, "formation")


def _requests_are_refused(facts: _Facts) -> Iterator[Finding]:
    if facts.refused:
        limit = facts.settings.max_queued_requests
        evidence = f"{facts.refused} of the last {facts.received} found the queue of {limit} full."
        yield Finding("warning", "Requests are refused", evidence, "max_queued_requests")


def _batch_size_limits(facts: _Facts) -> Iterator[Finding]:
    if not facts.has_batches:
        return
    full = int(np.count_nonzero(facts.reason == REASON_CODES["full"]))
    if facts.full_share >= MOSTLY and facts.waiting:
        requests = "request waits" if facts.waiting == 1 else "requests wait"
        evidence = f"{full} of the last {len(facts.size)} batches were full, and {facts.waiting} {requests}."
        yield Finding("warning", "max_batch_size limits", evidence, "max_batch_size")
    elif full == 0 and (facts.previous_full_share or 0.0) >= MOSTLY:
        cap = facts.settings.max_batch_size
        evidence = f"None of the last {len(facts.size)} batches reached the cap of {cap}."
        yield Finding("check", "max_batch_size no longer limits", evidence)


def _load_as_share_of_capacity(facts: _Facts) -> Iterator[Finding]:
    if facts.offered_per_s is None or facts.capacity_per_s is None:
        return
    share = facts.offered_per_s / facts.capacity_per_s
    evidence = (
        f"{facts.offered_per_s:.1f} of {facts.capacity_per_s:.1f} requests/s at batch {facts.settings.max_batch_size}."
    )
    if share > 1:
        yield Finding("warning", "Load exceeds capacity", evidence, "max_batch_size")
    else:
        yield Finding("info", f"Load is {share:.0%} of capacity".replace("%", " %"), evidence)


def _timeout_matters(facts: _Facts) -> Iterator[Finding]:
    timeout_s = facts.settings.batch_wait_timeout_s
    if not facts.has_batches or timeout_s == 0 or facts.settings.formation != "late":
        return
    held_to_the_end = _share(facts.held_s >= 0.9 * timeout_s)
    if _share(facts.held_s <= AT_ONCE_S) >= MOSTLY:
        evidence = "A full batch was waiting whenever the engine came free."
        yield Finding("info", "batch_wait_timeout_s has no effect", evidence)
    elif held_to_the_end >= MOSTLY:
        mean = float(facts.size.mean())
        evidence = (
            f"The engine was free, yet batches waited {timeout_s:.3f} s and held {mean:.1f} of "
            f"{facts.settings.max_batch_size} requests."
        )
        yield Finding("info", "Batches wait their whole timeout", evidence, "batch_wait_timeout_s")


RULES: Final[tuple[Rule, ...]] = (
    _sealed_too_early,
    _requests_are_refused,
    _batch_size_limits,
    _load_as_share_of_capacity,
    _timeout_matters,
)


def _share(which: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float:
    return float(which.mean()) if len(which) else 0.0


def _held_s(history: History, batches: Ints) -> Floats:
    """From when the engine was free and the first member was in the queue until the batch started."""
    columns, requests = history.batches.columns, history.requests.columns
    if not len(batches):
        return np.zeros(0)
    earliest = np.full(len(columns), np.inf)
    rows = requests["batch"] - columns.first
    known = rows >= 0
    np.minimum.at(earliest, rows[known], requests["queued"][known])
    started, finished, slot = columns["started"], columns["finished"], columns["slot"]
    held = np.zeros(len(batches))
    for place, batch in enumerate(batches):
        before = finished[(slot == slot[batch]) & (finished <= started[batch] + AT_ONCE_S)]
        free_s = before.max() if len(before) else -np.inf
        held[place] = started[batch] - max(free_s, earliest[batch])
    return held


def _capacity_per_s(history: History, cap: int) -> float | None:
    """Requests a second with every batch at the cap: measured, or from a line through the time of a batch by size."""
    columns = history.batches.columns
    ran = np.isfinite(columns["finished"]) & np.isfinite(columns["started"]) & (columns["tokens"] > 0)
    size = columns["size"][ran].astype(np.float64)
    run_s = columns["finished"][ran] - columns["started"][ran]
    at_cap = size == cap
    if np.count_nonzero(at_cap) >= LEAST_BATCHES:
        return float(cap * np.count_nonzero(at_cap) / run_s[at_cap].sum()) * _replicas(history)
    if len(np.unique(size)) < 2 or cap > CAPACITY_REACH * size.max():
        return None
    slope, base = np.polyfit(size, run_s, 1)
    batch_s = float(base + slope * cap)
    return cap / batch_s * _replicas(history) if batch_s > 0 else None


def _replicas(history: History) -> int:
    return max(len(history.replicas), 1)
