"""Checks before anything is started: ports, memory, the address of a cluster."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

import psutil

from service.engine.model.child import run_module
from service.engine.model.device import REFUSED
from service.messages.life import NoClusterError, StartError
from service.messages.options import RunOptions

ADDRESS_LIMIT_S: Final = 5.0
DEVICE_LIMIT_S: Final = 60.0
RAY_BYTES: Final = 1_200_000_000
COPY_FACTOR: Final = 1.2  # of the weights, while a replica loads them


def check_port(options: RunOptions) -> None:
    """Raise `StartError` unless there is a port to listen on."""
    if any_free_port(options.host) is None:
        raise StartError(
            f"Nothing can listen on {options.host}: it is no address of this machine. Give one that is with --host, or "
            "leave it out for 127.0.0.1."
        )
    choose_port(options)


def choose_port(options: RunOptions) -> int:
    """The port to listen on; raises `StartError` where it is, or all are, taken."""
    if options.port is None:
        port = next_free_port(options.host)
        if port is None:
            last = FIRST_PORT + PORTS_TRIED - 1
            raise StartError(f"All ports from {FIRST_PORT} to {last} are in use; name a free one with --port.")
        return port
    if options.port == 0:
        return any_free_port(options.host) or 0
    if not is_free(options.host, options.port):
        raise StartError(
            f"Port {options.port} is in use by another program. End that program, or name another port with --port, or "
            "leave --port out to take the next free one."
        )
    return options.port


def check_address(address: str) -> None:
    """Raise `StartError` where nothing listens at a Ray address; Ray itself would try for more than a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return  # "auto", for example, which Ray knows to read
    try:
        socket.create_connection((host.strip("[]"), int(port)), ADDRESS_LIMIT_S).close()
    except (OSError, OverflowError) as error:
        raise NoClusterError(address) from error


def check_device(device: str) -> None:
    """Raise `StartError` where this machine has no such device. Asks torch, in a child process; takes seconds.

    Asked before Ray, which would wait for a GPU for ever.
    """
    outcome = run_module("service.engine.model.device", device, limit_s=DEVICE_LIMIT_S)
    if outcome.timed_out:
        raise StartError(
            f"torch did not find out within {DEVICE_LIMIT_S:g} s whether the device {device} is there. See that "
            "nvidia-smi answers, or choose the device cpu."
        )
    if outcome.code == REFUSED:
        raise StartError(outcome.last_line)
    if not outcome.is_success:
        raise StartError(f"torch could not look for the device {device}: {outcome.last_line}. Choose the device cpu.")


def check_memory_for_ray() -> None:
    """Raise `StartError` where Ray's own processes would not fit."""
    _check_memory(RAY_BYTES, "Ray needs")


def check_memory_for_model(folder: Path, replicas: int) -> None:
    """Raise `StartError` where the weights in `folder` would not fit, once a replica, beside Ray."""
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    _check_memory(RAY_BYTES + int(weights * COPY_FACTOR) * replicas, "Ray and the model need")


def _check_memory(needed_bytes: int, who_needs: str) -> None:
    available_bytes = psutil.virtual_memory().available
    if available_bytes < needed_bytes:
        raise StartError(
            f"{who_needs} about {needed_bytes / 1e9:.1f} GB of memory and {available_bytes / 1e9:.1f} GB are free. "
            "Close other programs, or choose a smaller model or fewer replicas."
        )


FIRST_PORT: Final = 8000
PORTS_TRIED: Final = 100


def is_free(host: str, port: int) -> bool:
    """Whether a program could listen on `port` of `host` now, without sharing it."""
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
