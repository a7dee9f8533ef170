"""An exact simulation of how batches are formed, event by event, on a simulated clock.

The formations follow the rules of `service/batching`: a late batch is released when it is full or when a free
engine has waited `batch_wait_timeout_s` for it; an early one is sealed that long after its first request whatever the
engine does, and waits for its turn; a continuous one begins as a late one, and then requests join and leave between
steps. An `Engine` gives the cost of a batch.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Final

from service.analysis.predict.load import Arrival, Load
from service.analysis.predict.replicas import (
    Continuous,
    Early,
    Engine,
    Late,
    Replica,
    RunningBatch,
    SimulatedBatch,
    SimulatedRequest,
    SimulatedRun,
)
from service.batching.mirror import Mirror, fitted_rules, ranks
from service.batching.rules import Rules
from service.messages.settings import Formation, Settings

MOST_EVENTS: Final = 2_000_000  # a simulation ends, whatever the load
REPLICA_OF: Final[Mapping[Formation, type[Replica]]] = {"late": Late, "early": Early, "continuous": Continuous}


@dataclass(frozen=True)
class Held:
    """What a replica holds when a simulation begins; its `Arrival`s lie in the past.

    Attributes:
        waiting: requests in the queue, oldest first.
        sealed: batches that were sealed and wait for the engine, oldest first.
        running: batches, as many as run at a time.
    """

    waiting: tuple[Arrival, ...] = ()
    sealed: tuple[tuple[Arrival, ...], ...] = ()
    running: tuple[RunningBatch, ...] = ()


@dataclass(frozen=True)
class Start:
    """The state in which a simulation begins.

    Attributes:
        coming: requests that were sent and stand in no queue yet.
    """

    replicas: tuple[Held, ...]
    coming: tuple[Arrival, ...] = ()


class Router:
    """Chooses the replica of each request, where there are several."""

    def choose(self, at_s: float, request: SimulatedRequest, replicas: Sequence[Replica], random: Random) -> Replica:
        """The replica that is to take the request."""
        raise NotImplementedError

    def sent(self, at_s: float, request: SimulatedRequest, replica: Replica) -> None:
        """Note that the replica has taken it, or held it as the simulation began."""

    def ended(self, at_s: float, request: SimulatedRequest) -> None:
        """Note that it has ended."""


class FewerOfTwo(Router):
    """Serve's own: the replica with fewer requests of two picked at random."""

    def choose(self, _at_s: float, _request: SimulatedRequest, replicas: Sequence[Replica], random: Random) -> Replica:
        one, other = random.sample(replicas, 2)
        return one if one.held <= other.held else other


class Fitting(Router):
    """As `service.ray_serve.router`: the replica whose batch it fits, by what was sent and what has ended."""

    def __init__(self, settings: Settings) -> None:
        self._rules = fitted_rules(settings)
        self._mirrors = defaultdict[Replica, Mirror](Mirror)
        self._sent: dict[SimulatedRequest, Mirror] = {}

    def choose(self, at_s: float, _request: SimulatedRequest, replicas: Sequence[Replica], random: Random) -> Replica:
        order = ranks([self._mirrors[each].standing(self._rules, at_s) for each in replicas])
        best = min(order)
        return random.choice([each for each, rank in zip(replicas, order, strict=True) if rank == best])

    def sent(self, at_s: float, request: SimulatedRequest, replica: Replica) -> None:
        self._sent[request] = self._mirrors[replica]
        self._mirrors[replica].send(f"{id(request)}", at_s)

    def ended(self, at_s: float, request: SimulatedRequest) -> None:
        self._sent.pop(request).end(f"{id(request)}", at_s)


def simulate(
    settings: Settings,
    engine: Engine,
    load: Load,
    until_s: float,
    *,
    replicas: int = 1,
    max_ongoing_requests: int | None = None,
    memory_tokens: int = 0,
    start: Start | None = None,
    seed: int = 0,
    router: Router | None = None,
) -> SimulatedRun:
    """Simulate the load from 0 until `until_s`; requests sent before then are followed to their ends.

    Args:
        router: Serve's own, if it is not given.
    """
    simulator = _EventSimulator(engine, load, until_s, max_ongoing_requests, Random(seed), router or FewerOfTwo())
    rules = Rules.of(settings, memory_tokens=memory_tokens)
    made = (REPLICA_OF[settings.formation](simulator, number, settings, rules) for number in range(replicas))
    simulator.replicas += made
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
    router: Router
    run: SimulatedRun = field(default_factory=SimulatedRun)
    replicas: list[Replica] = field(default_factory=list)
    outside: deque[SimulatedRequest] = field(default_factory=deque)  # requests that no replica may hold yet
    events: list[tuple[float, int, Callable[[float, object], None], object]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)  # of events, for their order at one moment

    def begin_with(self, start: Start) -> None:
        for replica, held in zip(self.replicas, start.replicas, strict=True):
            replica.occupy(held.running, held.sealed)
            for arrival in held.waiting:
                replica.enqueue(arrival.enqueued_s, self.present(arrival, replica))
        for arrival in start.coming:
            self.call_at(0.0, self.arrive, arrival)

    def present(self, arrival: Arrival, replica: Replica) -> SimulatedRequest:
        request = SimulatedRequest(arrival, arrival.enqueued_s)
        self.run.requests.append(request)
        self._take(0.0, request, replica)
        return request

    def call_at(self, at_s: float, handle: Callable[[float, object], None], what: object) -> None:
        heappush(self.events, (at_s, next(self.numbers), handle, what))

    def ran(self, batch: SimulatedBatch, ended: Sequence[tuple[SimulatedRequest, float]], replica: Replica) -> None:
        self.run.batches.append(batch)
        return_s = self.load.return_s() if ended else 0.0
        for request, finished_s in ended:
            request.finished_s, request.answered_s = finished_s, finished_s + return_s
            if len(self.replicas) > 1 or self.max_ongoing is not None:
                self.call_at(finished_s, self._leave, (replica, request))
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
        several = self.replicas
        replica = several[0] if len(several) == 1 else self.router.choose(at_s, request, several, self.random)
        if self.max_ongoing is not None and replica.held >= self.max_ongoing:
            self.outside.append(request)
        elif replica.is_full:
            request.refused = True
            request.answered_s = at_s + self.load.return_s()
            self._follow(request.answered_s + self.load.pause_after_refusal_s)
        else:
            self._take(at_s, request, replica)
            request.enqueued_s = at_s
            replica.enqueue(at_s, request)

    def _take(self, at_s: float, request: SimulatedRequest, replica: Replica) -> None:
        replica.held += 1
        if len(self.replicas) > 1:
            self.router.sent(at_s, request, replica)

    def _leave(self, at_s: float, what: object) -> None:
        assert isinstance(what, tuple)
        replica, request = what
        assert replica.held > 0, "a request leaves the replica that holds it"
        replica.held -= 1
        if len(self.replicas) > 1:
            self.router.ended(at_s, request)
        if self.outside:
            self._admit(at_s, self.outside.popleft())
