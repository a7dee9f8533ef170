"""The two ways to keep a load going: by the clock (open loop) and by answers (closed loop)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from service.load.clock import Clock, Timer
from service.load.flight import Answer, Flight
from service.load.patterns import OpenArrivals, open_arrivals
from service.messages import ClosedLoop, Pattern

MOST_ARRIVALS_AT_ONCE = 64  # then the event loop gets a turn, so that a burst does not hold up what streams
PAUSE_AFTER_FAILURE_S = 0.5  # a user who is turned away does not come back in the same instant
LONGEST_PAUSE_S = 10.0

Arrive = Callable[[float], Flight | None]  # called with the intended time; ``None`` where the request was dropped


class Loop(Protocol):
    """What sends the requests of a load."""

    def start(self) -> None: ...
    def change(self, pattern: Pattern) -> bool:
        """Go on as `pattern`; false if that takes a new loop."""

    def concluded(self, flight: Flight, answer: Answer) -> None:
        """Any flight has ended, not only one of this loop's."""

    def stop(self) -> None:
        """No further arrivals."""


def make_loop(pattern: Pattern, seed: int, clock: Clock, arrive: Arrive, ended: Callable[[], None]) -> Loop:
    """The loop that `pattern` declares; `ended` is called when it has nothing more to send."""
    if isinstance(pattern, ClosedLoop):
        return UserLoop(pattern.users, clock, arrive)
    return ScheduleLoop(open_arrivals(pattern, seed), clock, arrive, ended)


class ScheduleLoop:
    """Open loop: each arrival is due an interval after the one before was *due*, so lateness does not add up."""

    def __init__(self, arrivals: OpenArrivals, clock: Clock, arrive: Arrive, ended: Callable[[], None]) -> None:
        self._arrivals = arrivals
        self._clock = clock
        self._arrive = arrive
        self._ended = ended
        self._due_s: float | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        self._due_s = self._clock.now()
        self._advance()
        self._send_due()

    def change(self, pattern: Pattern) -> bool:
        stretch = self._arrivals.retune(pattern)
        if stretch is None:
            return False
        if self._due_s is not None:
            now = self._clock.now()
            if self._due_s > now:
                self._due_s = now + (self._due_s - now) * stretch
            self._set_timer()
        return True

    def concluded(self, flight: Flight, answer: Answer) -> None:
        pass

    def stop(self) -> None:
        self._due_s = None
        self._set_timer()

    def _send_due(self) -> None:
        now = self._clock.now()
        for _ in range(MOST_ARRIVALS_AT_ONCE):
            if self._due_s is None or self._due_s > now:
                break
            self._arrive(self._due_s)
            self._advance()
        self._set_timer()
        if self._due_s is None:
            self._ended()

    def _advance(self) -> None:
        interval_s = self._arrivals.next_interval_s()
        self._due_s = None if interval_s is None or self._due_s is None else self._due_s + interval_s

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._due_s is None else self._clock.call_at(self._due_s, self._send_due)


class UserLoop:
    """Closed loop: each user sends the next request when the last is answered.

    A user is under way or, after a refusal or a failure, pausing. When there are to be fewer, those who are answered
    next leave; nothing is broken off.
    """

    def __init__(self, users: int, clock: Clock, arrive: Arrive) -> None:
        self._users = users
        self._clock = clock
        self._arrive = arrive
        self._under_way: set[str] = set()
        self._pausing = 0

    def start(self) -> None:
        now = self._clock.now()
        for _ in range(self._users - self._present):
            self._send(now)

    def change(self, pattern: Pattern) -> bool:
        if not isinstance(pattern, ClosedLoop):
            return False
        self._users = pattern.users
        self.start()
        return True

    def concluded(self, flight: Flight, answer: Answer) -> None:
        if flight.id not in self._under_way:
            return
        self._under_way.discard(flight.id)
        ended_s = self._clock.now() if flight.finished_s is None else flight.finished_s
        self._continue(ended_s, _pause_s(answer))

    def stop(self) -> None:
        self._users = 0

    @property
    def _present(self) -> int:
        return len(self._under_way) + self._pausing

    def _continue(self, ended_s: float, pause_s: float) -> None:
        if self._present >= self._users:
            return
        if pause_s == 0:
            self._send(ended_s)
            return
        self._pausing += 1
        due_s = ended_s + pause_s
        self._clock.call_at(due_s, lambda: self._return(due_s))

    def _return(self, due_s: float) -> None:
        self._pausing -= 1
        if self._present < self._users:
            self._send(due_s)

    def _send(self, intended_s: float) -> None:
        flight = self._arrive(intended_s)
        if flight is not None:
            self._under_way.add(flight.id)


def _pause_s(answer: Answer) -> float:
    if answer.outcome in ("ok", "cancelled"):
        return 0.0
    if answer.retry_after_s is None:
        return PAUSE_AFTER_FAILURE_S
    return min(max(answer.retry_after_s, 0.0), LONGEST_PAUSE_S)
