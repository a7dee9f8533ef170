"""A running service as a program without a window sees it: its settings and its telemetry over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import aiohttp
import msgspec

from service.messages.event_stream import EventReader, EventTooLongError
from service.messages.settings import SettingError, VersionedSettings
from service.messages.telemetry import FramesMissed, TelemetryEvent, TelemetryFrame

ANSWER_TIMEOUT_S = 15.0
SILENCE_S = 3.0  # the service says something twice a second
GIVE_UP_AFTER_S = 5.0
RETRY_S = 0.2


class ServiceUnreachableError(Exception):
    """The service does not answer, or not as ours does; the text is a sentence that says what to do."""


class RemoteService:
    """One service at one address. Every call raises `ServiceUnreachableError` where it does not answer."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_TIMEOUT_S, sock_read=ANSWER_TIMEOUT_S),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._session.close()

    async def settings(self) -> VersionedSettings:
        """The settings in force."""
        return await self._settings("GET", None)

    async def change(self, changes: Mapping[str, object]) -> VersionedSettings:
        """Change settings; answered when they are in force in every replica. Raises `SettingError`."""
        return await self._settings("PUT", msgspec.json.encode(changes))

    async def telemetry(self, after: int | None = None) -> AsyncIterator[TelemetryEvent]:
        """Everything from now on (or from after frame `after` on), each frame once; takes up where it broke off."""
        heard_s = time.monotonic()
        while True:
            try:
                async for event in self._stream(after):
                    heard_s = time.monotonic()
                    match event:
                        case FramesMissed(last=last):
                            after = last
                            yield event
                        case TelemetryFrame(number=number) if after is None or number > after:
                            after = number
                            yield event
            except (aiohttp.ClientError, TimeoutError) as error:
                if time.monotonic() - heard_s > GIVE_UP_AFTER_S:
                    raise self._unreachable(error) from error
            await asyncio.sleep(RETRY_S)

    async def _stream(self, after: int | None) -> AsyncIterator[TelemetryEvent]:
        params = {} if after is None else {"after": str(after)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_S, sock_read=SILENCE_S)
        async with self._session.get(f"{self.url}/telemetry", params=params, timeout=timeout) as response:
            if response.status != 200:
                raise self._no_service_of_ours(response.status)
            reader = EventReader()
            async for chunk in response.content.iter_any():
                try:
                    for event in reader.feed(chunk):
                        yield _decode_event(event.data)
                except (EventTooLongError, msgspec.MsgspecError) as error:
                    raise ServiceUnreachableError(
                        f"The telemetry of {self.url} could not be read: {error}. Is it another release?"
                    ) from error

    async def _settings(self, method: str, body: bytes | None) -> VersionedSettings:
        try:
            async with self._session.request(method, f"{self.url}/batching", data=body) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error
        if response.status == 422:
            refusal = msgspec.json.decode(answer)["error"]
            raise SettingError(str(refusal["param"]), str(refusal["message"]))
        if response.status != 200:
            raise self._no_service_of_ours(response.status)
        return msgspec.json.decode(answer, type=VersionedSettings)

    def _unreachable(self, error: BaseException) -> ServiceUnreachableError:
        why = str(error) or type(error).__name__
        return ServiceUnreachableError(f"{self.url} does not answer ({why}). Start it with: python -m service")

    def _no_service_of_ours(self, status: int) -> ServiceUnreachableError:
        hint = " Give its token with --token-file." if status in (401, 403) else " Is it a Batchscope service?"
        return ServiceUnreachableError(f"{self.url} answered {status}.{hint}")


_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(TelemetryEvent)


def _decode_event(data: bytes) -> TelemetryEvent:
    event: TelemetryEvent = _decoder.decode(data)
    return event
