"""Ports that are free now. The one who listens must still be ready to lose the race for one."""

from __future__ import annotations

import socket
from typing import Final

FIRST_PORT: Final = 8000
PORTS_TRIED: Final = 100


def is_free(host: str, port: int) -> bool:
    """Whether one could listen on `port` of `host` now, without sharing it with anybody."""
    return _listen_briefly(host, port) is not None


def any_free_port(host: str) -> int | None:
    """A port that the system picks, or ``None`` where `host` is no address of this machine."""
    return _listen_briefly(host, 0)


def next_free_port(host: str, first: int = FIRST_PORT, tried: int = PORTS_TRIED) -> int | None:
    """The first free one of `tried` ports from `first` on."""
    return next((port for port in range(first, first + tried) if is_free(host, port)), None)


def _listen_briefly(host: str, port: int) -> int | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Connections of an earlier service may linger on the port; with this flag they do not matter (but a listener
        # does). On Windows it means the opposite: to share.
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return None
        return int(probe.getsockname()[1])
