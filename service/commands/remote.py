"""A running service as a command sees it: settings and telemetry over HTTP."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Self

import aiohttp
import msgspec

from service.load.client import error_text
from service.messages.event_stream import ERROR, EventReader, EventTooLongError
from service.messages.life import Ready
from service.messages.settings import SettingError, VersionedSettings
from service.messages.telemetry import BatchRecord, FramesMissed, ReplicaStatus, TelemetryEvent, TelemetryFrame
from service.messages.text import UserError

ANSWER_TIMEOUT_S = 15.0
SILENCE_S = 3.0  # the service says something twice a second
GIVE_UP_AFTER_S = 15.0  # Serve replaces what has died within some seconds
RETRY_S = 0.2

_decoder: msgspec.json.Decoder[TelemetryEvent] = msgspec.json.Decoder(TelemetryEvent)


class ServiceUnreachableError(UserError):
    """The service does not answer, or not as ours does; the text is a sentence that says what to do."""


class RemoteService:
    """One service at one address. Every call raises `ServiceUnreachableError` where it does not answer."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self._has_token = bool(token)
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_TIMEOUT_S, sock_read=ANSWER_TIMEOUT_S),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._session.close()

    async def ready(self) -> Ready:
        """What the service says of itself, as one that was started here says when it is ready.

        Any instance may answer later: its `instance` is empty.
        """
        begun_s = time.monotonic()
        health, models, workload, deployment = [
            await self._described(path) for path in ("/healthz", "/v1/models", "/workload", "/deployment")
        ]
        try:
            replicas, took_s = deployment["running"], time.monotonic() - begun_s
            return Ready.answered(
                self.url, "", health, models, workload, replicas=replicas, started_in_s=round(took_s, 3)
            )
        except (KeyError, ValueError, TypeError, msgspec.MsgspecError) as error:
            raise self._stranger() from error

    async def _described(self, path: str) -> Any:
        """The JSON at `path`."""
        try:
            async with self._session.get(f"{self.url}{path}") as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error
        if response.status != 200:
            raise self._refused(response.status, body)
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise self._stranger() from error

    async def settings(self) -> VersionedSettings:
        """The settings in force."""
        return await self._settings("GET")

    async def change(
        self, changes: Mapping[str, object], reason: str = "", upon: int | None = None
    ) -> VersionedSettings:
        """Change settings; answered when they are in force in every replica. Raises `SettingError`.

        The `reason` stands beside the change in the telemetry. Where another version than `upon` is in force by then,
        nothing is changed; the answer is what is in force.
        """
        asked = {"reason": reason} if reason else {}
        asked |= {} if upon is None else {"upon": str(upon)}
        return await self._settings("PUT", msgspec.json.encode(changes), asked)

    async def telemetry(self, after: int | None = None) -> AsyncIterator[TelemetryEvent]:
        """Everything from now on (or from after frame `after` on), each frame once; takes up where it broke off."""
        heard_s, has_heard, service = time.monotonic(), False, ""
        while True:
            try:
                async for event in self._stream(after):
                    heard_s, has_heard = time.monotonic(), True
                    match event:
                        case FramesMissed(last=last):
                            after = last
                            yield event
                        case TelemetryFrame(number=number) if (
                            after is None or number > after or event.service != service  # which counts anew
                        ):
                            after, service = number, event.service
                            yield event
            except (aiohttp.ClientError, TimeoutError) as error:
                if time.monotonic() - heard_s > GIVE_UP_AFTER_S:
                    raise self._unreachable(error) from error
            except ServiceUnreachableError:
                if not has_heard or time.monotonic() - heard_s > GIVE_UP_AFTER_S:  # a new proxy knows no route at first
                    raise
            await asyncio.sleep(RETRY_S)

    async def _stream(self, after: int | None) -> AsyncIterator[TelemetryEvent]:
        params = {} if after is None else {"after": str(after)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_S, sock_read=SILENCE_S)
        async with self._session.get(f"{self.url}/telemetry", params=params, timeout=timeout) as response:
            if response.status != 200:
                raise self._refused(response.status, await response.read())
            reader = EventReader()
            async for chunk in response.content.iter_any():
                try:
                    for event in reader.feed(chunk):
                        if event.name == ERROR:  # the replica that sends the stream has ended
                            return
                        yield _decoder.decode(event.data)
                except (EventTooLongError, msgspec.MsgspecError) as error:
                    raise ServiceUnreachableError(
                        f"The telemetry of {self.url} could not be read: {error}. Is it another release?"
                    ) from error

    async def _settings(
        self, method: str, body: bytes | None = None, params: Mapping[str, str] | None = None
    ) -> VersionedSettings:
        try:
            async with self._session.request(method, f"{self.url}/batching", data=body, params=params) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error
        if response.status == 422:
            refusal = msgspec.json.decode(answer)["error"]
            raise SettingError(str(refusal["param"]), str(refusal["message"]))
        if response.status != 200:
            raise self._refused(response.status, answer)
        return msgspec.json.decode(answer, type=VersionedSettings)

    def _unreachable(self, error: BaseException) -> ServiceUnreachableError:
        number = error.errno if isinstance(error, OSError) else None
        why = os.strerror(number) if number else str(error) or type(error).__name__
        return ServiceUnreachableError(f"{self.url} does not answer ({why}). Start it with: python -m service")

    def _stranger(self) -> ServiceUnreachableError:
        return ServiceUnreachableError(
            f"{self.url} answers, but not as a Batchscope service does. Is it another release?"
        )

    def _refused(self, status: int, body: bytes) -> ServiceUnreachableError:
        if status == 401:
            wants = "refuses that bearer token: give its own" if self._has_token else "wants its bearer token: give it"
            return ServiceUnreachableError(f"{self.url} {wants} with --token-file FILE.")
        if status in (403, 503):
            return ServiceUnreachableError(f"{self.url} refuses: {error_text(body)}")
        return ServiceUnreachableError(f"{self.url} answered {status}. Is it a Batchscope service?")


SPEAKS_WITHIN_S: Final = 10.0
IDLE_WITHIN_S: Final = 60.0


class NotIdleError(UserError):
    """Requests of another sender are in the way."""


class ServiceWatch:
    """Follows the telemetry for as long as it is entered.

    `most_memory_bytes` is the most that all replicas had at a time since the last `forget`: of their GPUs, or resident.
    """

    def __init__(self, remote: RemoteService) -> None:
        self._remote = remote
        self._replicas: dict[str, ReplicaStatus] = {}
        self._heard: set[str] = set()
        self._batches: dict[str, BatchRecord] = {}
        self.most_memory_bytes = 0
        self._news = asyncio.Condition()
        self._has_ended = False
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
        if not await self._comes_true(lambda: bool(self._replicas), SPEAKS_WITHIN_S):
            raise ServiceUnreachableError(f"{self._remote.url} reports no replica. Restart it.")
        return list(self._replicas.values())

    async def until_idle(self, waits: Callable[[int], None] | None = None) -> None:
        """Wait until every replica has said, from now on, that it holds no request.

        `waits` is called with the number that they hold whenever it has become less. Raises `NotIdleError` where it
        becomes no less.
        """
        self._heard.clear()
        least = math.inf

        def has_moved() -> bool:
            return self._heard_all and self._held < least

        while least > 0:
            if not await self._comes_true(has_moved, IDLE_WITHIN_S):
                raise NotIdleError(
                    f"The service still holds {self._held} requests after {IDLE_WITHIN_S:.0f} s. "
                    "To compare it must be alone: stop the other load."
                )
            least = self._held
            if least and waits is not None:
                waits(least)

    def forget(self) -> None:
        """What follows is another run."""
        self._batches.clear()
        self.most_memory_bytes = 0

    def batches(self) -> list[BatchRecord]:
        """The batches reported since the last `forget`."""
        return list(self._batches.values())

    @property
    def _heard_all(self) -> bool:
        return bool(self._heard) and self._heard >= self._replicas.keys()

    @property
    def _held(self) -> int:
        return sum(map(_held, self._replicas.values()))

    async def _comes_true(self, is_so: Callable[[], bool], within_s: float) -> bool:
        """Whether frames make it so in time; raises what ended the telemetry."""
        assert self._reading is not None
        try:
            async with asyncio.timeout(within_s), self._news:
                await self._news.wait_for(lambda: is_so() or self._has_ended)
        except TimeoutError:
            return False
        if self._has_ended:
            await self._reading
        return True

    async def _read(self) -> None:
        try:
            async for event in self._remote.telemetry():
                if isinstance(event, TelemetryFrame):
                    self._take(event)
                    await self._tell()
        finally:
            self._has_ended = True
            await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _take(self, frame: TelemetryFrame) -> None:
        for status in frame.replicas:
            self._replicas[status.replica] = status
            self._heard.add(status.replica)
        for gone in frame.gone_replicas:
            self._replicas.pop(gone, None)
        self._batches.update((batch.id, batch) for batch in frame.batches)
        self.most_memory_bytes = max(self.most_memory_bytes, sum(map(_memory_bytes, self._replicas.values())))


def _held(status: ReplicaStatus) -> int:
    return status.waiting + status.formed + status.running


def _memory_bytes(status: ReplicaStatus) -> int:
    known = status.memory_bytes if status.gpu_memory_bytes is None else status.gpu_memory_bytes
    return known or 0
