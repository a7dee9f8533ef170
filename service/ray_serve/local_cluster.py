"""A local Ray cluster on this machine, reachable from this machine alone, that ends with the service."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil
import ray
from ray.job_config import JobConfig

from service.messages.life import PortTakenError, StartError
from service.messages.options import RunOptions
from service.messages.settings import SCALE_BOUNDS
from service.ray_serve import application

OBJECT_STORE_BYTES: Final = 128 * 2**20  # prompts and texts are small; Ray would take a third of the memory
PORT_ATTEMPTS: Final = 5
MOST_REPLICAS: Final = int(SCALE_BOUNDS["replicas"].high)
VITAL_NAMES: Final = {"gcs_server": "control store (GCS)", "raylet": "node manager (raylet)"}
TOKEN_PATH: Final = Path("~/.ray/auth_token")


class OwnPackagesFirst(JobConfig):
    """Keeps Ray from searching the current folder first in its workers, where a package of the user's could hide ours.

    The user's workload is still found: `service.workloads.catalog` searches the current folder last.
    """

    def _runtime_env_has_working_dir(self) -> bool:
        # WORKAROUND ray 2.60: nothing public keeps the driver's current folder out of its workers' `sys.path`.
        return True


class LocalCluster:
    """Starts Ray and Serve here; ending them is the supervisor's work, which needs no word from Ray for it."""

    def __init__(self, options: RunOptions, directory: str, choose_port: Callable[[], int]) -> None:
        self._options = options
        self._directory = directory
        self._choose_port = choose_port

    def start(self) -> dict[str, int]:
        """Start Ray; returns the numbers of the vital processes by their names for the user."""
        _make_token_private()
        ray.init(
            address="local",
            job_config=OwnPackagesFirst(),
            num_cpus=max(cpu_count(), MOST_REPLICAS),  # each takes one, and this Ray serves nothing else
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            # Ray opens the mode of its folder to all, hence one inside of ours. Short: sockets lie deep within, and
            # their paths must not pass 103 characters.
            _temp_dir=os.path.join(self._directory, "r"),
        )
        children = {child.pid: child.name().removesuffix(".exe") for child in psutil.Process().children()}
        return {VITAL_NAMES[name]: pid for pid, name in children.items() if name in VITAL_NAMES}

    def start_serve(self) -> tuple[str, int]:
        """Start Serve's proxy; returns where it listens."""
        for _ in range(PORT_ATTEMPTS):
            port = self._choose_port()
            try:
                application.start_serve(self._options.host, port)
            except PortTakenError:
                if self._options.port:
                    raise
            else:
                return self._options.host, port
        raise StartError("Other programs take every port just before the service does. Start it again.")

    def release(self) -> None:
        """Nothing: see the class."""


def cpu_count() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _make_token_private() -> None:
    # Ray 2.60 writes the token that guards it readable by all where the umask allows that.
    try:
        TOKEN_PATH.expanduser().chmod(0o600)
    except FileNotFoundError:
        return
