"""The closed loop: users who wait for their answers."""

from __future__ import annotations

import random

from service.load.clock import Clock
from service.load.flight import Answer, Flight
from service.load.loops import Arrive
from service.messages.load import ClosedLoop, Pattern

PAUSE_AFTER_FAILURE_S = 0.5  # a user who is turned away does not come back in the same instant
LONGEST_PAUSE_S = 10.0


class UserLoop:
    """Closed loop: each user sends the next request when the last is answered and thought about.

    A user is under way, or away: thinking, put off after a refusal or a failure, or held by a pause of the load. When
    there are to be fewer, those who would send next leave; nothing is broken off. Users who think join one after the
    other, as if they had been at it before.
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
        now = self._clock.now()
        for _ in range(self._users - self._present):
            self._continue(now, self._think_s() * self._share_of_first_thought())

    def change(self, pattern: Pattern) -> bool:
        if not isinstance(pattern, ClosedLoop):
            return False
        self._pattern = pattern
        self._users = pattern.users
        self.start()
        return True

    def concluded(self, flight: Flight, answer: Answer) -> None:
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
        """Who joins is in the middle of a thought; an exponential one does not remember when it began."""
        return self._random.random() if self._pattern.think == "fixed" and self._pattern.think_s else 1.0


def _pause_s(answer: Answer) -> float:
    if answer.outcome in ("ok", "cancelled"):
        return 0.0
    if answer.retry_after_s is None:
        return PAUSE_AFTER_FAILURE_S
    return min(max(answer.retry_after_s, 0.0), LONGEST_PAUSE_S)
