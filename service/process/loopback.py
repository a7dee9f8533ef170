"""Keeps a replica's own gRPC server on loopback, where Ray is."""

from __future__ import annotations

from typing import Any

import ray
from ray.serve._private import replica

from service.http.doors import is_loopback


def keep_replica_on_loopback() -> None:
    """To be called in a deployment's constructor, which runs before its replica starts to listen."""
    # WORKAROUND ray 2.60: the server, which unpickles what it is sent, listens on all interfaces although every caller
    # uses the node's address. On a cluster of several machines that has to stay.
    if is_loopback(ray.util.get_node_ip_address()) and replica.add_port_to_grpc_server is not _add_port_on_loopback:
        replica.add_port_to_grpc_server = _add_port_on_loopback


_add_port = replica.add_port_to_grpc_server


def _add_port_on_loopback(server: Any, address: str) -> int:
    return int(_add_port(server, address.replace("[::]:", "127.0.0.1:")))
