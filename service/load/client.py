"""Sends requests to an OpenAI-compatible server and reads the answers, streamed or in one piece.

Errors come in the forms that servers give them: OpenAI's, FastAPI's, or plain text.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from functools import partial
from typing import Any, Self

import aiohttp
import msgspec

from service.load.flight import Answer, Flight, Observer
from service.messages.event_stream import ERROR, EventReader, EventTooLongError, ServerEvent
from service.messages.text import UserError
from service.messages.workload import TEXT, WorkloadAbout

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 600.0  # a request may wait long in a queue, but not for ever
MODELS_TIMEOUT_S = 2.0
DRAIN_TIMEOUT_S = 1.0  # between the last event and the end of the body, for the connection's sake
KEEP_ALIVE_S = 4.0  # below the 5 s after which uvicorn closes: a connection must not be closed while it is taken again
MOST_ERROR_BYTES = 64 * 1024
MOST_ERROR_CHARS = 500
MOST_ANSWER_BYTES = 16 * 1024**2
DONE = b"[DONE]"
FAILED_FINISH_REASONS = frozenset({"error", "cancelled", "abort"})
OWN_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS})

BROKEN_OFF = "The connection broke off before the answer was complete."


class UnreachableError(RuntimeError):
    """No server takes the connection; the text is a sentence that says why."""


class Client:
    """One task a request; connections are kept alive and as many as there are requests.

    A stream is `ok` only if its last event, `[DONE]`, has come: one that merely ends has broken off.
    """

    def __init__(self, url: str, token: str | None = None, model: str | None = None) -> None:
        self._url = url
        self.model = model  # the name that requests ask for
        self._tasks: dict[str, asyncio.Task[Answer]] = {}
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_TIMEOUT_S),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks.values():
            task.cancel()
        await self.idle()
        await self._session.close()

    async def idle(self) -> None:
        """Return when no request is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def learn_model(self) -> None:
        """Ask which model is served, as most servers want it named; where that fails, requests go without a name.

        Raises `UnreachableError` where no server takes the connection. A name that was given stays.
        """
        try:
            _, body = await self._get("/v1/models")
        except aiohttp.ClientConnectorError as e:
            raise UnreachableError(self._unreachable(e.os_error)) from e
        except (aiohttp.ClientError, TimeoutError) as e:
            log.info("The server does not say which model it serves: %s", e)
            return
        if self.model is None:
            self.model = first_model(body)

    async def workload(self) -> WorkloadAbout:
        """The workload that a service of ours reports; any other server is taken to continue prompts.

        Raises `UserError` where the server wants a token, or another one: it would refuse every request.
        """
        try:
            status, body = await self._get("/workload")
            if status == 401:
                raise UserError(f"{self._url} refuses: {error_text(body)} Name a file that holds it with --token-file.")
            return msgspec.json.decode(body, type=WorkloadAbout) if status == 200 else TEXT
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
            return TEXT  # the first request then says what is wrong with the server

    async def _get(self, path: str) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=MODELS_TIMEOUT_S)
        async with self._session.get(f"{self._url}{path}", timeout=timeout) as response:
            return response.status, await read_at_most(response, MOST_ERROR_BYTES)

    def start(self, flight: Flight, observer: Observer) -> None:
        task = asyncio.create_task(self._ask(flight, observer))
        self._tasks[flight.id] = task
        task.add_done_callback(partial(self._on_done, flight, observer))

    def cancel(self, flight: Flight) -> None:
        task = self._tasks.get(flight.id)
        if task is not None:
            task.cancel()

    def _on_done(self, flight: Flight, observer: Observer, task: asyncio.Task[Answer]) -> None:
        del self._tasks[flight.id]
        if task.cancelled():
            answer = Answer("cancelled" if flight.finished_s is None else "ok")
        elif bug := task.exception():
            log.error("A request failed in an unforeseen way", exc_info=bug)
            answer = Answer("failed", f"The load generator failed: {bug!r}.")
        else:
            answer = task.result()
        observer.concluded(flight, answer)

    async def _ask(self, flight: Flight, observer: Observer) -> Answer:
        flight.sent_s = time.monotonic()
        observer.sent(flight)
        try:
            async with self._session.post(
                f"{self._url}/v1/completions",
                data=completion_body(flight, self.model),
                headers={"X-Request-Id": flight.id},
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    return await _turned_away(response)
                return await (_listen(response, flight, observer) if flight.streams else _read(response, flight))
        except aiohttp.ClientConnectorError as e:
            return self._not_connected(e.os_error)
        except aiohttp.ConnectionTimeoutError:
            return Answer("failed", f"{self._url} did not take the connection within {CONNECT_TIMEOUT_S:.0f} s.")
        except aiohttp.ServerTimeoutError:
            return Answer("failed", f"{self._url} has sent nothing for {SILENCE_TIMEOUT_S:.0f} s.")
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as e:
            log.debug("%s: %r", flight.id, e)
            return Answer("failed", BROKEN_OFF)
        except (aiohttp.ClientError, EventTooLongError, ValueError) as e:
            return Answer("failed", f"{self._url} does not answer as a completion server does: {e}")

    def _not_connected(self, reason: OSError) -> Answer:
        if reason.errno in OWN_LIMITS:
            return Answer("failed", f"This machine allows no further connections: {reason.strerror}.")
        return Answer("failed", self._unreachable(reason), is_unreachable=True)

    def _unreachable(self, reason: OSError) -> str:
        why = "connection refused" if reason.errno == errno.ECONNREFUSED else (reason.strerror or str(reason))
        return f"{self._url} cannot be reached: {why}."


async def _turned_away(response: aiohttp.ClientResponse) -> Answer:
    message = error_text(await read_at_most(response, MOST_ERROR_BYTES)) or response.reason or "no reason was given"
    if response.status != 503:
        return Answer("failed", f"{message} (HTTP {response.status})")
    return Answer("refused", message, retry_after_s=_seconds(response.headers.get("Retry-After", "")))


async def _listen(response: aiohttp.ClientResponse, flight: Flight, observer: Observer) -> Answer:
    reader = EventReader()
    async for chunk in response.content.iter_any():
        now = time.monotonic()
        for event in reader.feed(chunk):
            answer = take_event(event, flight, now)
            if answer is None:
                continue
            if answer.outcome == "ok":
                flight.finished_s = now
                await _drain(response)
            return answer
        observer.progressed(flight)
    return Answer("failed", BROKEN_OFF)


async def _read(response: aiohttp.ClientResponse, flight: Flight) -> Answer:
    body = await read_at_most(response, MOST_ANSWER_BYTES)
    failed = _take_piece(body, flight)
    if failed is None:
        flight.finished_s = time.monotonic()
    return failed or Answer("ok")


def take_event(event: ServerEvent, flight: Flight, now_s: float) -> Answer | None:
    """Add what the event brings to the flight; the answer if it was the last."""
    if event.data == DONE:
        return Answer("ok")
    if event.name == ERROR:
        return Answer("failed", error_text(event.data))
    return _take_piece(event.data, flight, now_s)


def _take_piece(data: bytes, flight: Flight, now_s: float | None = None) -> Answer | None:
    """Add a completion, or the chunk of one that came at `now_s`; returns the answer if it reports a failure."""
    try:
        chunk = decode_chunk(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        return Answer("failed", f"The server sent what is not a completion: {e}")
    if chunk.error:
        return Answer("failed", error_message(chunk.error))
    text, before = chunk.text, flight.tokens
    if text:
        flight.add_text(text)
    if chunk.usage is not None:
        flight.tokens = chunk.usage.completion_tokens
        flight.prompt_tokens = chunk.usage.prompt_tokens
    elif text:
        flight.tokens += 1  # an estimate for a server that reports no usage: most servers send one token an event
    if chunk.finish_reason in FAILED_FINISH_REASONS:
        return Answer("failed", f"The server ended the request: {chunk.finish_reason}.")
    if now_s is not None and flight.tokens > before and (chunk.choices or not before):
        flight.note_tokens(now_s)  # an event with the usage alone brings no token, it corrects their number
    return None


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read to the end of the body, so that the connection can be used again."""
    if response.content.at_eof():
        return
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            async for _ in response.content.iter_any():
                pass
    except (TimeoutError, aiohttp.ClientError):
        response.close()


async def read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body, or its first `limit` bytes."""
    try:
        return await response.content.readexactly(limit)
    except asyncio.IncompleteReadError as e:
        return e.partial


def _seconds(retry_after: str) -> float | None:
    return float(retry_after) if retry_after.isascii() and retry_after.isdecimal() else None


def completion_body(flight: Flight, model: str | None) -> bytes:
    """The body of `POST /v1/completions`; a load gets exactly the tokens it asks for, a fired prompt ends by itself."""
    body: dict[str, Any] = {"prompt": flight.prompt, "max_tokens": flight.max_tokens, "temperature": flight.temperature}
    if model is not None:
        body["model"] = model
    if flight.source == "load":
        body["ignore_eos"] = True
    if flight.streams:
        # The second is vLLM's: without it tokens that come together would be counted as one.
        body |= {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    return msgspec.json.encode(body)


class _Choice(msgspec.Struct, frozen=True):
    text: str | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    completion_tokens: int = 0
    prompt_tokens: int | None = None


class CompletionChunk(msgspec.Struct, frozen=True):
    """A completion, or an event of a streamed one, as far as a load generator wants to know it."""

    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    error: Any = None

    @property
    def text(self) -> str:
        return "".join([choice.text for choice in self.choices if choice.text])

    @property
    def finish_reason(self) -> str | None:
        return self.choices[0].finish_reason if self.choices else None


decode_chunk = msgspec.json.Decoder(CompletionChunk).decode


class _Model(msgspec.Struct, frozen=True):
    id: str


class _ModelList(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...]


def first_model(body: bytes) -> str | None:
    """The first id in an answer of `GET /v1/models`, if it is one."""
    try:
        models = msgspec.json.decode(body, type=_ModelList).data
    except msgspec.MsgspecError:
        return None
    return models[0].id if models else None


def error_text(body: bytes) -> str:
    """The message in the body of an error: OpenAI's form, FastAPI's, or plain text; cut where it goes on and on."""
    try:
        return error_message(msgspec.json.decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _cut(body.decode(errors="replace"))


def error_message(error: object) -> str:
    """The message in an error that was JSON."""
    if isinstance(error, dict):
        for key in ("error", "message", "detail"):
            if error.get(key):
                return error_message(error[key])
    if isinstance(error, str):
        return _cut(error)
    return _cut(msgspec.json.encode(error).decode())


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_ERROR_CHARS else text[:MOST_ERROR_CHARS] + "…"
