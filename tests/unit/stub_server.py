"""A completion server in the test's own event loop whose every byte the test decides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web
from multidict import CIMultiDictProxy

from service.messages.workload import WorkloadAbout

Behaviour = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def event(**fields: object) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def token_event(text: str, tokens: int | None = None, finish_reason: str | None = None) -> bytes:
    usage = {} if tokens is None else {"usage": {"completion_tokens": tokens}}
    return event(choices=[{"index": 0, "text": text, "finish_reason": finish_reason}], **usage)


DONE = b"data: [DONE]\n\n"


async def open_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


def streams(*pieces: bytes) -> Behaviour:
    """Each piece is a write of its own."""

    async def behave(request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        response = await open_stream(request)
        for piece in pieces:
            await response.write(piece)
        return response

    return behave


def breaks_off_after(*pieces: bytes) -> Behaviour:
    async def behave(request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        response = await open_stream(request)
        for piece in pieces:
            await response.write(piece)
        assert request.transport is not None
        request.transport.abort()
        return response

    return behave


def answers(status: int, body: bytes, **headers: str) -> Behaviour:
    async def behave(_request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers={"Content-Type": "application/json", **headers})

    return behave


async def counts_tokens(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """The well-behaved server: one event a token, all at once."""
    response = await open_stream(request)
    tokens = body["max_tokens"]
    await response.write(b"".join(token_event(f" {n}", n) for n in range(1, tokens + 1)))
    await response.write(DONE)
    return response


class StubServer:
    """Listens on a free port of 127.0.0.1.

    Attributes:
        behaviour: what the next requests meet.
        requests: body and headers of each request, in the order they came.
        connections: the transports they came over.
        models: what `GET /v1/models` lists.
        workload: what `GET /workload` answers, where it is a service of ours.
        token: without which `GET /workload` is refused; none by default.
        gone: set when a client of `stalls` has hung up.
    """

    def __init__(self, behaviour: Behaviour = counts_tokens) -> None:
        self.behaviour = behaviour
        self.requests: list[tuple[dict[str, Any], CIMultiDictProxy[str]]] = []
        self.connections: set[object] = set()
        self.models: list[str] = ["stub"]
        self.workload: WorkloadAbout | None = None
        self.token = ""
        self.gone = asyncio.Event()
        self.url = ""
        self._arrivals = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/v1/models", self._list_models)
        app.router.add_get("/workload", self._tell_workload)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Close the port and every connection; may be called more than once."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def stalls(self, *pieces: bytes) -> Behaviour:
        """Sends the pieces and then nothing, until the client hangs up."""

        async def behave(request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
            try:
                response = await open_stream(request)
                for piece in pieces:
                    await response.write(piece)
                await asyncio.Event().wait()
            finally:
                self.gone.set()
            return response

        return behave

    def holds_until(self, release: asyncio.Event) -> Behaviour:
        """Answers well, but only once `release` is set."""

        async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            await release.wait()
            return await counts_tokens(request, body)

        return behave

    async def has_got(self, count: int) -> None:
        """Return when `count` requests have come in all."""
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: len(self.requests) >= count)

    async def _tell_workload(self, request: web.Request) -> web.StreamResponse:
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"error": {"message": "That token is another's."}}, status=401)
        if self.workload is None:
            raise web.HTTPNotFound
        return web.Response(body=msgspec.json.encode(self.workload), content_type="application/json")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append((body, request.headers))
        self.connections.add(request.transport)
        async with self._arrivals:
            self._arrivals.notify_all()
        return await self.behaviour(request, body)

    async def _list_models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": name} for name in self.models]})
