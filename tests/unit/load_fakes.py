"""Time, server and journal in the test's hands: the generator runs without an event loop."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from service.load.flight import Answer, Flight, Observer
from service.messages.load import LoadEvent


class FakeTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """Moves only when told to; rings timers in the order they are due, `late_s` after their time."""

    def __init__(self) -> None:
        self.time_s = 100.0
        self.late_s = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, FakeTimer]] = []

    def now(self) -> float:
        return self.time_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(callback)
        heapq.heappush(self._timers, (max(when_s, self.time_s), next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        end_s = self.time_s + seconds
        while self._timers and self._timers[0][0] + self.late_s <= end_s:
            due_s, _, timer = heapq.heappop(self._timers)
            self.time_s = max(self.time_s, due_s + self.late_s)
            if timer.callback is not None:
                timer.callback()
        self.time_s = end_s

    @property
    def pending(self) -> int:
        return sum(timer.callback is not None for _, _, timer in self._timers)


class FakeSender:
    """Sends at once; a test decides when and how each request ends."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.started: list[Flight] = []
        self.under_way: dict[str, Flight] = {}
        self._observers: dict[str, Observer] = {}

    def start(self, flight: Flight, observer: Observer) -> None:
        self.started.append(flight)
        self.under_way[flight.id] = flight
        self._observers[flight.id] = observer
        flight.sent_s = self._clock.now()
        observer.sent(flight)

    def cancel(self, flight: Flight) -> None:
        self.conclude(flight, Answer("cancelled"))

    def conclude(self, flight: Flight, answer: Answer | None = None) -> None:
        del self.under_way[flight.id]
        self._observers[flight.id].concluded(flight, answer or Answer("ok"))

    def conclude_all(self, answer: Answer | None = None) -> None:
        for flight in list(self.under_way.values()):
            self.conclude(flight, answer)


class FakeJournal:
    def __init__(self) -> None:
        self.changed: list[Flight] = []
        self.refusals: list[str] = []

    def flight_changed(self, flight: Flight) -> None:
        self.changed.append(flight)

    def load_changed(self) -> None:
        pass

    def refused(self, reason: str) -> None:
        self.refusals.append(reason)


class FakeOutput:
    """Collects what is written; while `is_free` is false a reader is slow."""

    def __init__(self) -> None:
        self.is_free = True
        self.lines: list[bytes] = []

    def write(self, lines: bytes) -> None:
        self.lines.extend(lines.splitlines())

    def events(self, decode: Callable[[bytes], LoadEvent]) -> list[LoadEvent]:
        return [decode(line) for line in self.lines]
