"""Private parts of Ray Serve that are replaced, each for one release of Ray.

A request crosses from Ray Serve's proxy to a replica in one piece, its body with it.

Serve 2.60 sends its head alone. The replica then looks the proxy up in the cluster, asks it for the body, and asks a
second time for whatever follows, which is the client's leaving: as much work as all the rest of a request's way. But
the doors have read the whole body by then and lay it in the scope, and of a client that leaves the replica learns
without asking, because the proxy cancels what it has asked for.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import ray
from ray.serve._private import http_util
from ray.serve._private import replica as serve_replica
from ray.serve._private.common import StreamingHTTPRequest
from ray.serve.handle import _DeploymentResponseBase
from starlette.middleware import Middleware
from uvicorn.protocols.http import auto as uvicorn_auto
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.messages.heap import set_heap_aside
from service.messages.options import is_loopback
from service.ray_serve.doors import BODY_KEY, Doors, rules_from_environment

HEAD_TIMEOUT_S: Final = 10.0

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
            await asyncio.Event().wait()  # the waiting task is cancelled
        return pickle.dumps([self._messages.pop()])


_serve_replica: Any = serve_replica  # what is replaced in it is not public


def keep_replica_on_loopback() -> None:
    """To be called in a deployment's constructor, which runs before its replica starts to listen."""
    # WORKAROUND ray 2.60: that server, which unpickles what it is sent, listens on all interfaces although every caller
    # uses the node's address. On a cluster of several machines it has to.
    node_address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    if is_loopback(node_address):
        _serve_replica.add_port_to_grpc_server = _add_port_on_loopback


_add_port = _serve_replica.add_port_to_grpc_server


def _add_port_on_loopback(server: Any, address: str) -> int:
    return int(_add_port(server, address.replace("[::]:", "127.0.0.1:")))


def middlewares() -> list[Middleware]:
    """Named in RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH."""
    # WORKAROUND ray 2.60: it names no protocol for uvicorn, which then takes the one that stands there.
    assert issubclass(uvicorn_auto.AutoHTTPProtocol, HttpToolsProtocol)
    uvicorn_auto.AutoHTTPProtocol = HeadsInTime
    # WORKAROUND ray 2.60: the proxy binds either with SO_REUSEPORT, and then shares the port with any stranger, or
    # without SO_REUSEADDR, and then not at all for a minute after an earlier service had connections there.
    assert callable(http_util.set_socket_reuse_port)
    http_util.set_socket_reuse_port = _reuse_address_only
    cancel_what_is_assigned()
    set_heap_aside()
    return [Middleware(Doors, rules=rules_from_environment())]


class HeadsInTime(HttpToolsProtocol):
    """Closes a connection on which the head of a request, once it may come, is not complete in time.

    uvicorn itself limits only the time without any byte after a response. A connection that waits for its first request
    is closed as well; after that `keep_alive_timeout_s` is in force until the first byte of the next head. A request
    for a WebSocket is answered as any other, since there are none: uvicorn would hand it to a protocol without time
    limits, which keeps the connection for ever where its method is not GET.
    """

    _late: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ws_protocol_class = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._late is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._forget_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(HEAD_TIMEOUT_S, self.timeout_keep_alive_handler)

    def _forget_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


_AssignedResponse: Any = _DeploymentResponseBase
_cancel = _AssignedResponse.cancel


def cancel_what_is_assigned() -> None:
    """To be called where a call is made whose client may leave."""
    # WORKAROUND ray 2.60: where router and caller share a loop, a call that is cancelled after a replica has accepted
    # it, and before the caller has read that, is cancelled nowhere: the replica computes it to its end.
    _AssignedResponse.cancel = _cancel_also_when_assigned


def _cancel_also_when_assigned(response: Any) -> None:
    assigned = response._replica_result_future
    _cancel(response)
    if response._replica_result is None and assigned.done() and not assigned.cancelled() and not assigned.exception():
        assigned.result().cancel()


def _reuse_address_only(sock: socket.socket) -> bool:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return True
