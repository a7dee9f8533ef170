"""The two ways in which a load goes on, by the clock (open loop) or by answers (closed loop), and that clock."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import TypeAlias

from service.load.arrivals import OpenArrivals
from service.load.flight import Answer, Flight
from service.messages.load import ClosedLoop, Pattern

Arrive = Callable[[float], Flight | None]  # called with the intended time; ``None`` where the request was dropped
TIMER_GRAIN_S = 0.0005  # uvloop rounds delays to whole milliseconds: half of one more keeps timers from ringing early


class Clock:
    """`time.monotonic`, and calls at a time to come in the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        return time.monotonic()

    def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.Handle:
        delay_s = when_s - time.monotonic()
        if delay_s <= 0:
            return self._loop.call_soon(callback)
        return self._loop.call_later(delay_s + TIMER_GRAIN_S, callback)


MOST_ARRIVALS_AT_ONCE = 64
"""Arrivals after which the event loop gets a turn, so that a burst does not delay streams."""


class ScheduleLoop:
    """Open loop: each arrival is due at its own time after the start, so lateness does not add up.

    Those that are due within `lasts_s` of the start are sent, however late a timer rings, and none after.
    """

    def __init__(
        self, arrivals: OpenArrivals, lasts_s: float, clock: Clock, arrive: Arrive, ended: Callable[[], None]
    ) -> None:
        self._arrivals = arrivals
        self._lasts_s = lasts_s
        self._clock = clock
        self._arrive = arrive
        self._ended = ended
        self._start_s = clock.now()
        self._paused_since_s: float | None = None
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        self._start_s = self._clock.now()
        self._send_due()

    def change(self, pattern: Pattern) -> bool:
        at_s = self._clock.now() if self._paused_since_s is None else self._paused_since_s
        if not self._arrivals.retune(pattern, at_s - self._start_s):
            return False
        self._set_timer()
        return True

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
        return None if due_s is None or due_s >= self._lasts_s else self._start_s + due_s

    def _set_timer(self) -> None:
        self._cancel_timer()
        due_s = self._due_s()
        if due_s is not None and self._paused_since_s is None:
            self._timer = self._clock.call_at(due_s, self._send_due)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


PAUSE_AFTER_FAILURE_S = 0.5  # a refused user does not come back in the same instant
LONGEST_PAUSE_S = 10.0


class UserLoop:
    """Closed loop: each user sends its next request after the answer to its last one and a time to think.

    A user has a request under way, or is away: thinking, waiting after a refusal or a failure, or held by a pause of
    the load. When the number of users falls, the users that would send next leave; no request is cancelled. Users with
    a time to think start one after the other, as if they had been thinking before.
    """

    def __init__(self, pattern: ClosedLoop, seed: int, clock: Clock, arrive: Arrive) -> None:
        self._pattern = pattern
        self._random = random.Random(f"think-{seed}")
        self._clock = clock
        self._arrive = arrive
        self._users = pattern.users
        self._under_way: set[str] = set()
        self._away = 0
        self._paused_since_s: float | None = None
        self._held_until_s: list[float] = []

    def start(self) -> None:
        begun_s = self._clock.now() if self._paused_since_s is None else self._paused_since_s
        for _ in range(self._users - self._present):
            self._continue(begun_s, self._think_s() * self._share_of_first_thought())

    def change(self, pattern: Pattern) -> bool:
        if not isinstance(pattern, ClosedLoop):
            return False
        self._pattern = pattern
        self._users = pattern.users
        self.start()
        return True

    def concluded(self, flight: Flight, answer: Answer) -> None:
        """A flight has ended, of this loop or a fired one."""
        if flight.id not in self._under_way:
            return
        self._under_way.discard(flight.id)
        ended_s = self._clock.now() if flight.finished_s is None else flight.finished_s
        if self._present < self._users:
            self._continue(ended_s, max(_pause_s(answer), self._think_s()))

    def pause(self) -> None:
        self._paused_since_s = self._clock.now()

    def resume(self) -> None:
        if self._paused_since_s is None:
            return
        lasted_s = self._clock.now() - self._paused_since_s
        self._paused_since_s = None
        held, self._held_until_s = self._held_until_s, []
        for due_s in held:
            self._return_at(due_s + lasted_s)

    def stop(self) -> None:
        self._users = 0

    @property
    def _present(self) -> int:
        return len(self._under_way) + self._away

    def _continue(self, ended_s: float, pause_s: float) -> None:
        if pause_s == 0 and self._paused_since_s is None:
            self._send(ended_s)
            return
        self._away += 1
        self._return_at(ended_s + pause_s)

    def _return_at(self, due_s: float) -> None:
        self._clock.call_at(due_s, lambda: self._return(due_s))

    def _return(self, due_s: float) -> None:
        if self._paused_since_s is not None:
            self._held_until_s.append(due_s)
            return
        self._away -= 1
        if self._present < self._users:
            self._send(due_s)

    def _send(self, intended_s: float) -> None:
        flight = self._arrive(intended_s)
        if flight is not None:
            self._under_way.add(flight.id)

    def _think_s(self) -> float:
        mean_s = self._pattern.think_s
        if self._pattern.think == "exponential" and mean_s:
            return self._random.expovariate(1 / mean_s)
        return mean_s

    def _share_of_first_thought(self) -> float:
        """The part of a fixed thinking time that is left to a user that joins; an exponential time has no memory."""
        return self._random.random() if self._pattern.think == "fixed" and self._pattern.think_s else 1.0


def _pause_s(answer: Answer) -> float:
    if answer.outcome in ("ok", "cancelled"):
        return 0.0
    if answer.retry_after_s is None:
        return PAUSE_AFTER_FAILURE_S
    return min(max(answer.retry_after_s, 0.0), LONGEST_PAUSE_S)


Loop: TypeAlias = ScheduleLoop | UserLoop
"""What sends the requests of a load.

`change` goes on as another pattern, and returns false if that needs a new loop. After `pause`, also before `start`,
nothing arrives until `resume`; what was due meanwhile comes as much later as the pause lasted. After `stop` nothing
arrives.
"""
