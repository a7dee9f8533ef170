"""A reader of the stream of telemetry of a real service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from service.commands.remote import RemoteService
from service.messages.telemetry import FramesMissed, TelemetryEvent, TelemetryFrame
from tests.service.conftest import Service


class Reader:
    """Reads the stream of telemetry, also where it breaks off at one replica and goes on at another."""

    def __init__(self, events: AsyncIterator[TelemetryEvent]) -> None:
        self._events = events
        self.frames: list[TelemetryFrame] = []
        self.missed: list[FramesMissed] = []

    async def read_until(self, condition: Callable[[TelemetryFrame], bool]) -> TelemetryFrame:
        async for event in self._events:
            if isinstance(event, FramesMissed):
                self.missed.append(event)
                continue
            self.frames.append(event)
            if condition(event):
                return event
        raise AssertionError("the stream ended")

    async def read_until_settled(self, **wanted: int) -> TelemetryFrame:
        def is_settled(frame: TelemetryFrame) -> bool:
            deployment = frame.deployment
            if deployment is None or not deployment.is_settled:
                return False
            return all(getattr(deployment.wanted, name) == value for name, value in wanted.items())

        return await self.read_until(is_settled)


@asynccontextmanager
async def reading(service: Service) -> AsyncIterator[Reader]:
    async with RemoteService(service.url) as remote:
        reader = Reader(remote.telemetry())
        await reader.read_until(lambda _: True)
        yield reader
