"""What stands at a moment: replicas, their queues and running batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from service.observed.columns import Columns, Ints
from service.observed.history import History
from service.predict.cost import CostModel
from service.predict.load import Arrival
from service.predict.simulate import Start

TAILS: Final = 100  # batches from which the end of a batch is told


@dataclass(frozen=True)
class Surroundings:
    """What a simulation has to know of the service besides its settings and its engine.

    Attributes:
        tail_s: from a batch's last token to its end.
        max_ongoing_requests: that Ray lets a replica hold.
    """

    replicas: int = 1
    tail_s: float = 0.0
    max_ongoing_requests: int | None = None


def surroundings(history: History, at_s: float) -> Surroundings:
    return Surroundings(
        replicas=max(len(history.replicas), 1),
        tail_s=_tail_s(history, at_s),
        max_ongoing_requests=history.replicas[0].max_ongoing_requests if history.replicas else None,
    )


def present_start(history: History, at_s: float, cost: CostModel, replicas: int) -> Start:
    """The queues and the running batches at `at_s`, with that moment as 0."""
    slots = range(replicas)
    return Start(
        tuple(tuple(_waiting(history.requests.columns, slot, at_s)) for slot in slots),
        tuple(_busy_until_s(history.batches.columns, slot, at_s, cost) for slot in slots),
    )


def _tail_s(history: History, at_s: float) -> float:
    requests, batches = history.requests.columns, history.batches.columns
    done = np.flatnonzero((requests["batch"] >= batches.first) & (requests["finished"] <= at_s))
    rows: Ints = requests["batch"][done] - batches.first
    last_s = np.full(len(batches), -np.inf)
    np.maximum.at(last_s, rows, requests["finished"][done])
    known = np.isfinite(last_s) & (batches["finished"] <= at_s)
    tails = (batches["finished"][known] - last_s[known])[-TAILS:]
    return max(float(np.median(tails)), 0.0) if len(tails) else 0.0


def _waiting(table: Columns, slot: int, at_s: float) -> Iterator[Arrival]:
    started_s = np.minimum(table["started"], table["finished"])
    rows = np.flatnonzero((table["slot"] == slot) & (table["queued"] <= at_s) & (started_s > at_s))
    for row in rows[np.argsort(table["queued"][rows], kind="stable")]:
        queued_s = float(table["queued"][row])
        intended_s = float(min(table["intended"][row], queued_s))
        tokens, prompt_tokens = int(table["max_tokens"][row]), int(table["prompt_tokens"][row])
        yield Arrival(intended_s - at_s, queued_s - at_s, max(tokens, 1), max(prompt_tokens, 0))


def _busy_until_s(table: Columns, slot: int, at_s: float, cost: CostModel) -> float:
    running = np.flatnonzero((table["slot"] == slot) & (table["started"] <= at_s) & (table["finished"] > at_s))
    if not len(running):
        return 0.0
    row = running[-1]
    return max(cost.batch_s(float(table["size"][row])) - (at_s - float(table["started"][row])), 0.0)
