"""Checks of a start: ports, memory, device and cluster before anything is started, and at last that it answers."""

from __future__ import annotations

import http.client
import json
import random
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml

from service.engine.memory import free_memory_bytes
from service.engine.model.child import REFUSED, run_module
from service.messages.life import NoClusterError, Ready, StartError
from service.messages.options import LOOPBACK, RunOptions
from service.messages.telemetry import FIRST_REQUEST
from service.ray_serve.doors import INSTANCE_HEADER

ADDRESS_LIMIT_S: Final = 5.0
DEVICE_LIMIT_S: Final = 60.0
RAY_BYTES: Final = 1_200_000_000
COPY_FACTOR: Final = 1.2  # of the weights, while a replica loads them
FIRST_PORT: Final = 8000
PORTS_TRIED: Final = 100
QUIET_PORTS: Final = range(20_000, 32_000)  # no system's own choice begins below 32768
ANSWER_LIMIT_S: Final = 120.0
ROUTES_LIMIT_S: Final = 10.0
POLL_S: Final = 0.1
NOT_YET: Final = (404, 503)  # Serve says this for a moment, until its proxy has heard of the application


def choose_port(options: RunOptions) -> int:
    """The port to listen on; raises `StartError` where it is, or all are, taken, or the host is not this machine."""
    if free_port(options.host) is None:
        raise StartError(
            f"Nothing can listen on {options.host}: it is no address of this machine. Give one that is with --host, or "
            "leave it out for 127.0.0.1."
        )
    if options.port is None:
        port = next_free_port(options.host)
        if port is None:
            last = FIRST_PORT + PORTS_TRIED - 1
            raise StartError(f"All ports from {FIRST_PORT} to {last} are in use; name a free one with --port.")
        return port
    if options.port == 0:
        return quiet_port(options.host)
    if not is_free(options.host, options.port):
        raise StartError(
            f"Port {options.port} is in use by another program. End that program, or name another port with --port, or "
            "leave --port out to take the next free one."
        )
    return options.port


def quiet_port(host: str = LOOPBACK) -> int:
    """A free port that the system gives to no program which asks for any, and to no connection of a client.

    So it is still free when it is taken, which is some seconds later. Services that start at once begin to look at
    different places.
    """
    port = next_free_port(host, random.choice(QUIET_PORTS))
    if port is None:
        raise StartError("There is no free port on this machine. End programs that listen on many.")
    return port


def check_address(address: str) -> None:
    """Raise `StartError` where nothing listens at a Ray address; Ray itself would try for more than a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return  # "auto", for example, which Ray knows to read
    try:
        socket.create_connection((host.strip("[]"), int(port)), ADDRESS_LIMIT_S).close()
    except (OSError, OverflowError) as error:
        raise NoClusterError(address) from error


def check_device(device: str) -> int:
    """The bytes of memory of the GPU `device`, or of the smallest that it may be; 0 for another device.

    Raises `StartError` where this machine has no such device. Asks torch, in a child process; takes seconds. Asked
    before Ray, which would wait for a GPU for ever.
    """
    outcome = run_module("service.engine.model.load", device, limit_s=DEVICE_LIMIT_S)
    if outcome.timed_out:
        raise StartError(
            f"torch did not find out within {DEVICE_LIMIT_S:g} s whether the device {device} is there. See that "
            "nvidia-smi answers, or choose the device cpu."
        )
    if outcome.code == REFUSED:
        raise StartError(outcome.last_line)
    if not outcome.is_success:
        raise StartError(f"torch could not look for the device {device}: {outcome.last_line}. Choose the device cpu.")
    return next((int(line) for line in reversed(outcome.tail) if line.isdecimal()), 0)  # libraries may warn after it


def any_gpu_bytes() -> int:
    """What `check_device` says of the device that `auto` takes; torch is asked only where NVML sees a GPU."""
    try:
        pynvml.nvmlInit()
        is_worth_asking = pynvml.nvmlDeviceGetCount() > 0
    except pynvml.NVMLError:
        is_worth_asking = False
    return check_device("auto") if is_worth_asking else 0


def check_memory_for_ray() -> None:
    """Raise `StartError` where Ray's own processes would not fit."""
    _check_memory(RAY_BYTES, "Ray needs")


def check_memory_for_model(folder: Path, replicas: int) -> None:
    """Raise `StartError` where the weights in `folder` would not fit, once a replica, beside Ray."""
    check_memory_for_weights(sum(file.stat().st_size for file in folder.glob("*.safetensors")), replicas)


def check_memory_for_weights(weights_bytes: int, replicas: int) -> None:
    """The same for weights of that size."""
    _check_memory(RAY_BYTES + int(weights_bytes * COPY_FACTOR) * replicas, "Ray and the model need")


def _check_memory(needed_bytes: int, who_needs: str) -> None:
    available_bytes = free_memory_bytes()
    if available_bytes < needed_bytes:
        raise StartError(
            f"{who_needs} about {needed_bytes / 1e9:.1f} GB of memory and {available_bytes / 1e9:.1f} GB are free. "
            "Close other programs, or choose a smaller model or fewer replicas."
        )


def is_free(host: str, port: int) -> bool:
    """Whether a program could listen on `port` of `host` now, without sharing it."""
    return free_port(host, port) is not None


def next_free_port(host: str, first: int = FIRST_PORT, tried: int = PORTS_TRIED) -> int | None:
    """The first free one of `tried` ports from `first` on."""
    return next((port for port in range(first, first + tried) if is_free(host, port)), None)


def free_port(host: str, port: int = 0) -> int | None:
    """That port, or one that the system picks; ``None`` where no program could listen on it now.

    Where the system may pick, ``None`` means that `host` is no address of this machine.
    """
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


@dataclass(frozen=True)
class Caller:
    """Asks the service at `host` and `port`, below `prefix`, and takes answers of `instance` alone."""

    host: str
    port: int
    instance: str
    token: str | None = None
    prefix: str = ""

    def ready(self, replicas: int, started_s: float) -> Ready:
        """Have an example computed and ask what computed it; raises `StartError`."""
        self._wait_for_routes()
        workload = self._ask("GET", "/workload")
        self._ask("POST", "/v1/completions", {"prompt": workload["examples"][0], "max_tokens": 1}, FIRST_REQUEST)
        return Ready.answered(
            f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}{self.prefix}",
            self.instance,
            self._ask("GET", "/healthz"),
            self._ask("GET", "/v1/models"),
            workload,
            replicas=replicas,
            started_in_s=round(time.monotonic() - started_s, 3),
        )

    def _wait_for_routes(self) -> None:
        deadline = time.monotonic() + ROUTES_LIMIT_S
        while self._exchange("GET", "/healthz")[0] in NOT_YET and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _ask(self, method: str, path: str, body: object = None, request_id: str | None = None) -> Any:
        status, text = self._exchange(method, path, body, request_id)
        if status != 200:
            raise StartError(
                f"The model was loaded but {path} answered {status}: {text[:300].decode(errors='replace')} "
                "The log says more."
            )
        return json.loads(text)

    def _exchange(
        self, method: str, path: str, body: object = None, request_id: str | None = None
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if request_id is not None:
            headers["X-Request-Id"] = request_id
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_LIMIT_S)
        try:
            connection.request(method, self.prefix + path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            if response.getheader(INSTANCE_HEADER) != self.instance:
                raise StartError(
                    f"Another program answers on port {self.port}. End it, or name another port with --port."
                )
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise StartError(f"The service does not answer on port {self.port}: {error}. Start it again.") from error
        finally:
            connection.close()
