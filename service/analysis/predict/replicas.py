"""A simulated replica: an engine and what stands before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from service.analysis.predict.simulated import Engine, SimulatedBatch, SimulatedRequest
from service.batching.rules import Rules
from service.messages.settings import ReleaseReason, Settings


class House(Protocol):
    """The simulation, as a replica sees it."""

    engine: Engine

    def call_at(self, at_s: float, handle: Callable[[float, object], None], what: object) -> None:
        """Handle `what` at a time to come."""

    def started(self, batch: SimulatedBatch, offsets_s: list[float], replica: Replica) -> None:
        """The batch runs; its members are done so long after its start."""

    def ran(self, stretch: SimulatedBatch, left: list[SimulatedRequest], replica: Replica) -> None:
        """A stretch of a batch that others join has ended, with which these are done."""


class Replica:
    """An engine with places for batches and, in each formation, what stands before it."""

    def __init__(self, house: House, number: int, settings: Settings) -> None:
        self.held = 0
        self._free = settings.places
        self._free_since_s = 0.0
        self._house = house
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
            self._house.call_at(each_s, self.on_free, None)

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
            self._house.call_at(at_s, self._on_alarm, None)

    def _on_alarm(self, at_s: float, _: object) -> None:
        if at_s == self._alarm_s:
            self._alarm_s = None
            self._consider(at_s)

    def _start(self, at_s: float, formed_s: float, members: list[SimulatedRequest], reason: ReleaseReason) -> None:
        self._free -= 1
        self._free_since_s = at_s
        house = self._house
        run_s, offsets_s = house.engine.run([member.arrival for member in members])
        batch = SimulatedBatch(members, reason, formed_s, at_s, at_s + run_s, self._number)
        house.call_at(batch.finished_s, self.on_free, None)
        house.started(batch, offsets_s, self)


class Late(Replica):
    """As `BatchQueue`: nothing is sealed before the engine is free."""

    def __init__(self, house: House, number: int, settings: Settings) -> None:
        super().__init__(house, number, settings)
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

    def __init__(self, house: House, number: int, settings: Settings) -> None:
        super().__init__(house, number, settings)
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
            self._house.call_at(at_s + self._rules.batch_wait_timeout_s, self._on_timeout, self._forming_number)

    def _on_timeout(self, at_s: float, number: object) -> None:
        if number == self._forming_number:
            self._seal(at_s)

    def _seal(self, at_s: float) -> None:
        for members, reason in self._rules.divided(self._forming):
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
