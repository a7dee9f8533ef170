"""The replica without Ray: takes inputs in, lets the engine compute them batch by batch, and hands results out."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final, Literal

from service.batching.batcher import Batcher, QueueFullError
from service.batching.queue import Batch
from service.engine.compute_thread import EngineThreads
from service.engine.job import Admit, Emit, Engine, Job, Progress
from service.engine.sequence import SamplingParams
from service.messages.settings import ReleaseReason, VersionedSettings
from service.messages.telemetry import FINAL_STATES, BatchWork, RequestRecord, RequestState
from service.replica.batch_log import BatchLog
from service.replica.recorder import Recorder
from service.replica.runner import BatchRun

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 600.0
"""No request lives longer; its asker is told so."""

SHORT_PROMPT = 500
"""Characters that take less time to encode than to hand to a thread, where they would wait for the interpreter."""

FinishReason = Literal["stop", "length"]

NEXT_STATES: Final[Mapping[RequestState, frozenset[RequestState]]] = {
    "waiting": frozenset({"formed", "failed", "cancelled", "refused"}),
    "formed": frozenset({"running", "failed", "cancelled"}),
    "running": frozenset({"done", "failed", "cancelled"}),
}
"""Where a request goes from each state; from a final one nowhere."""


class GenerationError(Exception):
    """The engine could not complete this one request; the message says why."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Text generated since the chunk before; the last one of a request carries `finish_reason`."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: FinishReason | None


@dataclass(eq=False, slots=True)
class GenerationRequest:
    """One input on its way: what the engine needs of it, what its asker has not read yet, and when it was where.

    Attributes:
        streamed: its asker wants every bit of news, not the end alone.
    """

    job: Job
    client_id: str | None
    streamed: bool
    received_s: float
    enqueued_s: float
    state: RequestState = "waiting"
    batch: str | None = None
    formed_s: float | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    completion_tokens: int = 0
    error: str | None = None
    finish_reason: FinishReason | None = None
    answered: asyncio.Future[None] = field(init=False)
    timer: asyncio.TimerHandle = field(init=False)
    unread: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    def enter(self, state: RequestState) -> None:
        """Go on to `state`. No other place changes it, so what has ended stays as it ended."""
        assert state in NEXT_STATES.get(self.state, ()), f"{self.job.id} was {self.state} and cannot become {state}"
        self.state = state

    @property
    def tokens(self) -> int:
        """That it may need in its batch."""
        return self.job.prompt_tokens + self.job.max_tokens

    def record(self, replica: str) -> RequestRecord:
        return RequestRecord(
            id=self.job.id,
            client_id=self.client_id,
            replica=replica,
            state=self.state,
            prompt_tokens=self.job.prompt_tokens,
            max_tokens=self.job.max_tokens,
            completion_tokens=self.completion_tokens,
            batch=self.batch,
            received_s=self.received_s,
            enqueued_s=self.enqueued_s,
            formed_s=self.formed_s,
            started_s=self.started_s,
            first_token_s=self.first_token_s,
            finished_s=self.finished_s,
            error=self.error,
        )

    def read(self) -> TextChunk:
        """Everything that came since the last reading; raises `GenerationError` if the request failed."""
        self.news.clear()
        if self.error is not None:
            raise GenerationError(self.error)
        text = "".join(self.unread)
        self.unread.clear()
        return TextChunk(text, self.job.prompt_tokens, self.completion_tokens, self.finish_reason)


class Generation:
    """One engine, its queue and its telemetry.

    All methods belong to one event loop. The engine runs in `threads`, one a batch, and reports back once a step.
    """

    def __init__(self, replica: str, engine: Engine, threads: EngineThreads, in_force: VersionedSettings) -> None:
        self.replica = replica
        self.batcher: Batcher[GenerationRequest] = Batcher(in_force, on_formed=self._on_formed)
        self.recorder = Recorder(replica)
        self.batches = BatchLog(replica, self.recorder)
        self.running = 0
        self.open_streams = 0
        self.last_step_s = time.monotonic()
        self._engine = engine
        self._threads = threads
        self._request_numbers = itertools.count(1)
        self._batch_ids: dict[Batch[GenerationRequest], str] = {}
        self._under_way: dict[str, GenerationRequest] = {}

    async def submit(
        self,
        input: object,
        sampling: SamplingParams,
        *,
        received_s: float,
        streamed: bool = False,
        client_id: str | None = None,
    ) -> GenerationRequest:
        """Admit an input to the queue. Whoever calls this must call `give_up` in the end, whatever happens.

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
            self.recorder.count(received=1, refused=1)
            request.enter("refused")
            request.error, request.finished_s = str(error), request.enqueued_s
            self.recorder.note_request(request)
            raise
        request.answered.add_done_callback(lambda answered: self._on_answered(request, answered))
        request.timer = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_S, self._on_overdue, request)
        self._under_way[job.id] = request
        self.recorder.count(received=1, admitted=1)
        self.recorder.note_request(request)
        return request

    async def _job_for(self, input: object, sampling: SamplingParams) -> Job:
        id = f"{self.replica}-{next(self._request_numbers)}"
        if isinstance(input, str) and len(input) > SHORT_PROMPT:
            return await asyncio.to_thread(self._engine.job, id, input, sampling)
        return self._engine.job(id, input, sampling)

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
        """Nobody waits for the answer any more: leave the queue at once, or the running batch at its next step."""
        if not request.is_final:
            request.job.cancel()
            request.answered.cancel()

    async def run(self) -> None:
        """Generate batch after batch, for ever; ends with the first that ends unexpectedly."""
        async with asyncio.TaskGroup() as running:
            while True:
                batch = await self.batcher.next_batch()
                running.create_task(self._run_batch(batch))

    async def _run_batch(self, batch: Batch[GenerationRequest]) -> None:
        id = self._batch_ids.pop(batch)
        present = self.start([entry.item for entry in batch.entries])
        self.batches.note(id, started_s=time.monotonic())
        is_open = batch.formation == "continuous"
        with self._threads.one() as thread:
            while True:
                run = BatchRun(self, id, present)
                work = await self._decoded(thread, present, run, is_open) if present else BatchWork()
                for request in run.broken_off:  # the engine ends every job; this is for one that breaks its word
                    self._finish(request, "failed", "The engine stopped before this request was complete.")
                if not (present := run.end(work)):
                    break
                id = self.begin_stretch(present, "joined")
        self.batcher.free_place()

    async def _decoded(
        self, thread: Executor, present: list[GenerationRequest], run: BatchRun, is_open: bool
    ) -> BatchWork | None:
        jobs, admit = [request.job for request in present], run.admit if is_open else None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, self._generate, jobs, run.emit, admit)

    def _generate(self, jobs: list[Job], emit: Emit, admit: Admit | None) -> BatchWork | None:
        """In the engine's thread: nothing it raises may end the loop that serves everybody else."""
        try:
            return self._engine.generate(jobs, emit, admit)
        except BaseException:
            logger.exception("The engine failed on a batch of %d", len(jobs))
            return None

    # ------------------------------------------------------------------------------------------ for a batch that runs

    def start(self, requests: Iterable[GenerationRequest]) -> list[GenerationRequest]:
        """They run from now on, but for those that have ended meanwhile; returns the others."""
        present, now_s = [request for request in requests if not request.is_final], time.monotonic()
        for request in present:
            request.enter("running")
            request.started_s = now_s
            self.recorder.note_request(request)
        self.running += len(present)
        return present

    def take_joining(self, running: Sequence[GenerationRequest]) -> list[GenerationRequest]:
        """Those who join the running ones now."""
        tokens = sum(request.tokens for request in running)
        return [entry.item for entry in self.batcher.take_joining(len(running), tokens)]

    def begin_stretch(self, members: list[GenerationRequest], reason: ReleaseReason) -> str:
        """An open batch goes on with these members, some of whom may be new to it; returns its new id."""
        in_force, now_s = self.batcher.in_force, time.monotonic()
        ids = [request.job.id for request in members]
        stretch = self.batches.resumed(ids, reason, in_force.settings.max_batch_size, in_force.version)
        for request in members:
            if request.batch is None:
                request.enter("formed")
                request.formed_s, request.batch = now_s, stretch
        return stretch

    def note_step(self, progress: list[Progress], at_s: float) -> None:
        """What the engine has done for each of them."""
        self.last_step_s = at_s
        for p in progress:
            request = self._under_way.get(p.job.id)
            if request is None:
                continue
            if request.first_token_s is None and p.tokens:
                request.first_token_s = at_s
                self.recorder.note_request(request)
            request.completion_tokens = p.tokens
            request.unread.append(p.text)
            if p.finish_reason is None:
                if request.streamed:
                    request.news.set()
            elif p.finish_reason == "cancelled":
                self._finish(request, "cancelled")
            elif p.finish_reason == "error":
                self._finish(request, "failed", p.error)
            else:
                request.finish_reason = p.finish_reason
                self._finish(request, "done")

    # ---------------------------------------------------------------------------------------------------------- inner

    def _on_formed(self, batch: Batch[GenerationRequest]) -> None:
        id = self._batch_ids[batch] = self.batches.formed(batch, [entry.item.job.id for entry in batch.entries])
        for request in (entry.item for entry in batch.entries):
            request.enter("formed")
            request.formed_s, request.batch = batch.formed_s, id
            self.recorder.note_request(request)

    def _on_answered(self, request: GenerationRequest, answered: asyncio.Future[None]) -> None:
        """The future ends here, by cancellation, or because Ray's decorator failed."""
        if answered.cancelled():
            if request.state != "running":
                self._finish(request, "cancelled")
        elif error := answered.exception():
            self._finish(request, "failed", f"{type(error).__name__}: {error}")

    def _on_overdue(self, request: GenerationRequest) -> None:
        request.job.cancel()
        self._finish(request, "failed", f"The request was not complete after {REQUEST_TIMEOUT_S:.0f} s.")

    def _finish(self, request: GenerationRequest, state: RequestState, error: str | None = None) -> None:
        if request.is_final:
            return
        if request.state == "running":
            assert request.started_s is not None
            self.running -= 1
            self.batcher.note_run_time(time.monotonic() - request.started_s)
        request.enter(state)
        request.error, request.finished_s = error, time.monotonic()
        request.timer.cancel()
        del self._under_way[request.job.id]
        self.recorder.count(completed=state == "done", failed=state == "failed", cancelled=state == "cancelled")
        self.recorder.note_request(request)
        request.news.set()
        if not request.answered.done():
            request.answered.set_result(None)
