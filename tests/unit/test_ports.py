"""Which ports count as free."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from service.launch import checks

pytestmark = pytest.mark.promise("T19")

LOOPBACK = "127.0.0.1"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def test_that_a_port_with_a_listener_is_not_free(listener: socket.socket) -> None:
    assert not checks.is_free(LOOPBACK, port_of(listener))


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="no SO_REUSEPORT here")
def test_that_a_port_whose_listener_would_share_it_is_not_free() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((LOOPBACK, 0))
        server.listen()
        assert not checks.is_free(LOOPBACK, port_of(server))


def test_that_a_listener_on_all_interfaces_takes_the_port_on_loopback_too() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert not checks.is_free(LOOPBACK, port_of(server))


def test_that_a_port_is_free_again_at_once_though_connections_linger(listener: socket.socket) -> None:
    port = port_of(listener)
    client = socket.create_connection((LOOPBACK, port))
    accepted, _ = listener.accept()
    accepted.close()  # first, so that this side lingers
    listener.close()
    client.close()
    assert checks.is_free(LOOPBACK, port)


def test_that_the_next_free_port_is_taken(listener: socket.socket) -> None:
    taken = port_of(listener)
    following = checks.next_free_port(LOOPBACK, first=taken, tried=20)
    assert following is not None
    assert taken < following < taken + 20


def test_that_the_search_ends(listener: socket.socket) -> None:
    assert checks.next_free_port(LOOPBACK, first=port_of(listener), tried=1) is None


def test_that_the_system_may_pick() -> None:
    port = checks.free_port(LOOPBACK)
    assert port is not None
    assert checks.is_free(LOOPBACK, port)


def test_that_an_address_of_another_machine_has_no_ports() -> None:
    assert checks.free_port("192.0.2.1") is None
