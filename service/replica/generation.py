"""The replica without Ray: takes inputs in, has the engine compute them batch by batch, and hands results out."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Executor
from typing import Final

from service.batching.batcher import Batcher, QueueFullError
from service.batching.queue import Batch
from service.engine.compute_thread import EngineThreads
from service.engine.job import Admit, DeviceLostError, Engine, Job, Progress, SamplingParams
from service.messages.settings import ReleaseReason, VersionedSettings
from service.messages.telemetry import BatchWork
from service.replica.recorder import Recorder
from service.replica.requests import GenerationRequest, LiveRequests, TextChunk

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 5.0
"""The engine waits at most this long for the event loop before it goes on with the rows that it has."""

SHORT_PROMPT: Final = 500
"""Up to this many characters a prompt takes less time to encode than to hand to a thread, where it would wait."""


class Generation:
    """One engine, its queue and its telemetry.

    All methods belong to one event loop. The engine runs in `threads`, one a batch, and reports once a step.
    """

    def __init__(self, replica: str, engine: Engine, threads: EngineThreads, in_force: VersionedSettings) -> None:
        self.replica = replica
        self.batcher: Batcher[GenerationRequest] = Batcher(
            in_force, on_formed=self._on_formed, memory_tokens=engine.memory_tokens
        )
        self.recorder = Recorder(replica)
        self.requests = LiveRequests(self.recorder, self.batcher.note_run_time)
        self.open_streams = 0
        self._engine = engine
        self._threads = threads
        self._request_numbers = itertools.count(1)
        self._batch_ids: dict[Batch[GenerationRequest], str] = {}
        engine.adopt(in_force.settings)

    def apply(self, in_force: VersionedSettings) -> None:
        """Put settings in force for all batches formed, and all requests that join, from now on."""
        self.batcher.apply(in_force)
        self._engine.adopt(in_force.settings)

    async def submit(
        self,
        input: object,
        sampling: SamplingParams,
        *,
        received_s: float,
        streamed: bool = False,
        client_id: str | None = None,
    ) -> GenerationRequest:
        """Admit an input to the queue. The caller must call `give_up` in the end, whatever happens.

        Raises `QueueFullError`, or the engine's `ValueError` for an input that it refuses.
        """
        try:
            job = await self._job_for(input, sampling)
        except ValueError:
            self.recorder.count(received=1, refused=1)
            raise
        request = GenerationRequest(job, client_id, streamed, received_s, time.monotonic())
        try:
            request.answered = self.batcher.submit(request, request.tokens)
        except QueueFullError as error:
            self.requests.refuse(request, str(error))
            raise
        self.requests.admit(request)
        return request

    async def chunks(self, request: GenerationRequest) -> AsyncIterator[TextChunk]:
        """The completion as it comes; the last chunk has a `finish_reason`. Raises `GenerationError`."""
        is_last = False
        while not is_last:
            await request.news.wait()
            chunk = request.read()
            is_last = chunk.finish_reason is not None  # not the request's: it may end before the reader comes back
            yield chunk

    async def result(self, request: GenerationRequest) -> TextChunk:
        """The whole completion of a request that is not `streamed`. Raises `GenerationError`."""
        await request.news.wait()
        return request.read()

    def give_up(self, request: GenerationRequest) -> None:
        """The client has left: the request leaves the queue at once, or the running batch at its next step."""
        if not request.is_final:
            request.job.cancel()
            request.answered.cancel()

    async def run(self) -> None:
        """Run batch after batch, for ever; ends with the first that ends unexpectedly."""
        async with asyncio.TaskGroup() as running:
            while True:
                batch = await self.batcher.next_batch()
                running.create_task(self._run_batch(batch, self._batch_ids.pop(batch)))

    def begin_segment(self, members: list[GenerationRequest], reason: ReleaseReason) -> str:
        """An open batch goes on with `members`, of which some may have just joined; returns the segment's id."""
        in_force, now_s = self.batcher.in_force, time.monotonic()
        cap = in_force.settings.max_batch_size
        segment: Batch[GenerationRequest] = Batch((), reason, now_s, in_force.version, cap, "continuous")
        id = self.recorder.begin_batch(segment, [request.job.id for request in members])
        self.recorder.change_batch(id, started_s=now_s)
        self.requests.form([request for request in members if request.batch is None], id, now_s)
        return id

    async def _run_batch(self, batch: Batch[GenerationRequest], id: str) -> None:
        """Run `batch`, whose id is `id`, until every request of it and every request that joined it has ended."""
        present = self.requests.start([entry.item for entry in batch.entries])
        # Ray seals an early batch under the size that it read itself, of which `cap` is our reconstruction.
        assert batch.formation == "early" or len(present) <= batch.cap, f"{len(present)} in a batch of {batch.cap}"
        self.recorder.change_batch(id, started_s=time.monotonic())
        is_open = batch.formation == "continuous"
        with self._threads.one() as thread:
            while True:
                run = BatchRun(self, id, present)
                work = await run.compute(self._engine, thread, is_open) if present else BatchWork()
                for request in run.abandoned:  # an engine ends every job; this is for one that breaks the contract
                    self.requests.finish(request, "failed", "The engine stopped before this request was complete.")
                if not (present := run.end(work)):
                    break
                id = self.begin_segment(present, "joined")
        self.batcher.free_place()

    async def _job_for(self, input: object, sampling: SamplingParams) -> Job:
        id = f"{self.replica}-{next(self._request_numbers)}"
        if isinstance(input, str) and len(input) > SHORT_PROMPT:
            return await asyncio.to_thread(self._engine.job, id, input, sampling)
        return self._engine.job(id, input, sampling)

    def _on_formed(self, batch: Batch[GenerationRequest]) -> None:
        requests = [entry.item for entry in batch.entries]
        id = self._batch_ids[batch] = self.recorder.begin_batch(batch, [request.job.id for request in requests])
        self.requests.form(requests, id, batch.formed_s)


class BatchRun:
    """One call of the engine.

    One event loop owns it; only the methods that say so belong to the engine's thread. A batch that is open to others
    is recorded in segments: steps with the same members, each of which is a batch of its own in telemetry.
    """

    def __init__(self, generation: Generation, batch: str, present: Iterable[GenerationRequest]) -> None:
        self._generation = generation
        self._loop = asyncio.get_running_loop()
        self._batch: str | None = batch
        self._present = list(present)
        self._tokens_before = self._tokens  # this segment
        self._work_before = BatchWork()
        self._joined: deque[GenerationRequest] = deque()  # admitted, but not yet fetched by the engine
        self._running = len(self._present)  # as the engine's thread counts them
        self._has_left = False

    # In the engine's thread ------------------------------------------------------------------------------------------

    def _generate(self, engine: Engine, jobs: list[Job], admit: Admit | None) -> BatchWork | None:
        """Nothing that the engine raises ends the loop that serves all other requests, unless it can serve none."""
        try:
            return engine.generate(jobs, self._emit, admit)
        except DeviceLostError:
            raise
        except BaseException:
            logger.exception("The engine failed on a batch of %d", len(jobs))
            return None

    def _emit(self, progress: list[Progress]) -> None:
        """The engine has made a step."""
        ended = sum(each.finish_reason is not None for each in progress)
        self._running -= ended
        self._has_left |= ended > 0
        self._loop.call_soon_threadsafe(self._on_step, progress, time.monotonic())

    def _admit(self, work: BatchWork, can_join: bool) -> list[Job]:
        """The jobs that join now. The event loop is asked only if a request has left or could join."""
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

    # In the event loop -----------------------------------------------------------------------------------------------

    async def compute(self, engine: Engine, thread: Executor, is_open: bool) -> BatchWork | None:
        """Have `engine` compute the requests in `thread`; ``None`` if it raises."""
        jobs, admit = [request.job for request in self._present], self._admit if is_open else None
        return await self._loop.run_in_executor(thread, self._generate, engine, jobs, admit)

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
        self._generation.requests.note_step(progress, at_s)
        if self._batch is not None:
            self._generation.recorder.change_batch(self._batch, tokens=self._tokens - self._tokens_before)

    def _exchange(self, work: BatchWork, can_join: bool, answered: threading.Event) -> None:
        """Between two steps: requests that ended leave, and waiting requests that fit join."""
        running = [request for request in self._present if not request.is_final]
        joining: list[GenerationRequest] = []
        if can_join:
            tokens = sum(request.tokens for request in running)
            joining = [entry.item for entry in self._generation.batcher.take_joining(len(running), tokens)]
        if joining or len(running) < len(self._present):
            self._finish_segment(work)
            self._present, self._work_before = [*running, *joining], work
            self._tokens_before = self._tokens
            if self._present:
                self._batch = self._generation.begin_segment(self._present, "joined" if joining else "left")
            if joining:
                self._generation.requests.start(joining)
            self._joined += joining
        answered.set()

    def _finish_segment(self, work: BatchWork | None) -> None:
        if self._batch is None:
            return
        tokens = self._tokens - self._tokens_before
        done = None if work is None else _difference(work, self._work_before)
        self._generation.recorder.change_batch(self._batch, finished_s=time.monotonic(), tokens=tokens, work=done)
        self._batch = None


def _difference(work: BatchWork, before: BatchWork) -> BatchWork:
    return BatchWork(**{name: getattr(work, name) - getattr(before, name) for name in BatchWork.__struct_fields__})
