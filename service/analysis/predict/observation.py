"""Everything that a prediction rests on, as one value that can travel to another process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from service.analysis.observed.batches import CONTINUOUS
from service.analysis.observed.columns import Bools, Columns, Ints
from service.analysis.observed.history import History
from service.analysis.predict.cost import LEAST_BATCHES, CostModel, Executed
from service.analysis.predict.load import OBSERVED_S, Arrival, PresentLoad, present_load
from service.analysis.predict.simulation import Start

TAILS: Final = 100  # latest batches from which `tail_s` is taken


@dataclass(frozen=True)
class Conditions:
    """The conditions of a simulation besides the settings and the engine.

    Attributes:
        tail_s: from a batch's last token to its end.
        max_ongoing_requests: the number that Ray lets a replica hold.
        places: batches that run at a time on one engine; their costs are known for this number only.
    """

    replicas: int = 1
    tail_s: float = 0.0
    max_ongoing_requests: int | None = None
    places: int = 1


@dataclass(frozen=True)
class Running:
    """A batch under way: its size and its run time so far, or in `continuous` the mean of its members'."""

    size: int
    for_s: float


@dataclass(frozen=True)
class Backlog:
    """The requests and batches under way at each replica; times count from that moment.

    Attributes:
        waiting: requests in the queue, oldest first.
        running: batches, as many as run at a time.
    """

    waiting: tuple[tuple[Arrival, ...], ...]
    running: tuple[tuple[Running, ...], ...]

    def as_start(self, cost: CostModel) -> Start:
        """The same with the ends of the running batches, which the cost model estimates."""
        left_s = [[max(cost.batch_s(each.size) - each.for_s, 0.0) for each in running] for running in self.running]
        return Start(self.waiting, tuple(map(tuple, left_s)))


def _tail_s(history: History, at_s: float) -> float:
    requests, batches = history.requests.columns, history.batches.columns
    done = np.flatnonzero((requests["batch"] >= batches.first) & (requests["finished"] <= at_s))
    rows: Ints = requests["batch"][done] - batches.first
    last_s = np.full(len(batches), -np.inf)
    np.maximum.at(last_s, rows, requests["finished"][done])
    known = np.isfinite(last_s) & (batches["finished"] <= at_s) & (batches["formation"] != CONTINUOUS)
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


def _running(history: History, slot: int, at_s: float) -> Iterator[Running]:
    table = history.batches.columns
    for row in np.flatnonzero(_runs(table, slot, at_s)):
        for_s = at_s - float(table["started"][row])
        if table["formation"][row] == CONTINUOUS:
            begun_s = history.requests.columns["started"][_runs(history.requests.columns, slot, at_s)]
            for_s = float(at_s - begun_s.mean()) if len(begun_s) else for_s
        yield Running(int(table["size"][row]), for_s)


def _runs(table: Columns, slot: int, at_s: float) -> Bools:
    """Which requests or batches were running in a slot."""
    runs: Bools = (table["slot"] == slot) & (table["started"] <= at_s) & (table["finished"] > at_s)
    return runs


@dataclass(frozen=True)
class Observation:
    """The load, the batches and the state of a service at one moment."""

    load: PresentLoad
    executed: Executed
    conditions: Conditions
    backlog: Backlog

    @classmethod
    def of_history(cls, history: History, at_s: float | None = None, over_s: float = OBSERVED_S) -> Observation | None:
        """The observation of the last `over_s` before `at_s` (now); ``None`` for too few requests or batches."""
        latest_s = min(history.now_s() if at_s is None else at_s, history.last_s or 0.0)
        load, executed = present_load(history, latest_s, over_s), Executed.of_history(history, latest_s)
        if load is None or len(executed) < LEAST_BATCHES:
            return None
        if executed.pieces_per_token > 1.0:
            tokens = np.ones_like(load.requests.tokens)  # a request of a function is one call, whatever it streams
            load = replace(load, requests=replace(load.requests, tokens=tokens))
        conditions = Conditions(
            replicas=max(len(history.replicas), 1),
            tail_s=_tail_s(history, latest_s),
            max_ongoing_requests=history.replicas[0].max_ongoing_requests if history.replicas else None,
            places=history.in_force.settings.places if history.in_force is not None else 1,
        )
        slots = range(conditions.replicas)
        backlog = Backlog(
            tuple(tuple(_waiting(history.requests.columns, slot, latest_s)) for slot in slots),
            tuple(tuple(_running(history, slot, latest_s)) for slot in slots),
        )
        return cls(load, executed, conditions, backlog)


def as_list(array: object) -> list[Any]:
    """An array for `msgspec`, which has none; NaN becomes null."""
    if isinstance(array, np.ndarray):
        return list(array.tolist())
    raise NotImplementedError(f"objects of type {type(array).__name__} are not sent")


def as_array(kind: type, values: list[Any]) -> Any:
    """The inverse of `as_list`."""
    return np.array([np.nan if value is None else value for value in values])


ENCODER: Final = msgspec.json.Encoder(enc_hook=as_list)
