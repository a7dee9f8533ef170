"""What a running service does, followed by its telemetry: whether it is idle, and which batches it ran."""

from __future__ import annotations

import asyncio
from typing import Final, Self

from service.commands.remote import RemoteService, ServiceUnreachableError
from service.messages.telemetry import BatchRecord, ReplicaStatus, TelemetryFrame

SPEAKS_WITHIN_S: Final = 10.0
IDLE_WITHIN_S: Final = 60.0


class NotIdleError(Exception):
    """Somebody else's requests are in the way; the text is a sentence that says what to do."""


class ServiceWatch:
    """Follows the telemetry for as long as it is entered."""

    def __init__(self, remote: RemoteService) -> None:
        self._remote = remote
        self._replicas: dict[str, ReplicaStatus] = {}
        self._heard: set[str] = set()
        self._batches: dict[str, BatchRecord] = {}
        self._most_memory_bytes = 0
        self._came = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def replicas(self) -> list[ReplicaStatus]:
        """All replicas, once each of them has been heard of."""
        try:
            async with asyncio.timeout(SPEAKS_WITHIN_S):
                while not self._replicas:
                    await self._next_frame()
        except TimeoutError:
            raise ServiceUnreachableError(f"{self._remote.url} tells nothing of its replicas. Restart it.") from None
        return list(self._replicas.values())

    async def until_idle(self) -> None:
        """Wait until every replica has said, from now on, that it holds no request."""
        self._heard.clear()
        try:
            async with asyncio.timeout(IDLE_WITHIN_S):
                while not self._is_idle():
                    await self._next_frame()
        except TimeoutError:
            held = sum(map(_held, self._replicas.values()))
            raise NotIdleError(
                f"The service still holds {held} requests after {IDLE_WITHIN_S:.0f} s. "
                "To compare it must be alone: stop the other load."
            ) from None

    def forget(self) -> None:
        """What follows is another run."""
        self._batches.clear()
        self._most_memory_bytes = 0

    def batches(self) -> list[BatchRecord]:
        """Those told of since the run before was forgotten."""
        return list(self._batches.values())

    @property
    def most_memory_bytes(self) -> int:
        """The most that all replicas had at a time since then: of their GPUs, or resident."""
        return self._most_memory_bytes

    def _is_idle(self) -> bool:
        return (
            bool(self._heard) and self._heard >= self._replicas.keys() and not any(map(_held, self._replicas.values()))
        )

    async def _next_frame(self) -> None:
        assert self._reading is not None
        waiting = asyncio.ensure_future(self._came.wait())
        try:
            await asyncio.wait((waiting, self._reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._reading.done():
            self._reading.result()

    async def _read(self) -> None:
        async for event in self._remote.telemetry():
            if isinstance(event, TelemetryFrame):
                self._take(event)
                self._came.set()
                self._came = asyncio.Event()

    def _take(self, frame: TelemetryFrame) -> None:
        for status in frame.replicas:
            self._replicas[status.replica] = status
            self._heard.add(status.replica)
        for gone in frame.gone_replicas:
            self._replicas.pop(gone, None)
        self._batches.update((batch.id, batch) for batch in frame.batches)
        self._most_memory_bytes = max(self._most_memory_bytes, sum(map(_memory_bytes, self._replicas.values())))


def _held(status: ReplicaStatus) -> int:
    return status.waiting + status.formed + status.running


def _memory_bytes(status: ReplicaStatus) -> int:
    return status.memory_bytes if status.gpu_memory_bytes is None else status.gpu_memory_bytes
