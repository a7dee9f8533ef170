"""Keeps a replica's own gRPC server on loopback, where Ray is."""

from __future__ import annotations

from typing import Any

import ray
from ray.serve._private import replica as serve_replica

from service.messages.options import is_loopback

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
