"""A Ray that is not ours, and what the `serve` command runs on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from service.launch.checks import quiet_port
from tests.service import HANG_S

PROCESS = Path(__file__).with_name("cluster_process.py")
RAY, SERVE = (Path(sys.executable).with_name(name) for name in ("ray", "serve"))
UNTIL_DEPLOYED = Retry(total=600, status_forcelist=(404, 500, 503), backoff_factor=0.25, backoff_max=0.25)


class Cluster:
    """The cluster's process, seen from a test.

    Attributes:
        address: as Ray spells it.
        environment: of a program that is to find the cluster.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        # Token mode is a local Ray's default, but not that of a program that connects to it.
        self.address = self._told("address")
        self.environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_ADDRESS": self.address}

    @contextlib.contextmanager
    def serve_run(self, *arguments: str | Path, port: int | None = None, question: str = "/healthz") -> Iterator[str]:
        """`serve run` with these arguments; gives the address at which its application answers.

        Args:
            question: a path that it answers, which is asked once.
        """
        url = self._start_serve(port)
        with (
            tempfile.TemporaryFile("w+") as log,
            subprocess.Popen([SERVE, "run", *arguments], env=self.environment, stdout=log, stderr=log) as serve,
        ):
            try:
                _wait_until_deployed(f"{url}{question}")
                yield url
            except requests.RequestException as error:
                log.seek(0)
                pytest.fail(f"{error}\n{log.read()[-4000:]}")
            finally:
                serve.send_signal(signal.SIGINT)

    def serve_run_refused(self, *arguments: str) -> str:
        """`serve run` of what cannot start, with these arguments: what it says before it ends."""
        self._start_serve()
        command = [SERVE, "run", *arguments]
        ended = subprocess.run(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        return ended.stdout

    def _start_serve(self, port: int | None = None) -> str:
        """Start Serve unless it runs; the address of its proxy."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{port or quiet_port()}\n")
        self._process.stdin.flush()
        return self._told("url")

    @contextlib.contextmanager
    def another_machine(self) -> Iterator[None]:
        """A second node of the cluster, which has one processor, as Ray counts them."""
        start = [RAY, "start", "--block", "--num-cpus", "1", "--address", self.address]
        with subprocess.Popen(start, env=self.environment, stdout=subprocess.PIPE, text=True) as node:
            assert node.stdout is not None
            if not any("Ray runtime started" in line for line in node.stdout):
                pytest.fail("the second node did not start")
            try:
                yield
            finally:
                node.terminate()

    def _told(self, name: str) -> str:
        assert self._process.stdout is not None
        return str(json.loads(self._process.stdout.readline())[name])


@contextlib.contextmanager
def started_cluster() -> Iterator[Cluster]:
    # In a folder of its own, where `ray start` notes its address: every other Ray here would join it by that.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, PROCESS, folder]
        environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": str(HANG_S)}
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            yield Cluster(process)  # the end of its standard input ends it


def _wait_until_deployed(url: str) -> None:
    """`serve run` of a config file does not say it itself: that it has submitted the file is all that it tells."""
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=UNTIL_DEPLOYED))
        session.get(url, timeout=HANG_S)
