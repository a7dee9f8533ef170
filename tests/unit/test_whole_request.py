"""A request comes to a replica with its body, and nobody has to ask the proxy for it."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from ray.serve._private.common import RequestMetadata, StreamingHTTPRequest

from service.ray_serve.doors import BODY_KEY, Scope
from service.ray_serve.patches import take_bodies_from_scopes

HTTP: Scope = {"type": "http", "path": "/v1/completions"}
METADATA = RequestMetadata(request_id="1", internal_request_id="1")


@pytest.fixture(autouse=True)
def in_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    before = StreamingHTTPRequest.__dict__["receive_asgi_messages"]
    monkeypatch.setattr(StreamingHTTPRequest, "receive_asgi_messages", before)  # to be put back after each test
    take_bodies_from_scopes()


async def test_that_the_body_is_received_and_then_nothing_more() -> None:
    request = StreamingHTTPRequest({**HTTP, BODY_KEY: b"abc"}, proxy_actor_name="none")

    [message] = pickle.loads(await request.receive_asgi_messages(METADATA))
    assert message == {"type": "http.request", "body": b"abc", "more_body": False}
    assert request.asgi_scope == HTTP, "the application is not told of it"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await request.receive_asgi_messages(METADATA)


async def test_that_a_request_without_its_body_asks_the_proxy() -> None:
    async def ask(_: object) -> bytes:
        return b"asked"

    request = StreamingHTTPRequest({**HTTP}, receive_asgi_messages=ask)

    assert await request.receive_asgi_messages(METADATA) == b"asked"
