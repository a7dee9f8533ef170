"""A service in the simulator whose settings change while requests run, on a clock that its user moves.

What it does from a change on is simulated from the state at that moment. Nothing of it is fitted: the engine's prices
are given, and a controller sees the requests, the backlog, and prices that may be a little wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, NamedTuple

import numpy as np

from service.analysis.goal.hold import RECENT_S, Hold, Move, Recent, Said, Seen
from service.analysis.predict.cost import CostModel
from service.analysis.predict.engine import FittedEngine
from service.analysis.predict.figures import RequestTimes, times_of
from service.analysis.predict.load import Arrival, ClosedLoop, Load, OpenLoop, PresentLoad, Requests, ReturnDelays
from service.analysis.predict.observation import Backlog, Conditions, ReplicaBacklog, Running
from service.analysis.predict.predict import Predictor
from service.analysis.predict.replicas import RunningBatch, SimulatedBatch, SimulatedRequest, SimulatedRun, Underway
from service.analysis.predict.simulation import Held, Start, simulate
from service.messages.objectives import Objectives
from service.messages.settings import Settings

AT_ONCE: Final = ((ReturnDelays(0.0, 0.0),),)
LEAST_ASKED: Final = 8
LONGER_S: Final = 30.0


@dataclass(frozen=True)
class Answered:
    """A request of which all is known; `times` is ``None`` for one that was refused. Times are the service's."""

    intended_s: float
    ended_s: float
    times: RequestTimes | None

    def is_good(self, objectives: Objectives) -> bool:
        return self.times is not None and objectives.are_met(*self.times)


class Done(NamedTuple):
    """What a controller did or said, and when."""

    at_s: float
    step: Move | Said


@dataclass
class SimulatedService:
    """One replica under `arrivals`, or under `users` that send requests like these in a closed loop.

    Attributes:
        until_s: nothing is asked from then on.
        cost: what batches take.
        believed: what a controller believes of that; see `seen`.
        at_s: the present.
        ahead_s: how far it is simulated from a change on; what comes later is not asked.
    """

    arrivals: Sequence[Arrival]
    until_s: float
    cost: CostModel
    believed: CostModel
    settings: Settings
    users: int = 0
    seed: int = 0
    at_s: float = 0.0
    ahead_s: float = math.inf
    asked: list[Answered] = field(default_factory=list)
    _begun_s: float = 0.0  # of the run
    _firsts_s: dict[float, float] = field(default_factory=dict)  # first tokens before that, by the intended time
    _run: SimulatedRun = field(default_factory=SimulatedRun)
    _random: Random = field(default_factory=Random)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self._go_on(None, 0)

    def change(self, settings: Settings) -> None:
        """Put settings in force, now."""
        backlog, held = self._state()
        now_s = self._now_s
        self.asked += [self._answered(each) for each in self._run.requests if _ended_s(each) <= now_s]
        for each in self._run.requests:
            if each.first_s is not None and each.first_s <= now_s < _ended_s(each):
                self._firsts_s[self._begun_s + each.arrival.intended_s] = self._begun_s + each.first_s
        self._begun_s, self.settings = self.at_s, settings
        self._go_on(Start((held,)), backlog.requests)

    def fork(self) -> SimulatedService:
        """A service in the same state, which goes its own way."""
        other = copy(self)
        other.asked, other._firsts_s, other._random = [*self.asked], {**self._firsts_s}, deepcopy(self._random)
        return other

    def requests(self) -> list[Answered]:
        """All that were asked until `until_s`, each with its end, by the settings in force now."""
        return [*self.asked, *(self._answered(each) for each in self._run.requests)]

    def seen(self, objectives: Objectives, since_s: float) -> Seen:
        """What a controller knows now; of what ended before `since_s` it counts nothing as recent."""
        load = self._load_seen(RECENT_S) or self._load_seen(LONGER_S)
        predictor = None if load is None else Predictor(load, self.believed, Conditions(), self._state()[0])
        return Seen(self.at_s, self.settings, self._recent(objectives, since_s), predictor)

    @property
    def _now_s(self) -> float:
        """On the clock of the present run."""
        return self.at_s - self._begun_s

    def _go_on(self, start: Start | None, present: int) -> None:
        left_s = min(self.until_s - self._begun_s, self.ahead_s)
        engine = FittedEngine(self.cost, Random(f"{self.seed} {self._begun_s}"), 0.0)
        self._run = simulate(self.settings, engine, self._load(present), left_s, start=start, seed=self.seed)

    def _load(self, present: int) -> Load:
        if self.users:
            lengths = [(each.tokens, each.prompt_tokens) for each in self.arrivals]

            def make(at_s: float, before_s: float) -> Arrival:
                return Arrival(at_s, at_s + before_s, *self._random.choice(lengths))

            return ClosedLoop(self.users, make, self._random, AT_ONCE, present=min(present, self.users))
        return OpenLoop([_shifted(each, self._begun_s) for each in self.arrivals if each.enqueued_s > self._begun_s])

    def _state(self) -> tuple[Backlog, Held]:
        """What waits and runs now, as a controller sees it and as the simulator takes it."""
        now_s = self._now_s
        here = [each for each in self._run.requests if each.enqueued_s <= now_s < _ended_s(each)]
        running = [batch for batch in self._run.batches if batch.started_s <= now_s < batch.finished_s]
        formed = [batch for batch in self._run.batches if batch.formed_s <= now_s < batch.started_s]
        in_batch = {id(member) for batch in (*running, *formed) for member in batch.members}
        waiting = tuple([_shifted(each.arrival, now_s) for each in here if id(each) not in in_batch])
        sealed = tuple([tuple(_shifted(each.arrival, now_s) for each in batch.members) for batch in formed])
        batches = [(batch, [each for each in batch.members if _ended_s(each) > now_s]) for batch in running]
        held = tuple([self._running(batch, members) for batch, members in batches])
        known = tuple([self._known(batch, members) for batch, members in batches])
        return Backlog((ReplicaBacklog(waiting, sealed, known),)), Held(waiting, sealed, held)

    def _running(self, batch: SimulatedBatch, members: Sequence[SimulatedRequest]) -> RunningBatch:
        now_s = self._now_s
        left = [
            Underway(_shifted(each.arrival, now_s), each.arrival.tokens - self._made(each), _ended_s(each) - now_s)
            for each in members
        ]
        ends_s = max((each.done_s for each in left), default=0.0)
        return RunningBatch(tuple(left), ends_s if batch.is_open else batch.finished_s - now_s, batch.is_open)

    def _known(self, batch: SimulatedBatch, members: Sequence[SimulatedRequest]) -> Running:
        arrivals = tuple([_shifted(each.arrival, self._now_s) for each in members])
        return Running(arrivals, tuple(map(self._made, members)), self._now_s - batch.started_s, batch.is_open)

    def _made(self, request: SimulatedRequest) -> int:
        """Tokens that it has by now, evenly over its run."""
        started_s = request.started_s or 0.0
        share = (self._now_s - started_s) / max(_ended_s(request) - started_s, 1e-9)
        return min(int(share * request.arrival.tokens), request.arrival.tokens - 1)

    def _load_seen(self, over_s: float) -> PresentLoad | None:
        """The load of the last seconds; ``None`` for too few requests."""
        begin_s = max(self.at_s - over_s, 0.0)
        if self.users:
            before = {each.intended_s: each for each in (*self.asked, *map(self._answered, self._run.requests))}
            times_s = np.array(sorted(at_s for at_s in before if begin_s <= at_s < self.at_s))
        else:
            times_s = np.array([each.intended_s for each in self.arrivals if begin_s <= each.intended_s < self.at_s])
        if len(times_s) < LEAST_ASKED:
            return None
        seen = [each for each in self.arrivals if begin_s <= each.intended_s < self.at_s] or self.arrivals
        lengths = np.array([(each.tokens, each.prompt_tokens) for each in seen])
        chosen = lengths[np.arange(len(times_s)) % len(lengths)]
        nothing = np.zeros(len(times_s))
        requests = Requests(times_s, nothing, times_s, nothing, chosen[:, 0], chosen[:, 1], nothing == 0)
        bursts = AT_ONCE if self.users else ()
        return PresentLoad(requests, begin_s, self.at_s - begin_s, None, self.users, bursts, (0.0,))

    def _recent(self, objectives: Objectives, since_s: float) -> Recent:
        begin_s = max(self.at_s - RECENT_S, since_s)
        known = [each for each in self.asked if begin_s < each.ended_s <= self.at_s]
        began_s, now_s = begin_s - self._begun_s, self._now_s
        asked = [each for each in self._run.requests if each.arrival.intended_s <= now_s and _ended_s(each) > began_s]
        here = list(map(self._answered, asked))
        known += [each for each in here if each.ended_s <= self.at_s]
        most_s = objectives.latency_s or float("inf")
        late = sum(each.ended_s > self.at_s and self.at_s - each.intended_s > most_s for each in here)
        return Recent(len(known) + late, sum(each.is_good(objectives) for each in known))

    def _answered(self, request: SimulatedRequest) -> Answered:
        intended_s = self._begun_s + request.arrival.intended_s
        ended_s = self._begun_s + _ended_s(request)
        if request.refused:
            return Answered(intended_s, ended_s, None)
        times = times_of(request)
        first_s = self._firsts_s.get(intended_s)
        if first_s is not None:
            more = request.arrival.tokens - 1
            tpot_s = (ended_s - first_s) / more if more else None
            times = RequestTimes(times.latency_s, first_s - intended_s, tpot_s)
        return Answered(intended_s, ended_s, times)


def hold_through(
    service: SimulatedService, hold: Hold, until_s: float, tick_s: float = 2.0
) -> list[tuple[float, Move | Said]]:
    """Let a controller hold the service from now on: what it did or said, and when."""
    done: list[tuple[float, Move | Said]] = []
    since_s = service.at_s
    while service.at_s < until_s:
        step = hold.step(service.seen(hold.objectives, since_s))
        if step is not None:
            done.append(Done(service.at_s, step))
        if isinstance(step, Move):
            service.change(step.settings)
            since_s = service.at_s
        service.at_s += tick_s
    return done


def _ended_s(request: SimulatedRequest) -> float:
    assert request.answered_s is not None, "a simulation follows each request to its end"
    return request.answered_s


def _shifted(arrival: Arrival, by_s: float) -> Arrival:
    return replace(arrival, intended_s=arrival.intended_s - by_s, enqueued_s=arrival.enqueued_s - by_s)
