"""What Ray Serve's HTTP proxy calls as it starts: doors before every route, and a port that is not shared."""

from __future__ import annotations

import socket

from ray.serve._private import http_util
from starlette.middleware import Middleware

from service.ray_serve.doors import Doors, rules_from_environment


def middlewares() -> list[Middleware]:
    """Named in RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH."""
    _take_port_for_ourselves()
    return [Middleware(Doors, rules=rules_from_environment())]


def _take_port_for_ourselves() -> None:
    # WORKAROUND ray 2.60: the proxy binds either with SO_REUSEPORT, and then shares the port with any stranger, or
    # without SO_REUSEADDR, and then not at all for a minute after an earlier service had connections there.
    assert callable(http_util.set_socket_reuse_port)
    http_util.set_socket_reuse_port = _reuse_address_only


def _reuse_address_only(sock: socket.socket) -> bool:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return True
