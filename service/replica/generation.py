"""The replica without Ray: takes inputs in, has the engine compute them batch by batch, and hands results out."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from typing import Final

from service.batching.batcher import Batcher, QueueFullError
from service.batching.queue import Batch
from service.engine.compute_thread import EngineThreads
from service.engine.job import Engine, Job
from service.engine.sequence import SamplingParams
from service.messages.settings import VersionedSettings
from service.replica.recorder import BatchLog, Recorder
from service.replica.requests import GenerationRequest, LiveRequests, TextChunk
from service.replica.runner import BatchRunner

SHORT_PROMPT: Final = 500
"""Up to this many characters a prompt takes less time to encode than to hand to a thread, where it would wait."""


class Generation:
    """One engine, its queue and its telemetry.

    All methods belong to one event loop. The engine runs in `threads`, one a batch, and reports once a step.
    """

    def __init__(self, replica: str, engine: Engine, threads: EngineThreads, in_force: VersionedSettings) -> None:
        self.replica = replica
        self.batcher: Batcher[GenerationRequest] = Batcher(in_force, on_formed=self._on_formed)
        self.recorder = Recorder(replica)
        self.requests = LiveRequests(self.recorder, self.batcher.note_run_time)
        self.open_streams = 0
        self._batches = BatchLog(replica, self.recorder)
        self._runner = BatchRunner(engine, threads, self.batcher, self.requests, self._batches)
        self._engine = engine
        self._request_numbers = itertools.count(1)
        self._batch_ids: dict[Batch[GenerationRequest], str] = {}

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
                running.create_task(self._runner.run(batch, self._batch_ids.pop(batch)))

    async def _job_for(self, input: object, sampling: SamplingParams) -> Job:
        id = f"{self.replica}-{next(self._request_numbers)}"
        if isinstance(input, str) and len(input) > SHORT_PROMPT:
            return await asyncio.to_thread(self._engine.job, id, input, sampling)
        return self._engine.job(id, input, sampling)

    def _on_formed(self, batch: Batch[GenerationRequest]) -> None:
        requests = [entry.item for entry in batch.entries]
        id = self._batch_ids[batch] = self._batches.formed(batch, [request.job.id for request in requests])
        self.requests.form(requests, id, batch.formed_s)
