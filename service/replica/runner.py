"""A batch in the engine's thread, from its first step to its last, and what is told of it meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from service.engine.job import Job, Progress
from service.messages.telemetry import BatchWork

if TYPE_CHECKING:
    from service.replica.generation import Generation, GenerationRequest

HANDSHAKE_S: Final = 5.0
"""So long the engine waits for the event loop before it goes on with those it has."""


class BatchRun:
    """The requests that run together.

    One event loop owns it; `emit` and `admit` alone are for the engine's thread. A batch that is open to others is told
    of in stretches with the same members, each of which is a batch of its own in telemetry.
    """

    def __init__(self, generation: Generation, batch: str, present: Iterable[GenerationRequest]) -> None:
        self._generation = generation
        self._loop = asyncio.get_running_loop()
        self._batch: str | None = batch
        self._present = list(present)
        self._tokens_before = self._tokens  # this stretch
        self._work_before = BatchWork()
        self._joined: deque[GenerationRequest] = deque()  # for the engine to fetch
        self._running = len(self._present)  # as the engine's thread counts them
        self._has_left = False

    # ------------------------------------------------------------------------------------------- in the engine's thread

    def emit(self, progress: list[Progress]) -> None:
        ended = sum(each.finish_reason is not None for each in progress)
        self._running -= ended
        self._has_left |= ended > 0
        self._loop.call_soon_threadsafe(self._on_step, progress, time.monotonic())

    def admit(self, work: BatchWork, can_join: bool) -> list[Job]:
        """Those who join now. The event loop is asked only if somebody has left, or could come."""
        batcher = self._generation.batcher
        has_room = can_join and self._running < batcher.in_force.settings.max_batch_size
        if self._has_left or (has_room and batcher.waiting):
            self._has_left = False
            answered = threading.Event()
            self._loop.call_soon_threadsafe(self._exchange, work, can_join, answered)
            answered.wait(HANDSHAKE_S)
        joined = [self._joined.popleft().job for _ in range(len(self._joined))]
        self._running += len(joined)
        return joined

    # ------------------------------------------------------------------------------------------------ in the event loop

    def end(self, work: BatchWork | None) -> list[GenerationRequest]:
        """The engine has returned; returns those who were to join and were not fetched."""
        self._finish_stretch(work)
        return [request for request in self._joined if not request.is_final]

    @property
    def broken_off(self) -> list[GenerationRequest]:
        """Those whom the engine knew and has not ended."""
        return [request for request in self._present if not request.is_final and request not in self._joined]

    @property
    def _tokens(self) -> int:
        return sum(request.completion_tokens for request in self._present)

    def _on_step(self, progress: list[Progress], at_s: float) -> None:
        self._generation.note_step(progress, at_s)
        if self._batch is not None:
            self._generation.batches.note(self._batch, tokens=self._tokens - self._tokens_before)

    def _exchange(self, work: BatchWork, can_join: bool, answered: threading.Event) -> None:
        """Between two steps: who has left has left, and who may join joins."""
        running = [request for request in self._present if not request.is_final]
        joining = self._generation.take_joining(running) if can_join else []
        if joining or len(running) < len(self._present):
            self._finish_stretch(work)
            self._present, self._work_before = [*running, *joining], work
            self._tokens_before = self._tokens
            if self._present:
                self._batch = self._generation.begin_stretch(self._present, "joined" if joining else "left")
            if joining:
                self._generation.start(joining)
            self._joined += joining
        answered.set()

    def _finish_stretch(self, work: BatchWork | None) -> None:
        if self._batch is None:
            return
        tokens = self._tokens - self._tokens_before
        done = None if work is None else difference(work, self._work_before)
        self._generation.batches.note(self._batch, finished_s=time.monotonic(), tokens=tokens, work=done)
        self._batch = None


def difference(work: BatchWork, before: BatchWork) -> BatchWork:
    return BatchWork(**{name: getattr(work, name) - getattr(before, name) for name in BatchWork.__struct_fields__})
