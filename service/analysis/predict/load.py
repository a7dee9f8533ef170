"""The load of a simulation: arrivals at given times, or users that wait for their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple


def at_once() -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request on its way to the queue.

    Attributes:
        intended_s: begin of its latency.
        enqueued_s: when it reaches the queue.
        tokens, prompt_tokens: to generate, and to read before.
    """

    intended_s: float
    enqueued_s: float
    tokens: int
    prompt_tokens: int = 0


class ReturnDelays(NamedTuple):
    """The delays of a user's return: from the answer to the next request, and from there to the queue."""

    gap_s: float
    before_s: float


@dataclass(kw_only=True)
class Load:
    """A sender of requests.

    Attributes:
        return_s: draws the time that the answers of a batch take from the engine to their users.
        pause_after_refusal_s: pause of a user after a refusal.
    """

    return_s: Callable[[], float] = at_once
    pause_after_refusal_s: float = 0.0

    def first(self, until_s: float) -> Iterable[Arrival]:
        """The requests up to `until_s` that do not follow from answers."""
        raise NotImplementedError

    def next(self, answered_s: float) -> Arrival | None:
        """The request that follows from an answer, if any."""
        raise NotImplementedError


@dataclass
class OpenLoop(Load):
    """Arrivals that do not wait for answers."""

    arrivals: Sequence[Arrival]

    def first(self, until_s: float) -> Iterable[Arrival]:
        return (arrival for arrival in self.arrivals if arrival.intended_s < until_s)

    def next(self, answered_s: float) -> Arrival | None:
        return None


@dataclass
class ClosedLoop(Load):
    """Users that each send a request when the one before is answered.

    Users that are answered together return together, since a delay of one mostly delays all. So their delays are drawn
    from one observed burst; drawn one by one they would scatter more than they do, and a batch that waits for them
    would miss some.

    Attributes:
        make: returns the request for its intended time and its delay until the queue.
        bursts: observed delays of users that returned together.
        think_s: draws the time that a user thinks besides.
    """

    users: int
    make: Callable[[float, float], Arrival]
    random: Random
    bursts: Sequence[Sequence[ReturnDelays]] = ((ReturnDelays(0.0, 0.0),),)
    think_s: Callable[[], float] = at_once
    pause_after_refusal_s: float = field(default=1.0, kw_only=True)
    _burst: Sequence[ReturnDelays] = ()
    _answered_s: float | None = None

    def first(self, until_s: float) -> Iterable[Arrival]:
        burst = self.random.choice(self.bursts)
        return (self.make(0.0, self.random.choice(burst).before_s) for _ in range(self.users))

    def next(self, answered_s: float) -> Arrival | None:
        if answered_s != self._answered_s:
            self._answered_s, self._burst = answered_s, self.random.choice(self.bursts)
        way = self.random.choice(self._burst)
        return self.make(answered_s + way.gap_s + self.think_s(), way.before_s)
