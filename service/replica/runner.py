"""Runs batches in the engine's threads, and lets requests join and leave a batch that is open to them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Final

from service.batching.batcher import Batcher
from service.batching.queue import Batch
from service.engine.compute_thread import EngineThreads
from service.engine.job import Admit, Emit, Engine, Job, Progress
from service.messages.settings import ReleaseReason
from service.messages.telemetry import BatchWork
from service.replica.recorder import BatchLog
from service.replica.requests import GenerationRequest, LiveRequests

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 5.0
"""The engine waits at most this long for the event loop before it goes on with the rows that it has."""


class BatchRunner:
    """Runs each batch in a thread of its own. All methods belong to one event loop."""

    def __init__(
        self,
        engine: Engine,
        threads: EngineThreads,
        batcher: Batcher[GenerationRequest],
        requests: LiveRequests,
        batches: BatchLog,
    ) -> None:
        self.batcher = batcher
        self.requests = requests
        self.batches = batches
        self._engine = engine
        self._threads = threads

    async def run(self, batch: Batch[GenerationRequest], id: str) -> None:
        """Run `batch`, whose id is `id`, until every request of it and every request that joined it has ended."""
        present = self.requests.start([entry.item for entry in batch.entries])
        # Ray seals an early batch under the size that it read itself, of which `cap` is our reconstruction.
        assert batch.formation == "early" or len(present) <= batch.cap, f"{len(present)} in a batch of {batch.cap}"
        self.batches.note(id, started_s=time.monotonic())
        is_open = batch.formation == "continuous"
        with self._threads.one() as thread:
            while True:
                run = BatchRun(self, id, present)
                work = await self._decode(thread, run, present, is_open) if present else BatchWork()
                for request in run.abandoned:  # an engine ends every job; this is for one that breaks the contract
                    self.requests.finish(request, "failed", "The engine stopped before this request was complete.")
                if not (present := run.end(work)):
                    break
                id = self.begin_segment(present, "joined")
        self.batcher.free_place()

    def begin_segment(self, members: list[GenerationRequest], reason: ReleaseReason) -> str:
        """An open batch goes on with `members`, of which some may have just joined; returns the segment's id."""
        in_force, now_s = self.batcher.in_force, time.monotonic()
        ids = [request.job.id for request in members]
        segment = self.batches.resumed(ids, reason, in_force.settings.max_batch_size, in_force.version)
        self.requests.form([request for request in members if request.batch is None], segment, now_s)
        return segment

    async def _decode(
        self, thread: Executor, run: BatchRun, present: list[GenerationRequest], is_open: bool
    ) -> BatchWork | None:
        jobs, admit = [request.job for request in present], run.admit if is_open else None
        return await asyncio.get_running_loop().run_in_executor(thread, self._generate, jobs, run.emit, admit)

    def _generate(self, jobs: list[Job], emit: Emit, admit: Admit | None) -> BatchWork | None:
        """In the engine's thread: nothing that the engine raises ends the loop that serves all other requests."""
        try:
            return self._engine.generate(jobs, emit, admit)
        except BaseException:
            logger.exception("The engine failed on a batch of %d", len(jobs))
            return None


class BatchRun:
    """One call of the engine.

    One event loop owns it; only `emit` and `admit` belong to the engine's thread. A batch that is open to others is
    recorded in segments: steps with the same members, each of which is a batch of its own in telemetry.
    """

    def __init__(self, runner: BatchRunner, batch: str, present: Iterable[GenerationRequest]) -> None:
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._batch: str | None = batch
        self._present = list(present)
        self._tokens_before = self._tokens  # this segment
        self._work_before = BatchWork()
        self._joined: deque[GenerationRequest] = deque()  # admitted, but not yet fetched by the engine
        self._running = len(self._present)  # as the engine's thread counts them
        self._has_left = False

    # In the engine's thread ------------------------------------------------------------------------------------------

    def emit(self, progress: list[Progress]) -> None:
        """The engine has made a step."""
        ended = sum(each.finish_reason is not None for each in progress)
        self._running -= ended
        self._has_left |= ended > 0
        self._loop.call_soon_threadsafe(self._on_step, progress, time.monotonic())

    def admit(self, work: BatchWork, can_join: bool) -> list[Job]:
        """The jobs that join now. The event loop is asked only if a request has left or could join."""
        batcher = self._runner.batcher
        has_room = can_join and self._running < batcher.in_force.settings.max_batch_size
        if self._has_left or (has_room and batcher.waiting):
            self._has_left = False
            answered = threading.Event()
            self._loop.call_soon_threadsafe(self._exchange, work, can_join, answered)
            answered.wait(HANDSHAKE_S)
        joined = [self._joined.popleft().job for _ in range(len(self._joined))]
        self._running += len(joined)
        return joined

    # In the event loop -----------------------------------------------------------------------------------------------

    def end(self, work: BatchWork | None) -> list[GenerationRequest]:
        """The engine has returned; returns the admitted requests that it did not fetch."""
        self._finish_segment(work)
        return [request for request in self._joined if not request.is_final]

    @property
    def abandoned(self) -> list[GenerationRequest]:
        """The requests that the engine fetched and did not end."""
        return [request for request in self._present if not request.is_final and request not in self._joined]

    @property
    def _tokens(self) -> int:
        return sum(request.completion_tokens for request in self._present)

    def _on_step(self, progress: list[Progress], at_s: float) -> None:
        self._runner.requests.note_step(progress, at_s)
        if self._batch is not None:
            self._runner.batches.note(self._batch, tokens=self._tokens - self._tokens_before)

    def _exchange(self, work: BatchWork, can_join: bool, answered: threading.Event) -> None:
        """Between two steps: requests that ended leave, and waiting requests that fit join."""
        running = [request for request in self._present if not request.is_final]
        joining = self._take_joining(running) if can_join else []
        if joining or len(running) < len(self._present):
            self._finish_segment(work)
            self._present, self._work_before = [*running, *joining], work
            self._tokens_before = self._tokens
            if self._present:
                self._batch = self._runner.begin_segment(self._present, "joined" if joining else "left")
            if joining:
                self._runner.requests.start(joining)
            self._joined += joining
        answered.set()

    def _take_joining(self, running: list[GenerationRequest]) -> list[GenerationRequest]:
        tokens = sum(request.tokens for request in running)
        return [entry.item for entry in self._runner.batcher.take_joining(len(running), tokens)]

    def _finish_segment(self, work: BatchWork | None) -> None:
        if self._batch is None:
            return
        tokens = self._tokens - self._tokens_before
        done = None if work is None else _difference(work, self._work_before)
        self._runner.batches.note(self._batch, finished_s=time.monotonic(), tokens=tokens, work=done)
        self._batch = None


def _difference(work: BatchWork, before: BatchWork) -> BatchWork:
    return BatchWork(**{name: getattr(work, name) - getattr(before, name) for name in BatchWork.__struct_fields__})
