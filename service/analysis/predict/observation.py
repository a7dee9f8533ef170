"""Everything that a prediction rests on, as one value that can travel to another process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from service.analysis.observed.batches import CONTINUOUS
from service.analysis.observed.columns import Bools, Columns, Ints
from service.analysis.observed.contention import contentions
from service.analysis.observed.history import History
from service.analysis.observed.requests import FIRST_FINAL_CODE
from service.analysis.observed.rolling import WINDOW_S
from service.analysis.predict.cost import LEAST_BATCHES, CostModel, Executed
from service.analysis.predict.engine import decoding_s, reading_s
from service.analysis.predict.load import OBSERVED_S, Arrival, PresentLoad, present_load
from service.analysis.predict.replicas import RunningBatch, Underway
from service.analysis.predict.simulation import Held, Start

TAILS: Final = 100  # latest batches from which `tail_s` is taken


@dataclass(frozen=True)
class Conditions:
    """The conditions of a simulation besides the settings and the engine.

    Attributes:
        tail_s: from a batch's last token to its end.
        max_ongoing_requests: the number that Ray lets a replica hold.
        places: batches that run at a time on one engine; their costs are known for this number only.
        device: on which the engines compute, in torch's name of it.
        memory_tokens: what the memory of an engine holds; 0 where that is not known.
        is_fitted: a request goes to the replica whose batch it fits, and not to one of Ray's choice.
    """

    replicas: int = 1
    tail_s: float = 0.0
    max_ongoing_requests: int | None = None
    places: int = 1
    device: str = "cpu"
    memory_tokens: int = 0
    is_fitted: bool = False


@dataclass(frozen=True)
class Running:
    """A batch under way: its members, the tokens that each has by now, and how long it has run."""

    members: tuple[Arrival, ...]
    made: tuple[int, ...]
    for_s: float
    is_open: bool

    def as_start(self, cost: CostModel) -> RunningBatch:
        """The same with the time that each member still needs by the cost model."""
        left = [max(member.tokens - made, 1) for member, made in zip(self.members, self.made, strict=True)]
        until_s = decoding_s(cost, left)
        if self.members and not any(self.made):  # the prompts may still be read
            begun_s = reading_s(cost, self.members) - self.for_s
            until_s = {tokens: max(begun_s + each_s, 0.0) for tokens, each_s in until_s.items()}
        members = tuple(Underway(m, n, until_s[n]) for m, n in zip(self.members, left, strict=True))
        return RunningBatch(members, max(until_s.values(), default=0.0), self.is_open)


@dataclass(frozen=True)
class ReplicaBacklog:
    """The requests and batches under way at a replica; see `Held`."""

    waiting: tuple[Arrival, ...] = ()
    sealed: tuple[tuple[Arrival, ...], ...] = ()
    running: tuple[Running, ...] = ()


@dataclass(frozen=True)
class Backlog:
    """All that is under way; times count from that moment.

    Attributes:
        coming: requests that were sent and stand in no queue yet.
    """

    replicas: tuple[ReplicaBacklog, ...]
    coming: tuple[Arrival, ...] = ()

    @property
    def waiting(self) -> int:
        """The number of requests that wait, in sealed batches too."""
        return len(self.coming) + sum(len(each.waiting) + sum(map(len, each.sealed)) for each in self.replicas)

    @property
    def requests(self) -> int:
        """The number of requests under way."""
        return self.waiting + sum(len(batch.members) for each in self.replicas for batch in each.running)

    def as_start(self, cost: CostModel) -> Start:
        replicas = (
            Held(each.waiting, each.sealed, tuple(batch.as_start(cost) for batch in each.running))
            for each in self.replicas
        )
        return Start(tuple(replicas), self.coming)


def _tail_s(history: History, at_s: float) -> float:
    requests, batches = history.requests.columns, history.batches.columns
    done = np.flatnonzero((requests["batch"] >= batches.first) & (requests["finished"] <= at_s))
    rows: Ints = requests["batch"][done] - batches.first
    last_s = np.full(len(batches), -np.inf)
    np.maximum.at(last_s, rows, requests["finished"][done])
    known = np.isfinite(last_s) & (batches["finished"] <= at_s) & (batches["formation"] != CONTINUOUS)
    tails = (batches["finished"][known] - last_s[known])[-TAILS:]
    return max(float(np.median(tails)), 0.0) if len(tails) else 0.0


@dataclass(frozen=True)
class _Underway:
    """Reads the backlog from a history.

    Attributes:
        share: of their `max_tokens`, which requests generate.
    """

    history: History
    at_s: float
    share: float | None

    def backlog(self, replicas: int) -> Backlog:
        table = self.history.requests.columns
        sent = (table["intended"] <= self.at_s) & (table["queued"] > self.at_s) & (table["prompt_tokens"] >= 0)
        coming = np.flatnonzero(sent & (table["client_finished"] > self.at_s) & (table["finished"] > self.at_s))
        return Backlog(tuple(map(self._replica, range(replicas))), tuple(map(self._arrival, coming.tolist())))

    def _replica(self, slot: int) -> ReplicaBacklog:
        table = self.history.requests.columns
        started_s = np.minimum(table["started"], table["finished"])
        present = (table["slot"] == slot) & (table["queued"] <= self.at_s) & (started_s > self.at_s)
        rows = np.flatnonzero(present)
        rows = rows[np.argsort(table["queued"][rows], kind="stable")]
        is_sealed = table["formed"][rows] <= self.at_s
        batch = table["batch"][rows]
        sealed = (rows[is_sealed & (batch == each)] for each in np.unique(batch[is_sealed]))
        return ReplicaBacklog(
            waiting=tuple(map(self._arrival, rows[~is_sealed].tolist())),
            sealed=tuple(tuple(map(self._arrival, members.tolist())) for members in sealed),
            running=tuple(self._running(slot)),
        )

    def _running(self, slot: int) -> Iterator[Running]:
        batches, requests = self.history.batches.columns, self.history.requests.columns
        runs = _runs(requests, slot, self.at_s)
        for row in np.flatnonzero(_runs(batches, slot, self.at_s)):
            is_open = bool(batches["formation"][row] == CONTINUOUS)
            members = np.flatnonzero(runs if is_open else runs & (requests["batch"] - batches.first == row))
            made = requests["tokens"][members] if self.share is not None else np.zeros(len(members), int)
            for_s = self.at_s - float(batches["started"][row])
            yield Running(tuple(map(self._arrival, members.tolist())), tuple(made.tolist()), for_s, is_open)

    def _arrival(self, row: int) -> Arrival:
        table = self.history.requests.columns
        queued_s = min(float(table["queued"][row]), self.at_s)
        intended_s = float(min(table["intended"][row], table["received"][row], queued_s))
        tokens = 1.0 if self.share is None else float(table["max_tokens"][row]) * self.share
        prompt_tokens = max(int(table["prompt_tokens"][row]), 0)
        return Arrival(intended_s - self.at_s, queued_s - self.at_s, max(round(tokens), 1), prompt_tokens)


def _generated_share(history: History, at_s: float) -> float:
    """What requests that ended generated, as a share of what they might have."""
    table = history.requests.columns
    done = (table["state"] >= FIRST_FINAL_CODE) & (table["finished"] <= at_s) & (table["tokens"] > 0)
    most = int(table["max_tokens"][done].sum())
    return min(float(table["tokens"][done].sum()) / most, 1.0) if most > 0 else 1.0


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
        """The observation of the last `over_s` before `at_s` (now), but not of what was before the engine was slowed.

        ``None`` for too few requests or batches, and for ten seconds after the engine was slowed.
        """
        latest_s = min(history.now_s() if at_s is None else at_s, history.last_s or 0.0)
        slowed = contentions(history, latest_s)[-1:]
        if slowed and slowed[0].overlaps(latest_s - WINDOW_S, latest_s):
            return None
        over_s = min([over_s, *(latest_s - each.end_s for each in slowed if each.end_s is not None)])
        load, executed = present_load(history, latest_s, over_s), Executed.of_history(history, latest_s)
        if load is None or len(executed) < LEAST_BATCHES:
            return None
        is_call = executed.pieces_per_token > 1.0
        if is_call:
            tokens = np.ones_like(load.requests.tokens)  # a request of a function is one call, whatever it streams
            load = replace(load, requests=replace(load.requests, tokens=tokens))
        conditions = Conditions(
            replicas=max(len(history.replicas), 1),
            tail_s=_tail_s(history, latest_s),
            max_ongoing_requests=history.replicas[0].max_ongoing_requests if history.replicas else None,
            places=history.in_force.settings.places if history.in_force is not None else 1,
            device=history.replicas[0].device if history.replicas else "cpu",
            memory_tokens=(history.replicas[0].memory_tokens or 0) if history.replicas else 0,
            is_fitted=history.replicas[0].is_fitted if history.replicas else False,
        )
        share = None if is_call else _generated_share(history, latest_s)
        backlog = _Underway(history, latest_s, share).backlog(conditions.replicas)
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
