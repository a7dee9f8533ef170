"""A request crosses from Ray Serve's proxy to a replica in one piece, its body with it.

Serve 2.60 sends its head alone. The replica then looks the proxy up in the cluster, asks it for the body, and asks a
second time for whatever follows, which is the client's leaving: as much work as all the rest of a request's way. But
the doors have read the whole body by then and lay it in the scope, and of a client that leaves the replica learns
without asking, because the proxy cancels what it has asked for.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ray.serve._private.common import StreamingHTTPRequest

from service.ray_serve.doors import BODY_KEY

ReceiveMessages: TypeAlias = Callable[[Any], Awaitable[bytes]]

_ask_proxy: Any = StreamingHTTPRequest.__dict__["receive_asgi_messages"]


def take_bodies_from_scopes() -> None:
    """To be called in a deployment's constructor. A request without its body is served as before."""
    # WORKAROUND ray 2.60: there is no public way to hand a replica a body.
    assert isinstance(_ask_proxy, property)
    StreamingHTTPRequest.receive_asgi_messages = property(_receive_messages)  # type: ignore[assignment, method-assign]


def _receive_messages(request: StreamingHTTPRequest) -> ReceiveMessages:
    if BODY_KEY in request.asgi_scope:
        request._receive_asgi_messages = _Received(request.asgi_scope.pop(BODY_KEY))
    return _ask_proxy.__get__(request)  # type: ignore[no-any-return]


class _Received:
    """Answers as the proxy would: first with the body, then when the client has left."""

    def __init__(self, body: bytes) -> None:
        self._messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def __call__(self, _: object) -> bytes:
        if not self._messages:
            await asyncio.Event().wait()  # whoever waits is cancelled
        return pickle.dumps([self._messages.pop()])
