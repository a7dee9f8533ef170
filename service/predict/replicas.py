"""A simulated replica: an engine and what stands before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from service.messages.settings import ReleaseReason, Settings
from service.predict.simulated import Engine, SimulatedBatch, SimulatedRequest


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
    """An engine and, in each formation, what stands before it."""

    def __init__(self, house: House, number: int, settings: Settings) -> None:
        self.held = 0
        self.is_free = True
        self._house = house
        self._number = number
        self._cap = settings.max_batch_size
        self._timeout_s = settings.batch_wait_timeout_s
        self._most_queued = settings.max_queued_requests
        self._alarm = 0  # the number of the wait that is on; alarms of earlier ones say nothing

    @property
    def is_full(self) -> bool:
        raise NotImplementedError

    def enqueue(self, at_s: float, request: SimulatedRequest) -> None:
        raise NotImplementedError

    def on_free(self, at_s: float, _: object) -> None:
        raise NotImplementedError

    def _wait(self, at_s: float) -> None:
        self._alarm += 1
        self._house.call_at(at_s + self._timeout_s, self._on_alarm, self._alarm)

    def _on_alarm(self, at_s: float, number: object) -> None:
        if number == self._alarm:
            self._on_timeout(at_s)

    def _on_timeout(self, at_s: float) -> None:
        raise NotImplementedError

    def _start(self, at_s: float, formed_s: float, members: list[SimulatedRequest], reason: ReleaseReason) -> None:
        self.is_free = False
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
        if self.is_free and not self._release_at_once(at_s) and len(self._waiting) == 1:
            self._wait(at_s)

    def on_free(self, at_s: float, _: object) -> None:
        self.is_free = True
        if self._waiting and not self._release_at_once(at_s):
            self._wait(at_s)

    def _release_at_once(self, at_s: float) -> bool:
        if len(self._waiting) >= self._cap:
            self._release(at_s, "full")
        elif self._timeout_s == 0:
            self._release(at_s, "drained")
        else:
            return False
        return True

    def _on_timeout(self, at_s: float) -> None:
        self._release(at_s, "timeout")

    def _release(self, at_s: float, reason: ReleaseReason) -> None:
        self._alarm += 1
        self._start(at_s, at_s, self._take(self._cap), reason)

    def _take(self, most: int) -> list[SimulatedRequest]:
        """The oldest that wait."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]


class Early(Replica):
    """As Ray's `@serve.batch`: sealed by the clock, then first in, first out."""

    def __init__(self, house: House, number: int, settings: Settings) -> None:
        super().__init__(house, number, settings)
        self._forming: list[SimulatedRequest] = []
        self._sealed: deque[tuple[float, list[SimulatedRequest], ReleaseReason]] = deque()
        self._sealed_requests = 0

    @property
    def is_full(self) -> bool:
        return len(self._forming) + self._sealed_requests >= self._most_queued

    def enqueue(self, at_s: float, request: SimulatedRequest) -> None:
        self._forming.append(request)
        if len(self._forming) >= self._cap:
            self._seal(at_s, "full")
        elif self._timeout_s == 0:
            self._seal(at_s, "drained")
        elif len(self._forming) == 1:
            self._wait(at_s)

    def on_free(self, at_s: float, _: object) -> None:
        self.is_free = True
        if self._sealed:
            formed_s, members, reason = self._sealed.popleft()
            self._sealed_requests -= len(members)
            self._start(at_s, formed_s, members, reason)

    def _on_timeout(self, at_s: float) -> None:
        self._seal(at_s, "timeout")

    def _seal(self, at_s: float, reason: ReleaseReason) -> None:
        self._alarm += 1
        self._sealed.append((at_s, self._forming, reason))
        self._sealed_requests += len(self._forming)
        self._forming = []
        if self.is_free:
            self.on_free(at_s, None)
