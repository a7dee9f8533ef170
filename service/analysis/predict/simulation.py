"""An exact simulation of how batches are formed, event by event, on a simulated clock, and its figures.

The formations follow the rules of `service/batching`: a late batch is released when it is full or when a free
engine has waited `batch_wait_timeout_s` for it; an early one is sealed that long after its first request whatever the
engine does, and waits for its turn; a continuous one begins as a late one, and then requests join and leave between
steps. An `Engine` gives the cost of a batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, pairwise
from random import Random
from typing import Final, NamedTuple

import numpy as np

from service.analysis.observed.batches import mean_size
from service.analysis.predict.cost import CostModel
from service.analysis.predict.load import Arrival, Load
from service.analysis.predict.replicas import (
    Continuous,
    Early,
    Engine,
    Late,
    Replica,
    SimulatedBatch,
    SimulatedRequest,
    SimulatedRun,
)
from service.messages.settings import Formation, Settings

MOST_EVENTS: Final = 2_000_000  # a simulation ends, whatever the load
REPLICA_OF: Final[Mapping[Formation, type[Replica]]] = {"late": Late, "early": Early, "continuous": Continuous}
LEAST_S: Final = 1e-4
GROWTH: Final = 0.05  # a queue that keeps this share of the arrivals grows without bound
REFUSALS: Final = 0.01


@dataclass(frozen=True)
class Start:
    """The state in which a simulation begins.

    Attributes:
        waiting: requests in each replica's queue, oldest first; their `Arrival`s lie in the past.
        busy_until_s: ends of the batches that run on each replica's engine.
    """

    waiting: tuple[tuple[Arrival, ...], ...]
    busy_until_s: tuple[tuple[float, ...], ...]


def simulate(
    settings: Settings,
    engine: Engine,
    load: Load,
    until_s: float,
    *,
    replicas: int = 1,
    max_ongoing_requests: int | None = None,
    start: Start | None = None,
    seed: int = 0,
) -> SimulatedRun:
    """Simulate the load from 0 until `until_s`; requests sent before then are followed to their ends."""
    simulator = _EventSimulator(engine, load, until_s, max_ongoing_requests, Random(seed))
    simulator.replicas += [REPLICA_OF[settings.formation](simulator, number, settings) for number in range(replicas)]
    for arrival in load.first(until_s):
        simulator.call_at(arrival.enqueued_s, simulator.arrive, arrival)
    if start is not None:
        simulator.begin_with(start)
    for _ in range(MOST_EVENTS):
        if not simulator.events:
            break
        at_s, _, handle, what = heappop(simulator.events)
        handle(at_s, what)
    return simulator.run


@dataclass
class _EventSimulator:
    """The clock with its schedule of events, the router, and the replicas behind it."""

    engine: Engine
    load: Load
    until_s: float
    max_ongoing: int | None
    random: Random
    run: SimulatedRun = field(default_factory=SimulatedRun)
    replicas: list[Replica] = field(default_factory=list)
    outside: deque[SimulatedRequest] = field(default_factory=deque)  # requests that no replica may hold yet
    events: list[tuple[float, int, Callable[[float, object], None], object]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)  # of events, for their order at one moment

    def begin_with(self, start: Start) -> None:
        for replica, waiting, busy_until_s in zip(self.replicas, start.waiting, start.busy_until_s, strict=True):
            replica.occupy(busy_until_s)
            for arrival in waiting:
                request = SimulatedRequest(arrival, arrival.enqueued_s)
                self.run.requests.append(request)
                replica.held += 1
                replica.enqueue(arrival.enqueued_s, request)

    def call_at(self, at_s: float, handle: Callable[[float, object], None], what: object) -> None:
        heappush(self.events, (at_s, next(self.numbers), handle, what))

    def ran(self, batch: SimulatedBatch, ended: Sequence[tuple[SimulatedRequest, float]], replica: Replica) -> None:
        self.run.batches.append(batch)
        return_s = self.load.return_s() if ended else 0.0
        for request, finished_s in ended:
            request.finished_s, request.answered_s = finished_s, finished_s + return_s
            if len(self.replicas) > 1 or self.max_ongoing is not None:
                self.call_at(finished_s, self._leave, replica)
            self._follow(request.answered_s)

    def _follow(self, answered_s: float) -> None:
        following = self.load.next(answered_s)
        if following is not None and following.intended_s < self.until_s:
            self.call_at(following.enqueued_s, self.arrive, following)

    def arrive(self, at_s: float, arrival: object) -> None:
        assert isinstance(arrival, Arrival)
        request = SimulatedRequest(arrival, at_s)
        self.run.requests.append(request)
        self._admit(at_s, request)

    def _admit(self, at_s: float, request: SimulatedRequest) -> None:
        replica = self._chosen()
        if self.max_ongoing is not None and replica.held >= self.max_ongoing:
            self.outside.append(request)
        elif replica.is_full:
            request.refused = True
            request.answered_s = at_s + self.load.return_s()
            self._follow(request.answered_s + self.load.pause_after_refusal_s)
        else:
            replica.held += 1
            request.enqueued_s = at_s
            replica.enqueue(at_s, request)

    def _chosen(self) -> Replica:
        """The replica with fewer requests of two picked at random, as Ray's router chooses."""
        if len(self.replicas) == 1:
            return self.replicas[0]
        one, other = self.random.sample(self.replicas, 2)
        return one if one.held <= other.held else other

    def _leave(self, at_s: float, replica: object) -> None:
        assert isinstance(replica, Replica)
        assert replica.held > 0, "a request leaves the replica that holds it"
        replica.held -= 1
        if self.outside:
            self._admit(at_s, self.outside.popleft())


class FittedEngine:
    """An engine whose times are the cost model's, times the residual of a random observed batch.

    `tail_s` is from the last token to the end of the batch, which is part of the batch's time only.
    """

    def __init__(self, cost: CostModel, random: Random, tail_s: float = 0.0) -> None:
        self._cost = cost
        self._random = random
        self._residuals: list[float] = cost.residuals.tolist()
        self._tail_s = tail_s

    def read_s(self, joining: Sequence[Arrival]) -> float:
        longest = max((each.prompt_tokens for each in joining), default=0)  # prompts are padded to one length
        return self._cost.prompt_token_s * len(joining) * longest * self._random.choice(self._residuals)

    def step_s(self, rows: int) -> float:
        return max((self._cost.step_s + self._cost.row_s * rows) * self._random.choice(self._residuals), LEAST_S)

    def run(self, members: Sequence[Arrival]) -> tuple[float, list[float]]:
        cost, factor = self._cost, self._random.choice(self._residuals)
        read_s = cost.overhead_s + cost.prompt_token_s * len(members) * max(m.prompt_tokens for m in members)
        lengths = [member.tokens for member in members]
        done_s = {n: max((read_s + decode_s) * factor, LEAST_S) for n, decode_s in self._decode_s(lengths).items()}
        run_s = max(done_s.values())
        tail_s = min(self._tail_s, run_s)
        return run_s, [max(done_s[n] - tail_s, LEAST_S) for n in lengths]

    def _decode_s(self, lengths: list[int]) -> dict[int, float]:
        """The time until completions of each length are done: the rows grow fewer as the short ones end."""
        ends = sorted(set(lengths))
        elapsed_s, left, result = 0.0, len(lengths), {}
        for before, end in pairwise((0, *ends)):
            elapsed_s += (end - before) * (self._cost.step_s + self._cost.row_s * left)
            result[end] = elapsed_s
            left -= lengths.count(end)
        return result


class SimulatedFigures(NamedTuple):
    """The figures of a simulated run; see `Prediction`. 0 where there was nothing to count."""

    p50_s: float
    p95_s: float
    requests_per_s: float
    tokens_per_s: float
    mean_batch: float
    refused_share: float


def figures_of(run: SimulatedRun, begin_s: float, end_s: float) -> SimulatedFigures:
    """Latencies of the requests intended within that time, and rates and batches of that time."""
    intended = [request for request in run.requests if begin_s <= request.arrival.intended_s < end_s]
    served = [r.answered_s - r.arrival.intended_s for r in intended if not r.refused and r.answered_s is not None]
    answered = [
        r.arrival.tokens
        for r in run.requests
        if not r.refused and r.answered_s is not None and begin_s <= r.answered_s < end_s
    ]
    ran = [batch for batch in run.batches if begin_s <= batch.started_s < end_s]
    run_s = np.array([batch.finished_s - batch.started_s for batch in ran])
    mean_batch = mean_size(np.array([len(b.members) for b in ran]), run_s, np.array([b.is_open for b in ran], np.bool_))
    p50_s, p95_s = np.percentile(served, (50.0, 95.0)) if served else (0.0, 0.0)
    return SimulatedFigures(
        p50_s=float(p50_s),
        p95_s=float(p95_s),
        requests_per_s=len(answered) / (end_s - begin_s),
        tokens_per_s=sum(answered) / (end_s - begin_s),
        mean_batch=mean_batch or 0.0,
        refused_share=sum(request.refused for request in intended) / len(intended) if intended else 0.0,
    )


def is_growing(run: SimulatedRun, until_s: float) -> bool:
    """Whether the last two thirds of the arrivals left more requests than they found, or many were refused."""
    intended_s = np.array([request.arrival.intended_s for request in run.requests])
    ends_s = np.array([np.inf if r.answered_s is None else r.answered_s for r in run.requests])
    refused = np.array([request.refused for request in run.requests])

    def present(at_s: float) -> int:
        return int(np.count_nonzero((intended_s <= at_s) & (ends_s > at_s)))

    since_s = until_s / 3
    arrived = np.count_nonzero(intended_s > since_s)
    grown = present(until_s) - present(since_s)
    return bool(grown > GROWTH * arrived or refused.mean() > REFUSALS) if arrived else False
