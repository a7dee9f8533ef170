"""Readers of the stream of telemetry of a real service: one for threads, and one for event loops."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import msgspec
import requests

from service.commands.remote import RemoteService
from service.messages.telemetry import BatchRecord, FramesMissed, RequestRecord, TelemetryEvent, TelemetryFrame
from tests.service import HANG_S

if TYPE_CHECKING:
    from tests.service.conftest import Service

EVENTS = msgspec.json.Decoder(TelemetryEvent)


class Frames:
    """All that was read, which may report what was before its reader."""

    def __init__(self) -> None:
        self.frames: list[TelemetryFrame] = []
        self.missed: list[FramesMissed] = []

    def take(self, event: TelemetryEvent) -> TelemetryFrame | None:
        """Keep the event; returns it if it is a frame."""
        if isinstance(event, FramesMissed):
            self.missed.append(event)
            return None
        self.frames.append(event)
        return event

    def batches_since(self, since_s: float) -> list[BatchRecord]:
        """The latest record of each batch formed since then, in the order they were formed."""
        latest = {batch.id: batch for frame in self.frames for batch in frame.batches}
        return [batch for batch in latest.values() if batch.formed_s >= since_s]

    def requests_since(self, since_s: float) -> list[RequestRecord]:
        """The latest record of each request that has come since then."""
        latest = {request.id: request for frame in self.frames for request in frame.requests}
        return [request for request in latest.values() if request.received_s >= since_s]


class Telemetry(Frames):
    """Reads the stream at one replica, in the thread of its caller."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__()
        self.opened_s = time.monotonic()
        self._lines = response.iter_lines(chunk_size=1)

    def read_until(self, condition: Callable[[TelemetryFrame], bool]) -> TelemetryFrame:
        """Read on until a frame meets the condition; returns it."""
        for line in self._lines:
            if not line.startswith(b"data: "):
                continue
            frame = self.take(EVENTS.decode(line.removeprefix(b"data: ")))
            if frame is not None and condition(frame):
                return frame
        raise AssertionError("the stream ended")

    def batches(self) -> list[BatchRecord]:
        """Those since the reader came."""
        return self.batches_since(self.opened_s)

    def requests(self) -> list[RequestRecord]:
        """Those since the reader came."""
        return self.requests_since(self.opened_s)

    def done(self) -> int:
        return sum(request.state == "done" for request in self.requests())

    def read_until_running(self, count: int) -> TelemetryFrame:
        """Read on until so many of the requests that have come since the reader are in running batches."""
        return self.read_until(lambda _: sum(request.state == "running" for request in self.requests()) == count)

    def read_until_done(self, count: int) -> None:
        """Read on until so many requests have been answered since the reader came, and their batches have ended."""
        self.read_until(lambda _: self.done() == count and all(batch.finished_s for batch in self.batches()))

    def read_until_idle(self) -> TelemetryFrame:
        """Read on until no replica holds a request."""
        return self.read_until(
            lambda frame: bool(frame.replicas) and all(r.waiting == r.formed == r.running == 0 for r in frame.replicas)
        )


class Reader(Frames):
    """Reads the stream also where it breaks off at one replica and goes on at another."""

    def __init__(self, events: AsyncIterator[TelemetryEvent]) -> None:
        super().__init__()
        self._events = events

    async def read_until(self, condition: Callable[[TelemetryFrame], bool]) -> TelemetryFrame:
        async for event in self._events:
            frame = self.take(event)
            if frame is not None and condition(frame):
                return frame
        raise AssertionError("the stream ended")

    async def read_until_settled(self, **wanted: int) -> TelemetryFrame:
        def is_settled(frame: TelemetryFrame) -> bool:
            deployment = frame.deployment
            if deployment is None or not deployment.is_settled:
                return False
            return all(getattr(deployment.wanted, name) == value for name, value in wanted.items())

        return await self.read_until(is_settled)


@contextmanager
def telemetry_of(url: str, after: int | None = None) -> Iterator[Telemetry]:
    query = "" if after is None else f"?after={after}"
    with requests.get(f"{url}/telemetry{query}", stream=True, timeout=HANG_S) as response:
        assert response.status_code == 200
        yield Telemetry(response)


@asynccontextmanager
async def reading(service: Service) -> AsyncIterator[Reader]:
    async with RemoteService(service.url) as remote:
        reader = Reader(remote.telemetry())
        await reader.read_until(lambda _: True)
        yield reader
