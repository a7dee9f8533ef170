"""Simulated replicas, a class for each formation: an engine and the requests that stand before it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from service.analysis.predict.load import Arrival
from service.batching.rules import Rules
from service.messages.settings import ReleaseReason, Settings


class Engine(Protocol):
    """What a batch costs."""

    def run(self, members: Sequence[Arrival]) -> tuple[float, list[float]]:
        """How long they run together, in seconds, and how long after the start each of them is done."""

    def read_s(self, joining: Sequence[Arrival]) -> float:
        """By how much longer a step takes in which the prompts of those who join are read."""

    def step_s(self, rows: int) -> float:
        """How long each of the next steps takes, with so many rows."""


@dataclass(slots=True, eq=False)
class SimulatedRequest:
    """A request and what became of it; ``None`` is a stage that it did not reach."""

    arrival: Arrival
    enqueued_s: float
    started_s: float | None = None
    finished_s: float | None = None
    answered_s: float | None = None
    refused: bool = False

    @property
    def tokens(self) -> int:
        """That it may need in its batch."""
        return self.arrival.tokens + self.arrival.prompt_tokens


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedBatch:
    """In `continuous` a segment of steps with the same members; `is_open` says that others could join."""

    members: list[SimulatedRequest]
    release_reason: ReleaseReason
    formed_s: float
    started_s: float
    finished_s: float
    replica: int
    is_open: bool = False


@dataclass
class SimulatedRun:
    """What was simulated: requests in order of arrival at the queue, batches in order of their start.

    Segments of a batch that others join stand in the order of their end.
    """

    requests: list[SimulatedRequest] = field(default_factory=list)
    batches: list[SimulatedBatch] = field(default_factory=list)


class Simulator(Protocol):
    """The simulation, as a replica sees it."""

    engine: Engine

    def call_at(self, at_s: float, handle: Callable[[float, object], None], what: object) -> None:
        """Handle `what` at a time to come."""

    def started(self, batch: SimulatedBatch, offsets_s: list[float], replica: Replica) -> None:
        """The batch runs; its members are done so long after its start."""

    def ran(self, segment: SimulatedBatch, left: list[SimulatedRequest], replica: Replica) -> None:
        """A segment of a batch that others join has ended, with which these are done."""


class Replica:
    """An engine with places for batches and, in each formation, what stands before it."""

    def __init__(self, simulator: Simulator, number: int, settings: Settings) -> None:
        self.held = 0
        self._free = settings.places
        self._free_since_s = 0.0
        self._simulator = simulator
        self._number = number
        self._rules = Rules.of(settings)
        self._most_queued = settings.max_queued_requests
        self._alarm_s: float | None = None  # that is on; earlier ones say nothing

    @property
    def is_full(self) -> bool:
        raise NotImplementedError

    def enqueue(self, at_s: float, request: SimulatedRequest) -> None:
        raise NotImplementedError

    def occupy(self, until_s: Sequence[float]) -> None:
        """Batches of which nothing else is known run, each until then; nothing begins before 0."""
        ends_s = [*until_s, *[0.0] * self._free][: self._free]
        self._free = 0
        for each_s in ends_s:
            self._simulator.call_at(each_s, self.on_free, None)

    def on_free(self, at_s: float, _: object) -> None:
        """A batch has ended."""
        if not self._free:
            self._free_since_s = at_s
        self._free += 1
        self._consider(at_s)

    def _consider(self, at_s: float) -> None:
        """Start what may start now, or be woken when it may."""
        raise NotImplementedError

    def _consider_at(self, at_s: float) -> None:
        if at_s != self._alarm_s:
            self._alarm_s = at_s
            self._simulator.call_at(at_s, self._on_alarm, None)

    def _on_alarm(self, at_s: float, _: object) -> None:
        if at_s == self._alarm_s:
            self._alarm_s = None
            self._consider(at_s)

    def _start(self, at_s: float, formed_s: float, members: list[SimulatedRequest], reason: ReleaseReason) -> None:
        self._free -= 1
        self._free_since_s = at_s
        simulator = self._simulator
        run_s, offsets_s = simulator.engine.run([member.arrival for member in members])
        batch = SimulatedBatch(members, reason, formed_s, at_s, at_s + run_s, self._number)
        simulator.call_at(batch.finished_s, self.on_free, None)
        simulator.started(batch, offsets_s, self)


class Late(Replica):
    """As `BatchQueue`: nothing is sealed before the engine is free."""

    def __init__(self, simulator: Simulator, number: int, settings: Settings) -> None:
        super().__init__(simulator, number, settings)
        self._waiting: deque[SimulatedRequest] = deque()

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self._most_queued

    def enqueue(self, at_s: float, request: SimulatedRequest) -> None:
        self._waiting.append(request)
        if self._free:
            self._consider(at_s)

    def _consider(self, at_s: float) -> None:
        while self._free and (release := self._rules.release(self._waiting, self._free_since_s)):
            if release.at_s > at_s:
                self._consider_at(release.at_s)
                return
            self._start(at_s, at_s, self._take(release.size), release.reason)

    def _take(self, most: int) -> list[SimulatedRequest]:
        """The oldest that wait."""
        return [self._waiting.popleft() for _ in range(most)]


class Early(Replica):
    """As Ray's `@serve.batch`: sealed by the clock, then first in, first out."""

    def __init__(self, simulator: Simulator, number: int, settings: Settings) -> None:
        super().__init__(simulator, number, settings)
        self._forming: list[SimulatedRequest] = []
        self._forming_number = 0
        self._sealed: deque[tuple[float, list[SimulatedRequest], ReleaseReason]] = deque()
        self._sealed_requests = 0

    @property
    def is_full(self) -> bool:
        return len(self._forming) + self._sealed_requests >= self._most_queued

    def enqueue(self, at_s: float, request: SimulatedRequest) -> None:
        self._forming.append(request)
        if len(self._forming) >= self._rules.max_batch_size or not self._rules.batch_wait_timeout_s:
            self._seal(at_s)
        elif len(self._forming) == 1:
            self._simulator.call_at(at_s + self._rules.batch_wait_timeout_s, self._on_timeout, self._forming_number)

    def _on_timeout(self, at_s: float, number: object) -> None:
        if number == self._forming_number:
            self._seal(at_s)

    def _seal(self, at_s: float) -> None:
        is_full = len(self._forming) >= self._rules.max_batch_size
        for members, reason in self._rules.divided(self._forming, is_full=is_full):
            self._sealed.append((at_s, list(members), reason))
        self._sealed_requests += len(self._forming)
        self._forming = []
        self._forming_number += 1
        self._consider(at_s)

    def _consider(self, at_s: float) -> None:
        while self._free and self._sealed:
            formed_s, members, reason = self._sealed[0]
            leaves_s = self._rules.tick_s(max(formed_s, self._free_since_s))
            if leaves_s > at_s:
                self._consider_at(leaves_s)
                return
            self._sealed.popleft()
            self._sealed_requests -= len(members)
            self._start(at_s, formed_s, members, reason)


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps with the same members.

    Attributes:
        read_s: by what the first step is longer, in which the prompts of those who joined are read.
        most: steps until the first of them is done.
    """

    number: int
    reason: ReleaseReason
    begun_s: float
    read_s: float
    step_s: float
    most: int

    def steps_until(self, at_s: float) -> int:
        """After how many of its steps somebody who came at `at_s` can join."""
        passed = math.ceil((at_s - self.begun_s - self.read_s) / self.step_s)
        return min(max(passed, 1), self.most)

    def end_s(self, steps: int) -> float:
        return self.begun_s + self.read_s + steps * self.step_s


class Continuous(Late):
    """As `Late` while the engine is idle; once it runs, requests join and leave between two steps.

    Newcomers' prompts are read in the first step that they share. The engine reads long ones in parts, in several
    steps, which takes as long in all.
    """

    def __init__(self, simulator: Simulator, number: int, settings: Settings) -> None:
        super().__init__(simulator, number, settings)
        self._left: dict[SimulatedRequest, int] = {}  # those that run, with the tokens that they still want
        self._segment: Segment | None = None
        self._ends_after = 0  # steps of it
        self._numbers = 0

    def enqueue(self, at_s: float, request: SimulatedRequest) -> None:
        super().enqueue(at_s, request)
        segment = self._segment
        if segment is not None and self._joining:
            self._end_after(segment, segment.steps_until(at_s))

    def _start(self, at_s: float, formed_s: float, members: list[SimulatedRequest], reason: ReleaseReason) -> None:
        self._free -= 1
        self._begin(at_s, members, reason)

    def _begin(self, at_s: float, joining: list[SimulatedRequest], reason: ReleaseReason) -> None:
        engine = self._simulator.engine
        for request in joining:
            request.started_s = at_s
            self._left[request] = request.arrival.tokens
        most = max(min(self._left.values()), 1)
        self._numbers += 1
        read_s = engine.read_s([request.arrival for request in joining])
        self._segment = Segment(self._numbers, reason, at_s, read_s, engine.step_s(len(self._left)), most)
        self._ends_after = most + 1
        self._end_after(self._segment, 1 if self._joining else most)

    @property
    def _joining(self) -> int:
        """How many of those who wait may join."""
        tokens = sum(request.tokens for request in self._left) if self._rules.max_batch_tokens else 0
        return self._rules.fitting(self._waiting, len(self._left), tokens)[0]

    def _end_after(self, segment: Segment, steps: int) -> None:
        if steps < self._ends_after:
            self._ends_after = steps
            self._simulator.call_at(segment.end_s(steps), self._on_end, (segment.number, steps))

    def _on_end(self, at_s: float, which: object) -> None:
        segment = self._segment
        if segment is None or which != (segment.number, self._ends_after):
            return
        members = list(self._left)
        for request in members:
            self._left[request] -= self._ends_after
        done = [request for request in members if self._left[request] <= 0]
        for request in done:
            del self._left[request]
        ran = SimulatedBatch(members, segment.reason, segment.begun_s, segment.begun_s, at_s, self._number, True)
        self._segment = None
        self._simulator.ran(ran, done, self)
        self._go_on(at_s)

    def _go_on(self, at_s: float) -> None:
        joining = self._take(self._joining)
        if joining or self._left:
            self._begin(at_s, joining, "joined" if joining else "left")
        else:
            self.on_free(at_s, None)
