"""The replica without Ray: takes inputs in, has the engine compute them batch by batch, and hands results out."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Executor
from typing import Final

from service.batching.batcher import Batcher, QueueFullError
from service.batching.queue import Batch
from service.engine.compute_thread import EngineThreads
from service.engine.job import Admit, Conversation, DeviceLostError, Engine, Job, Progress, SamplingParams
from service.messages.objectives import Objectives
from service.messages.settings import VersionedSettings
from service.messages.telemetry import BatchWork
from service.replica.changes import trace_context
from service.replica.recorder import Recorder
from service.replica.requests import GenerationError, GenerationRequest, LiveRequests, TextChunk
from service.replica.step_watch import EngineStalledError, StepWatch

logger = logging.getLogger(__name__)

SHORT_PROMPT: Final = 500
"""Up to this many characters a prompt takes less time to encode than to hand to a thread, where it would wait."""

CHUNKS_PER_S: Final = 50.0
"""A chunk costs about 1 ms of processor time on its way through replica, proxy and client, which the model lacks."""

CHUNKS_PER_S_BESIDE_A_GPU: Final = 400.0
"""There the model lacks no processor. What is left of the cost is the replica's own share, about a third of it, and its
engine's thread has a step of less than 1 ms to launch beside."""

WORK_ENDED: Final = "The replica's work has ended unexpectedly; it is replaced. Its log says why."


class Generation:
    """One engine, its queue and its telemetry.

    All methods belong to one event loop. The engine runs in `threads`, one a batch, and reports once a step.

    Attributes:
        engine: that computes.
        clock: gives seconds, in any thread.
        open_streams: of clients.
        chunks_per_s: that all of them together send at most.
    """

    def __init__(
        self,
        replica: str,
        engine: Engine,
        threads: EngineThreads,
        in_force: VersionedSettings,
        chunks_per_s: float = CHUNKS_PER_S,
        clock: Callable[[], float] = time.monotonic,
        objectives: Objectives | None = None,
    ) -> None:
        """With the objectives of the deployment, where it has some; for the others see the attributes."""
        self.replica = replica
        self.clock = clock
        self.chunks_per_s = chunks_per_s
        self.batcher: Batcher[GenerationRequest] = Batcher(in_force, self._on_formed, clock, engine.memory_tokens)
        self.recorder = Recorder(replica, objectives)
        self.requests = LiveRequests(self.recorder, self.batcher.note_run_time, clock)
        self.open_streams = 0
        self.engine = engine
        self._threads = threads
        self._watch = StepWatch(engine, clock)
        self._why_ended = ""
        self._request_numbers = itertools.count(1)
        self._batch_ids: dict[Batch[GenerationRequest], str] = {}
        engine.adopt(in_force.settings)

    @property
    def in_force(self) -> VersionedSettings:
        return self.batcher.in_force

    def apply(self, in_force: VersionedSettings) -> None:
        """Put settings in force for all batches formed, and all requests that join, from now on."""
        self.batcher.apply(in_force)
        self.engine.adopt(in_force.settings)

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

        Raises `QueueFullError`, the engine's `ValueError` for an input that it refuses, or `GenerationError` where no
        batch will run any more.
        """
        if self._why_ended:
            self.recorder.count(received=1, refused=1)
            raise GenerationError(self._why_ended)
        try:
            job = await self._job_for(input, sampling)
        except ValueError:
            self.recorder.count(received=1, refused=1)
            raise
        request = GenerationRequest(job, client_id, streamed, received_s, self.clock())
        if (context := trace_context.get()) is not None:
            self.recorder.note_trace_context(job.id, context)
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
        """Run batch after batch, for ever; ends with the first that ends unexpectedly, or when the engine stalls.

        Then all requests fail, with the reason.
        """
        try:
            async with asyncio.TaskGroup() as running:
                running.create_task(self._watch.run())
                while True:
                    batch = await self.batcher.next_batch()
                    running.create_task(self._run_batch(batch, self._batch_ids.pop(batch)))
        except* EngineStalledError as stalled:
            self._end(str(stalled.exceptions[0]))
            raise
        except* Exception:
            self._end(WORK_ENDED)
            raise

    def begin_segment(self, segment: Batch[GenerationRequest], members: list[GenerationRequest]) -> str:
        """An open batch goes on with `members`, of which the entries of `segment` join; returns the segment's id."""
        id = self.recorder.begin_batch(segment, [request.job.id for request in members])
        self.recorder.change_batch(id, started_s=segment.formed_s)
        joining = [request for request in members if request.batch is None]
        self.requests.form(joining, id, segment.formed_s)
        self.requests.start(joining, segment.formed_s)
        return id

    async def _run_batch(self, batch: Batch[GenerationRequest], id: str) -> None:
        """Run `batch`, whose id is `id`, until every request of it and every request that joined it has ended."""
        started_s = self.clock()
        present = self.requests.start([entry.item for entry in batch.entries], started_s)
        # Ray seals an early batch under the size that it read itself, of which `cap` is our reconstruction.
        assert batch.formation == "early" or len(present) <= batch.cap, f"{len(present)} in a batch of {batch.cap}"
        self.recorder.change_batch(id, started_s=started_s)
        run = BatchRun(self, id, present)
        with self._threads.one() as thread, self._watch.over(run):
            is_open = batch.formation == "continuous"
            work = await run.compute(self.engine, thread, is_open) if present else BatchWork()
        for request in run.abandoned:  # an engine ends every job; this is for one that breaks the contract
            self.requests.finish(request, "failed", "The engine stopped before this request was complete.")
        run.end(work)
        self.batcher.free_place()

    def _end(self, why: str) -> None:
        """No batch will run any more."""
        self._why_ended = self._why_ended or why
        self.requests.end_all("failed", self._why_ended)

    async def _job_for(self, input: object, sampling: SamplingParams) -> Job:
        id = f"{self.replica}-{next(self._request_numbers)}"
        text = input.text if isinstance(input, Conversation) else input
        if isinstance(text, str) and len(text) > SHORT_PROMPT:
            return await asyncio.to_thread(self.engine.job, id, input, sampling)
        return self.engine.job(id, input, sampling)

    def _on_formed(self, batch: Batch[GenerationRequest]) -> None:
        requests = [entry.item for entry in batch.entries]
        id = self._batch_ids[batch] = self.recorder.begin_batch(batch, [request.job.id for request in requests])
        self.requests.form(requests, id, batch.formed_s)


class BatchRun:
    """One call of the engine.

    One event loop owns it; only the methods that say so belong to the engine's thread. That thread takes what joins
    from the queue itself, and never waits for the loop. A batch that is open to others is recorded in segments: steps
    with the same members, each of which is a batch of its own in telemetry.
    """

    def __init__(self, generation: Generation, batch: str, present: Iterable[GenerationRequest]) -> None:
        self._generation = generation
        self._loop = asyncio.get_running_loop()
        self._batch: str | None = batch
        self._present = list(present)
        self._tokens_before = self._tokens  # this segment
        self._work_before = BatchWork()
        self._running = {request.job: request for request in self._present}  # as the engine's thread knows them
        self._has_left = False
        self.signs = 0

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
        self.signs += 1
        for each in progress:
            if each.finish_reason is not None:
                self._running.pop(each.job, None)
                self._has_left = True
        self._loop.call_soon_threadsafe(self._on_step, progress, self._generation.clock())

    def _admit(self, work: BatchWork, can_join: bool) -> list[Job]:
        """The jobs that join between two steps."""
        batcher = self._generation.batcher
        tokens = sum(request.tokens for request in self._running.values())
        segment = batcher.take_joining(len(self._running), tokens) if can_join else None
        if segment is None and self._has_left:
            in_force = batcher.in_force
            cap = in_force.settings.max_batch_size
            segment = Batch((), "left", self._generation.clock(), in_force.version, cap, "continuous")
        if segment is None:
            return []
        self._has_left = False
        self._loop.call_soon_threadsafe(self._on_change, segment, work)
        joining = {entry.item.job: entry.item for entry in segment.entries}
        self._running |= joining
        return list(joining)

    # In the event loop -----------------------------------------------------------------------------------------------

    async def compute(self, engine: Engine, thread: Executor, is_open: bool) -> BatchWork | None:
        """Have `engine` compute the requests in `thread`; ``None`` if it raises."""
        jobs, admit = [request.job for request in self._present], self._admit if is_open else None
        return await self._loop.run_in_executor(thread, self._generate, engine, jobs, admit)

    def end(self, work: BatchWork | None) -> None:
        """The engine has returned."""
        self._finish_segment(work, self._generation.clock())

    @property
    def unread_tokens(self) -> int:
        """Of the prompts of requests without a token."""
        return sum(request.job.prompt_tokens for request in self._present if request.first_token_s is None)

    @property
    def abandoned(self) -> list[GenerationRequest]:
        """The requests that the engine did not end."""
        return [request for request in self._present if not request.is_final]

    @property
    def _tokens(self) -> int:
        return sum(request.completion_tokens for request in self._present)

    def _on_step(self, progress: list[Progress], at_s: float) -> None:
        self._generation.requests.note_step(progress, at_s)
        if self._batch is not None:
            self._generation.recorder.change_batch(self._batch, tokens=self._tokens - self._tokens_before)

    def _on_change(self, segment: Batch[GenerationRequest], work: BatchWork) -> None:
        """Requests have left after a step, or joined: the next steps, until they change again, are `segment`."""
        members = [*self._present, *(entry.item for entry in segment.entries)]
        # A request that was cancelled while the engine took it has ended here; the engine drops it at its next step.
        present = [request for request in members if not request.is_final]
        if present == self._present:
            return
        self._finish_segment(work, segment.formed_s)
        self._present, self._work_before = present, work
        self._tokens_before = self._tokens
        if present:
            self._batch = self._generation.begin_segment(segment, present)

    def _finish_segment(self, work: BatchWork | None, at_s: float) -> None:
        if self._batch is None:
            return
        tokens = self._tokens - self._tokens_before
        done = None if work is None else _difference(work, self._work_before)
        self._generation.recorder.change_batch(self._batch, finished_s=at_s, tokens=tokens, work=done)
        self._batch = None


def _difference(work: BatchWork, before: BatchWork) -> BatchWork:
    return BatchWork(**{name: getattr(work, name) - getattr(before, name) for name in BatchWork.__struct_fields__})
