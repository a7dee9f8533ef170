"""Simulated replicas, a class for each formation: an engine and the requests that stand before it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from service.analysis.predict.load import Arrival
from service.batching.rules import Rules
from service.messages.settings import ReleaseReason, Settings

BEFORE_S: Final = -1.0  # stands for the start of a batch that runs when the simulation begins


class Ran(NamedTuple):
    """The times of a batch from its start: until it ends, until its first tokens, and until each member is done."""

    run_s: float
    first_s: float
    done_s: list[float]


class Engine(Protocol):
    """The cost of batches that start at `at_s`, in seconds: an engine may be slower at one time than at another."""

    def run(self, at_s: float, members: Sequence[Arrival]) -> Ran:
        """The times of the members when they run together."""

    def read_s(self, at_s: float, joining: Sequence[Arrival]) -> float:
        """The additional time of the steps in which the prompts of joining requests are read."""

    def parts(self, joining: Sequence[Arrival]) -> int:
        """The number of these steps where others run meanwhile."""

    def step_s(self, at_s: float, rows: int) -> float:
        """The time of each of the next steps with `rows` rows."""


class Underway(NamedTuple):
    """A request that runs when the simulation begins: the tokens it still needs, and when it has them in its batch."""

    arrival: Arrival
    left: int
    done_s: float


class RunningBatch(NamedTuple):
    """A batch that runs when the simulation begins; others can join it if it `is_open`."""

    members: tuple[Underway, ...]
    ends_s: float
    is_open: bool = False


@dataclass(slots=True, eq=False)
class SimulatedRequest:
    """A request and the times of its stages; ``None`` is a stage that it did not reach, or passed before the start."""

    arrival: Arrival
    enqueued_s: float
    started_s: float | None = None
    first_s: float | None = None
    finished_s: float | None = None
    answered_s: float | None = None
    refused: bool = False

    @property
    def tokens(self) -> int:
        """The token budget: prompt tokens and tokens to generate."""
        return self.arrival.tokens + self.arrival.prompt_tokens


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedBatch:
    """A batch; in `continuous` a segment of steps with the same members, which others could join (`is_open`)."""

    members: list[SimulatedRequest]
    release_reason: ReleaseReason
    formed_s: float
    started_s: float
    finished_s: float
    replica: int
    is_open: bool = False


@dataclass
class SimulatedRun:
    """Requests in order of arrival at the queue; batches in order of their start, segments in that of their end."""

    requests: list[SimulatedRequest] = field(default_factory=list)
    batches: list[SimulatedBatch] = field(default_factory=list)


class Simulator(Protocol):
    """The simulation as a replica sees it: an event schedule, the engine, and the record of batches."""

    engine: Engine

    def call_at(self, at_s: float, handle: Callable[[float, object], None], what: object) -> None:
        """Schedule a call of `handle` with the time and `what`."""

    def ran(self, batch: SimulatedBatch, ended: Sequence[tuple[SimulatedRequest, float]], replica: Replica) -> None:
        """Record a batch and the ends of the requests that are done with it."""

    def present(self, arrival: Arrival, replica: Replica) -> SimulatedRequest:
        """A request that the replica holds when the simulation begins."""


class Replica:
    """An engine with places for batches and, in each formation, the requests before it."""

    def __init__(self, simulator: Simulator, number: int, settings: Settings, rules: Rules) -> None:
        self.held = 0
        self._free = settings.places
        self._free_since_s = 0.0
        self._simulator = simulator
        self._number = number
        self._rules = rules
        self._most_queued = settings.max_queued_requests
        self._sealed: deque[tuple[float, list[SimulatedRequest], ReleaseReason]] = deque()
        self._sealed_requests = 0
        self._alarm_s: float | None = None  # the one that is set; earlier ones are ignored

    @property
    def waiting(self) -> int:
        """How many requests stand before the engine."""
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Whether its engine could take a batch."""
        return self._free > 0

    @property
    def is_full(self) -> bool:
        return self.waiting >= self._most_queued

    def enqueue(self, at_s: float, request: SimulatedRequest) -> None:
        raise NotImplementedError

    def occupy(self, running: Sequence[RunningBatch], sealed: Sequence[Sequence[Arrival]]) -> None:
        """Begin with batches that run, and others sealed under settings before, which run first.

        Nothing else begins before 0.
        """
        for members in sealed:
            present = [self._simulator.present(arrival, self) for arrival in members]
            self._sealed.append((max(each.enqueued_s for each in present), present, "timeout"))
            self._sealed_requests += len(members)
        ends_s = [self._go_on(batch) for batch in running]
        ends_s = [*ends_s, *[0.0] * self._free][: self._free]
        self._free = 0
        for each_s in ends_s:
            if each_s is not None:
                self._simulator.call_at(each_s, self.on_free, None)

    def _go_on(self, batch: RunningBatch) -> float | None:
        """Let a batch that runs at the beginning run on; when its place is free, or ``None`` if that is not known."""
        members = [self._simulator.present(each.arrival, self) for each in batch.members]
        for member in members:
            member.started_s = min(member.enqueued_s, 0.0)
        if members:
            ran = SimulatedBatch(members, "full", BEFORE_S, BEFORE_S, batch.ends_s, self._number, batch.is_open)
            done = [(member, each.done_s) for member, each in zip(members, batch.members, strict=True)]
            self._simulator.ran(ran, done, self)
        return batch.ends_s

    def on_free(self, at_s: float, _: object) -> None:
        """Note the end of a batch."""
        if not self._free:
            self._free_since_s = at_s
        self._free += 1
        self._consider(at_s)

    def _consider(self, at_s: float) -> None:
        """Start every batch that may start now, or set the alarm for the first that may start later."""
        raise NotImplementedError

    def _start_sealed(self, at_s: float) -> None:
        """Start the oldest sealed batch, which nobody can join whatever the formation is now."""
        formed_s, members, reason = self._sealed.popleft()
        self._sealed_requests -= len(members)
        Replica._start(self, at_s, formed_s, members, reason)

    def _consider_at(self, at_s: float) -> None:
        if at_s != self._alarm_s:
            self._alarm_s = at_s
            self._simulator.call_at(at_s, self._on_alarm, None)

    def _on_alarm(self, at_s: float, _: object) -> None:
        if at_s == self._alarm_s:
            self._alarm_s = None
            self._consider(at_s)

    def _start(self, at_s: float, formed_s: float, members: list[SimulatedRequest], reason: ReleaseReason) -> None:
        assert members, "a batch has members"
        self._free -= 1
        self._free_since_s = at_s
        ran = self._simulator.engine.run(at_s, [member.arrival for member in members])
        for member in members:
            member.started_s, member.first_s = at_s, at_s + ran.first_s
        batch = SimulatedBatch(members, reason, formed_s, at_s, at_s + ran.run_s, self._number)
        self._simulator.call_at(batch.finished_s, self.on_free, None)
        ends = [(member, at_s + done_s) for member, done_s in zip(members, ran.done_s, strict=True)]
        self._simulator.ran(batch, ends, self)


class Late(Replica):
    """As `BatchQueue`: nothing is sealed before the engine is free."""

    def __init__(self, simulator: Simulator, number: int, settings: Settings, rules: Rules) -> None:
        super().__init__(simulator, number, settings, rules)
        self._waiting: deque[SimulatedRequest] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting) + self._sealed_requests

    def enqueue(self, at_s: float, request: SimulatedRequest) -> None:
        self._waiting.append(request)
        if self._free:
            self._consider(at_s)

    def _consider(self, at_s: float) -> None:
        while self._free and self._sealed:
            self._start_sealed(at_s)
        while self._free and (release := self._rules.release(self._waiting, self._free_since_s)):
            if release.at_s > at_s:
                self._consider_at(release.at_s)
                return
            self._start(at_s, at_s, self._take(release.size), release.reason)

    def _take(self, count: int) -> list[SimulatedRequest]:
        """The oldest that wait."""
        assert count <= self._rules.max_batch_size, "a batch holds at most as many as its cap"
        return [self._waiting.popleft() for _ in range(count)]


class Early(Replica):
    """As Ray's `@serve.batch`: sealed by the clock, then first in, first out."""

    def __init__(self, simulator: Simulator, number: int, settings: Settings, rules: Rules) -> None:
        super().__init__(simulator, number, settings, rules)
        self._forming: list[SimulatedRequest] = []
        self._forming_number = 0

    @property
    def waiting(self) -> int:
        return len(self._forming) + self._sealed_requests

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
            assert len(members) <= self._rules.max_batch_size, "a batch is sealed with at most as many as its cap"
            self._sealed.append((at_s, list(members), reason))
        self._sealed_requests += len(self._forming)
        self._forming = []
        self._forming_number += 1
        self._consider(at_s)

    def _consider(self, at_s: float) -> None:
        while self._free and self._sealed:
            formed_s, *_ = self._sealed[0]
            leaves_s = self._rules.tick_s(max(formed_s, self._free_since_s))
            if leaves_s > at_s:
                self._consider_at(leaves_s)
                return
            self._start_sealed(at_s)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Steps of a continuous batch with the same members.

    Attributes:
        parts: of its first steps, in which the prompts of joining requests are read; at least 1.
        part_s: additional time of each of these; 0 where none joins.
        beside_s: time of a step without it before the last part, when only the others get tokens.
        step_s: the same from the last part on.
        most: steps until the first member is done.
    """

    reason: ReleaseReason
    begun_s: float
    parts: int
    part_s: float
    beside_s: float
    step_s: float
    most: int

    def steps_until(self, at_s: float) -> int:
        """The number of its steps after which a request that comes at `at_s` can join."""
        passed = self.parts + math.ceil((at_s - self.end_s(self.parts)) / self.step_s)
        return min(max(passed, self.parts), self.most)

    def end_s(self, steps: int) -> float:
        before, after = min(steps, self.parts - 1), max(steps - self.parts + 1, 0)
        return self.begun_s + min(steps, self.parts) * self.part_s + before * self.beside_s + after * self.step_s


class Continuous(Late):
    """As `Late` while the engine is idle; once it runs, requests join and leave between two steps.

    The prompts of joining requests are read in parts, one a step of those that run; further requests join after that.
    """

    def __init__(self, simulator: Simulator, number: int, settings: Settings, rules: Rules) -> None:
        super().__init__(simulator, number, settings, rules)
        self._left: dict[SimulatedRequest, int] = {}  # the running requests, with the tokens that they still need
        self._segment: Segment | None = None
        self._ends_after = 0  # steps of it
        self._reading: list[SimulatedRequest] = []
        self._unread = 0  # parts of their prompts, each of `_part_s`
        self._part_s = 0.0

    def enqueue(self, at_s: float, request: SimulatedRequest) -> None:
        super().enqueue(at_s, request)
        segment = self._segment
        if segment is not None and self._joining:
            self._end_after(segment, segment.steps_until(at_s))

    def _go_on(self, batch: RunningBatch) -> float | None:
        if not batch.is_open or not batch.members:
            return super()._go_on(batch)
        for each in batch.members:
            member = self._simulator.present(each.arrival, self)
            member.started_s = min(member.enqueued_s, 0.0)
            self._left[member] = each.left
        self._begin(0.0, [], "left")
        return None

    def _start(self, at_s: float, formed_s: float, members: list[SimulatedRequest], reason: ReleaseReason) -> None:
        self._free -= 1
        self._begin(at_s, members, reason)

    def _begin(self, at_s: float, joining: list[SimulatedRequest], reason: ReleaseReason) -> None:
        is_within = len(self._left) + len(joining) <= self._rules.max_batch_size
        assert is_within or not joining, "a request joins only where the cap leaves room"
        engine = self._simulator.engine
        if joining:
            self._read(at_s, joining)
        parts, part_s = max(self._unread, 1), self._part_s if self._unread else 0.0
        step_s = engine.step_s(at_s, len(self._left))
        beside_s = engine.step_s(at_s, len(self._left) - len(self._reading)) if parts > 1 else step_s
        most = max(min(self._left.values()), 1)
        self._segment = Segment(reason, at_s, parts, part_s, beside_s, step_s, most)
        for request in self._reading:
            request.first_s = self._segment.end_s(parts)
        self._ends_after = most + 1
        self._end_after(self._segment, min(parts, most) if self._joining else most)

    def _read(self, at_s: float, joining: list[SimulatedRequest]) -> None:
        """Begin to read the prompts of these; the last part gives each its first token."""
        engine, arrivals = self._simulator.engine, [request.arrival for request in joining]
        parts = engine.parts(arrivals) if self._left else 1
        self._reading, self._unread, self._part_s = joining, parts, engine.read_s(at_s, arrivals) / parts
        for request in joining:
            request.started_s = at_s
            self._left[request] = request.arrival.tokens + parts - 1

    @property
    def _joining(self) -> int:
        """The number of waiting requests that may join; none as long as sealed batches wait for the engine."""
        if self._sealed:
            return 0
        tokens = sum(request.tokens for request in self._left) if self._rules.max_batch_tokens else 0
        return self._rules.fitting(self._waiting, len(self._left), tokens)[0]

    def _end_after(self, segment: Segment, steps: int) -> None:
        if steps < self._ends_after:
            self._ends_after = steps
            self._simulator.call_at(segment.end_s(steps), self._on_end, (segment, steps))

    def _on_end(self, at_s: float, which: object) -> None:
        segment = self._segment
        if segment is None or which != (segment, self._ends_after):
            return
        members = list(self._left)
        self._left = {request: left - self._ends_after for request, left in self._left.items()}
        self._unread = max(self._unread - self._ends_after, 0)
        if not self._unread:
            self._reading = []
        done = [request for request, left in self._left.items() if left <= 0]
        for request in done:
            del self._left[request]
        self._segment = None
        ran = SimulatedBatch(members, segment.reason, segment.begun_s, segment.begun_s, at_s, self._number, True)
        self._simulator.ran(ran, [(request, at_s) for request in done], self)
        joining = [] if self._unread else self._take(self._joining)
        if joining or self._left:
            self._begin(at_s, joining, "joined" if joining else "left")
        else:
            self.on_free(at_s, None)
