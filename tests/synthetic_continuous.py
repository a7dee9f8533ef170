"""The engine of a simulated run under `continuous`: requests join and leave between two steps.

It tells of segments with the same members, as the service does: each is a batch, released because somebody `joined`,
or `left` and nobody joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.messages.settings import ReleaseReason, Settings
from service.messages.telemetry import BatchWork
from tests.synthetic_parts import SyntheticBatch, SyntheticRequest, padded

PROMPT_TOKEN_S = 0.001


@dataclass
class OpenRun:
    """From an idle engine to an idle engine.

    Attributes:
        requests: all of the run, in order of arrival; those before `place` have been taken.
        step_s: what a step takes with so many rows that begins at that time.
    """

    requests: Sequence[SyntheticRequest]
    batches: list[SyntheticBatch]
    place: int
    settings_at: Callable[[float], tuple[int, Settings]]
    step_s: Callable[[int, float], float]

    def go(self, first: SyntheticBatch) -> float:
        """Run the batch that was formed, and all that join it; returns when the engine is free."""
        segment, joined, left = first, first.members, dict[int, int]()
        first.is_open = True
        at_s = first.formed_s
        while segment.members:
            left |= {member.number: member.tokens for member in joined}
            at_s = self._run_segment(segment, joined, left, at_s)
            segment, joined = self._next(segment, left, at_s)
        self.batches.pop()
        return at_s

    def _run_segment(
        self, segment: SyntheticBatch, joined: list[SyntheticRequest], left: dict[int, int], at_s: float
    ) -> float:
        """Steps until a request leaves or joins; in the first the prompts of those that joined are read."""
        segment.started_s = at_s
        prompts, padding = padded(joined)
        prefill_s = PROMPT_TOKEN_S * prompts
        at_s += prefill_s
        steps, rows = 0, len(segment.members)
        while not steps or (min(left[m.number] for m in segment.members) > 0 and not self._coming(rows, at_s)):
            steps, at_s = steps + 1, at_s + self.step_s(rows, at_s)
            for member in segment.members:
                left[member.number] -= 1
                member.token_times.append(at_s)
            for member in joined if steps == 1 else ():
                member.started_s, member.first_token_s, member.batch = segment.started_s, at_s, segment
        segment.finished_s = at_s
        segment.tokens = [steps] * rows
        segment.work = BatchWork(
            steps=steps,
            computed=prompts + steps * rows - len(joined),
            padding=padding,
            prompts=prompts,
            prefill_s=prefill_s,
        )
        return at_s

    def _next(
        self, before: SyntheticBatch, left: dict[int, int], at_s: float
    ) -> tuple[SyntheticBatch, list[SyntheticRequest]]:
        """Those that are done leave, and those that may join."""
        staying = [member for member in before.members if left[member.number] > 0]
        for member in before.members:
            if left[member.number] <= 0:
                member.finished_s = at_s
        joined = self._coming(len(staying), at_s)
        self.place += len(joined)
        version, settings = self.settings_at(at_s)
        for member in joined:
            member.formed_s = at_s
        reason: ReleaseReason = "joined" if joined else "left"
        segment = SyntheticBatch(before.number + 1, version, settings, reason, at_s, [*staying, *joined], is_open=True)
        self.batches.append(segment)
        return segment, joined

    def _coming(self, running: int, at_s: float) -> list[SyntheticRequest]:
        _, settings = self.settings_at(at_s)
        room = settings.max_batch_size - running
        if settings.formation != "continuous" or room <= 0:
            return []
        return [request for request in self.requests[self.place : self.place + room] if request.received_s <= at_s]
