"""What crosses between Ray Serve's proxy and a replica: a request with its body, and that its client has left."""

from __future__ import annotations

import asyncio
import pickle
from unittest.mock import create_autospec

import pytest
from ray.serve._private.common import RequestMetadata, StreamingHTTPRequest
from ray.serve._private.replica_result import ReplicaResult
from ray.serve.handle import DeploymentResponseGenerator, _DeploymentResponseBase

from service.ray_serve.doors import BODY_KEY, Scope
from service.ray_serve.patches import cancel_what_is_assigned, take_bodies_from_scopes

HTTP: Scope = {"type": "http", "path": "/v1/completions"}
METADATA = RequestMetadata(request_id="1", internal_request_id="1")


@pytest.fixture(autouse=True)
def as_in_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    before = StreamingHTTPRequest.__dict__["receive_asgi_messages"]
    monkeypatch.setattr(StreamingHTTPRequest, "receive_asgi_messages", before)  # to be put back after each test
    monkeypatch.setattr(_DeploymentResponseBase, "cancel", _DeploymentResponseBase.cancel)
    take_bodies_from_scopes()
    cancel_what_is_assigned()


async def test_that_the_body_is_received_and_then_nothing_more() -> None:
    request = StreamingHTTPRequest({**HTTP, BODY_KEY: b"abc"}, proxy_actor_name="none")

    [message] = pickle.loads(await request.receive_asgi_messages(METADATA))
    assert message == {"type": "http.request", "body": b"abc", "more_body": False}
    assert request.asgi_scope == HTTP, "the application sees nothing of it"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await request.receive_asgi_messages(METADATA)


async def test_that_a_request_without_its_body_asks_the_proxy() -> None:
    async def ask(_: object) -> bytes:
        return b"asked"

    request = StreamingHTTPRequest({**HTTP}, receive_asgi_messages=ask)

    assert await request.receive_asgi_messages(METADATA) == b"asked"


@pytest.mark.parametrize("has_read", [False, True])
async def test_that_a_call_is_cancelled_that_a_replica_has_accepted(has_read: bool) -> None:
    result = create_autospec(ReplicaResult, instance=True)
    assigned = asyncio.get_running_loop().create_future()
    response = DeploymentResponseGenerator(assigned, METADATA, _is_router_running_in_separate_loop=False)
    reading = asyncio.create_task(anext(response))
    if has_read:
        assigned.set_result(result)
        await reading
    else:
        await asyncio.sleep(0)
        assigned.set_result(result)  # heard of with the loop's next round, and the client leaves in this one

    response.cancel()
    result.cancel.assert_called_once_with()


async def test_that_a_call_is_cancelled_that_no_replica_has_accepted() -> None:
    assigned = asyncio.get_running_loop().create_future()
    DeploymentResponseGenerator(assigned, METADATA, _is_router_running_in_separate_loop=False).cancel()
    assert assigned.cancelled()


async def test_that_a_call_that_could_not_be_assigned_is_cancelled_in_silence() -> None:
    assigned = asyncio.get_running_loop().create_future()
    assigned.set_exception(RuntimeError("no replica"))
    DeploymentResponseGenerator(assigned, METADATA, _is_router_running_in_separate_loop=False).cancel()
