"""Who asks in a simulation: arrivals at given times, or users who wait for their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request on its way to the queue.

    Attributes:
        intended_s: from when on its latency counts.
        enqueued_s: when it reaches the queue.
        tokens, prompt_tokens: to generate, and to read before.
        return_s: from its end in the engine to its end with the asker.
    """

    intended_s: float
    enqueued_s: float
    tokens: int
    prompt_tokens: int = 0
    return_s: float = 0.0


class Load(Protocol):
    """What sends requests."""

    @property
    def pause_after_refusal_s(self) -> float:
        """How long an asker stays away who was refused."""

    def first(self, until_s: float) -> Iterable[Arrival]:
        """Those that are due whatever is answered, up to then."""

    def next(self, answered_s: float) -> Arrival | None:
        """The request that follows from an answer, if any."""


@dataclass(frozen=True)
class OpenLoop:
    """Arrivals that do not wait for answers."""

    arrivals: Sequence[Arrival]
    pause_after_refusal_s: float = 0.0

    def first(self, until_s: float) -> Iterable[Arrival]:
        return (arrival for arrival in self.arrivals if arrival.intended_s < until_s)

    def next(self, answered_s: float) -> Arrival | None:
        return None


@dataclass(frozen=True)
class ClosedLoop:
    """Users, each of whom asks again when answered.

    Attributes:
        ask: makes the request that a user intends at a given time.
        think_s: draws how long a user takes from an answer to the next request.
    """

    users: int
    ask: Callable[[float], Arrival]
    think_s: Callable[[], float] = lambda: 0.0
    pause_after_refusal_s: float = 1.0

    def first(self, until_s: float) -> Iterable[Arrival]:
        return (self.ask(0.0) for _ in range(self.users))

    def next(self, answered_s: float) -> Arrival | None:
        return self.ask(answered_s + self.think_s())
