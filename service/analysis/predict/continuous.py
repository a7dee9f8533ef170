"""A simulated replica whose running batch others join."""

from __future__ import annotations

import math
from dataclasses import dataclass

from service.analysis.predict.replicas import House, Late
from service.analysis.predict.simulated import SimulatedBatch, SimulatedRequest
from service.messages.settings import ReleaseReason, Settings


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps with the same members.

    Attributes:
        read_s: by what the first step is longer, in which the prompts of those who joined are read.
        most: steps until the first of them is done.
    """

    number: int
    reason: ReleaseReason
    begun_s: float
    read_s: float
    step_s: float
    most: int

    def steps_until(self, at_s: float) -> int:
        """After how many of its steps somebody who came at `at_s` can join."""
        passed = math.ceil((at_s - self.begun_s - self.read_s) / self.step_s)
        return min(max(passed, 1), self.most)

    def end_s(self, steps: int) -> float:
        return self.begun_s + self.read_s + steps * self.step_s


class Continuous(Late):
    """As `Late` while the engine is idle; once it runs, requests join and leave between two steps.

    Newcomers' prompts are read in the first step that they share. The engine reads long ones in parts, in several
    steps, which takes as long in all.
    """

    def __init__(self, house: House, number: int, settings: Settings) -> None:
        super().__init__(house, number, settings)
        self._left: dict[SimulatedRequest, int] = {}  # those that run, with the tokens that they still want
        self._stretch: Stretch | None = None
        self._ends_after = 0  # steps of it
        self._numbers = 0

    def enqueue(self, at_s: float, request: SimulatedRequest) -> None:
        super().enqueue(at_s, request)
        stretch = self._stretch
        if stretch is not None and self._joining:
            self._end_after(stretch, stretch.steps_until(at_s))

    def _start(self, at_s: float, formed_s: float, members: list[SimulatedRequest], reason: ReleaseReason) -> None:
        self._free -= 1
        self._begin(at_s, members, reason)

    def _begin(self, at_s: float, joining: list[SimulatedRequest], reason: ReleaseReason) -> None:
        engine = self._house.engine
        for request in joining:
            request.started_s = at_s
            self._left[request] = request.arrival.tokens
        most = max(min(self._left.values()), 1)
        self._numbers += 1
        read_s = engine.read_s([request.arrival for request in joining])
        self._stretch = Stretch(self._numbers, reason, at_s, read_s, engine.step_s(len(self._left)), most)
        self._ends_after = most + 1
        self._end_after(self._stretch, 1 if self._joining else most)

    @property
    def _joining(self) -> int:
        """How many of those who wait may join."""
        tokens = sum(request.tokens for request in self._left) if self._rules.max_batch_tokens else 0
        return self._rules.fitting(self._waiting, len(self._left), tokens)[0]

    def _end_after(self, stretch: Stretch, steps: int) -> None:
        if steps < self._ends_after:
            self._ends_after = steps
            self._house.call_at(stretch.end_s(steps), self._on_end, (stretch.number, steps))

    def _on_end(self, at_s: float, which: object) -> None:
        stretch = self._stretch
        if stretch is None or which != (stretch.number, self._ends_after):
            return
        members = list(self._left)
        for request in members:
            self._left[request] -= self._ends_after
        done = [request for request in members if self._left[request] <= 0]
        for request in done:
            del self._left[request]
        ran = SimulatedBatch(members, stretch.reason, stretch.begun_s, stretch.begun_s, at_s, self._number, True)
        self._stretch = None
        self._house.ran(ran, done, self)
        self._go_on(at_s)

    def _go_on(self, at_s: float) -> None:
        joining = self._take(self._joining)
        if joining or self._left:
            self._begin(at_s, joining, "joined" if joining else "left")
        else:
            self.on_free(at_s, None)
