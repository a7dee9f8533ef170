"""What a simulation is made of, and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from service.analysis.predict.load import Arrival
from service.messages.settings import ReleaseReason


class Engine(Protocol):
    """What a batch costs."""

    def run(self, members: Sequence[Arrival]) -> tuple[float, list[float]]:
        """How long they run together, in seconds, and how long after the start each of them is done."""

    def read_s(self, joining: Sequence[Arrival]) -> float:
        """By how much longer a step takes in which the prompts of those who join are read."""

    def step_s(self, rows: int) -> float:
        """How long each of the next steps takes, with so many rows."""


@dataclass(slots=True, eq=False)
class SimulatedRequest:
    """A request and what became of it; ``None`` is a stage that it did not reach."""

    arrival: Arrival
    enqueued_s: float
    started_s: float | None = None
    finished_s: float | None = None
    answered_s: float | None = None
    refused: bool = False

    @property
    def tokens(self) -> int:
        """That it may need in its batch."""
        return self.arrival.tokens + self.arrival.prompt_tokens


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedBatch:
    """In `continuous` a stretch of steps with the same members; `is_open` says that others could join."""

    members: list[SimulatedRequest]
    release_reason: ReleaseReason
    formed_s: float
    started_s: float
    finished_s: float
    replica: int
    is_open: bool = False


@dataclass
class Run:
    """What was simulated: requests in order of arrival at the queue, batches in order of their start.

    Stretches of a batch that others join stand in the order of their end.
    """

    requests: list[SimulatedRequest] = field(default_factory=list)
    batches: list[SimulatedBatch] = field(default_factory=list)
