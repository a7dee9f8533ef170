"""The open loop: requests are sent when they are due, whatever has become of those before."""

from __future__ import annotations

from collections.abc import Callable

from service.load.clock import Clock, Timer
from service.load.flight import Answer, Flight
from service.load.loops import Arrive
from service.load.patterns.arrivals import OpenArrivals
from service.messages.load import Pattern

MOST_ARRIVALS_AT_ONCE = 64  # then the event loop gets a turn, so that a burst does not hold up what streams


class ScheduleLoop:
    """Open loop: each arrival is due at its own time after the start, so lateness does not add up."""

    def __init__(self, arrivals: OpenArrivals, clock: Clock, arrive: Arrive, ended: Callable[[], None]) -> None:
        self._arrivals = arrivals
        self._clock = clock
        self._arrive = arrive
        self._ended = ended
        self._start_s = clock.now()
        self._paused_since_s: float | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        self._start_s = self._clock.now()
        self._send_due()

    def change(self, pattern: Pattern) -> bool:
        at_s = self._clock.now() if self._paused_since_s is None else self._paused_since_s
        if not self._arrivals.retune(pattern, at_s - self._start_s):
            return False
        self._set_timer()
        return True

    def concluded(self, flight: Flight, answer: Answer) -> None:
        pass

    def pause(self) -> None:
        self._paused_since_s = self._clock.now()
        self._cancel_timer()

    def resume(self) -> None:
        if self._paused_since_s is not None:
            self._start_s += self._clock.now() - self._paused_since_s
            self._paused_since_s = None
            self._set_timer()

    def stop(self) -> None:
        self._cancel_timer()

    def _send_due(self) -> None:
        now = self._clock.now()
        for _ in range(MOST_ARRIVALS_AT_ONCE):
            due_s = self._due_s()
            if due_s is None or due_s > now or self._paused_since_s is not None:
                break
            self._arrive(due_s)
            self._arrivals.advance()
        self._set_timer()
        if self._due_s() is None:
            self._ended()

    def _due_s(self) -> float | None:
        due_s = self._arrivals.due_s
        return None if due_s is None else self._start_s + due_s

    def _set_timer(self) -> None:
        self._cancel_timer()
        due_s = self._due_s()
        if due_s is not None and self._paused_since_s is None:
            self._timer = self._clock.call_at(due_s, self._send_due)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
