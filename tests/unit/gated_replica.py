"""A replica without Ray whose engine makes a step only when the test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from service.engine.compute_thread import EngineThreads
from service.engine.job import Admit, Emit, SamplingParams, Sequence
from service.engine.stub import AT_ONCE, Fault, StubEngine
from service.messages.settings import Settings, VersionedSettings
from service.messages.telemetry import BatchWork
from service.replica.generation import Generation
from service.replica.requests import GenerationRequest

ENOUGH = 10_000
"""Steps that no test needs."""


class NotingStub(StubEngine):
    """
    Attributes:
        batches: the ids of the requests of each call so far.
    """

    def __init__(
        self, faults: Mapping[str, Fault] | None = None, wait: Callable[[float], object] = lambda _: None
    ) -> None:
        super().__init__(AT_ONCE, faults or {}, wait)
        self.batches: list[list[str]] = []

    def generate(self, sequences: list[Sequence], emit: Emit, admit: Admit | None = None) -> BatchWork:
        self.batches.append([sequence.id for sequence in sequences])
        return super().generate(sequences, emit, admit)


class GatedReplica:
    """A generation at work, and all requests that it has admitted."""

    def __init__(self, settings: Settings, faults: Mapping[str, Fault] | None = None) -> None:
        self.requests: list[GenerationRequest] = []
        self._steps = threading.Semaphore(0)
        self._thread = ThreadPoolExecutor(1)
        self.engine = NotingStub(faults, wait=lambda _: self._steps.acquire())
        in_force = VersionedSettings(version=1, settings=settings)
        self.generation = Generation("r1", self.engine, EngineThreads(self._thread), in_force)
        self.work = asyncio.get_running_loop().create_task(self.generation.run())

    async def submit(self, prompt: str = "a", max_tokens: int = 1) -> GenerationRequest:
        sampling = SamplingParams(max_tokens=max_tokens)
        request = await self.generation.submit(prompt, sampling, received_s=0.0)
        self.requests.append(request)
        return request

    def allow(self, steps: int) -> None:
        self._steps.release(steps)

    def apply(self, settings: Settings) -> None:
        version = self.generation.batcher.in_force.version + 1
        self.generation.apply(VersionedSettings(version=version, settings=settings))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the news that makes it true."""
        news = self.generation.recorder.news
        async with asyncio.timeout(20):
            while not condition():
                await news.wait()
                news.clear()

    async def ended(self) -> None:
        """Return when every request has ended, or the replica's work, whose error is raised."""
        results = asyncio.gather(*(request.news.wait() for request in self.requests))
        async with asyncio.timeout(20):
            await asyncio.wait((results, self.work), return_when=asyncio.FIRST_COMPLETED)
        if self.work.done():
            self.work.result()
        await results

    async def close(self) -> None:
        self.allow(ENOUGH)
        self.work.cancel()
        await asyncio.wait((self.work,))
        await asyncio.to_thread(self._thread.shutdown)
