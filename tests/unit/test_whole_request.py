"""A request comes to a replica with its body, and nobody has to ask the proxy for it."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from ray.serve._private.common import RequestMetadata, StreamingHTTPRequest

from service.http.doors import Message, Receive, Scope, Send
from service.process.whole_request import BODY, BodyInScope, take_bodies_from_scopes

HTTP: Scope = {"type": "http", "path": "/v1/completions"}
METADATA = RequestMetadata(request_id="1", internal_request_id="1")
DISCONNECT = {"type": "http.disconnect"}


def arriving(*messages: Message) -> Receive:
    waiting = list(messages)

    async def receive() -> Message:
        return waiting.pop(0)

    return receive


def part(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def nothing(_: Message) -> None:
    raise AssertionError("Nobody answers here.")


async def test_that_a_body_stands_in_the_scope_and_can_be_received_as_well() -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope, await receive(), await receive()))

    await BodyInScope(app)(HTTP, arriving(part(b"ab", more=True), part(b"c", more=False), DISCONNECT), nothing)

    assert seen == [({**HTTP, BODY: b"abc"}, part(b"abc", more=False), DISCONNECT)]
    assert BODY not in HTTP


async def test_that_what_is_no_request_passes() -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    await BodyInScope(app)({"type": "lifespan"}, arriving(), nothing)

    assert seen == [{"type": "lifespan"}]


class TestInAReplica:
    @pytest.fixture(autouse=True)
    def taking(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = StreamingHTTPRequest.__dict__["receive_asgi_messages"]
        monkeypatch.setattr(StreamingHTTPRequest, "receive_asgi_messages", before)  # to be put back after each test
        take_bodies_from_scopes()

    async def test_that_the_body_is_received_and_then_nothing_more(self) -> None:
        request = StreamingHTTPRequest({**HTTP, BODY: b"abc"}, proxy_actor_name="none")

        assert pickle.loads(await request.receive_asgi_messages(METADATA)) == [part(b"abc", more=False)]
        assert request.asgi_scope == HTTP, "the application is not told of it"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await request.receive_asgi_messages(METADATA)

    async def test_that_a_request_without_its_body_asks_the_proxy(self) -> None:
        async def ask(_: object) -> bytes:
            return b"asked"

        request = StreamingHTTPRequest({**HTTP}, receive_asgi_messages=ask)

        assert await request.receive_asgi_messages(METADATA) == b"asked"
