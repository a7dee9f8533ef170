"""One real service for the whole session of tests: `python -m service` with the real model, in float32.

float32, because greedy completions are then the same whatever batch a prompt is in.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import psutil
import pytest
import requests

from service.engine.job import Progress
from service.engine.model.resolve import ModelFolder
from service.launch.checks import quiet_port
from service.messages.life import Failed, Ready, ServiceState
from service.messages.settings import Settings
from tests.service import HANG_S
from tests.service.cluster import Cluster, started_cluster
from tests.service.telemetry import Telemetry, telemetry_of

STATES = msgspec.json.Decoder(ServiceState)
ROOT = Path(__file__).parents[2]
PROGRAM = ("-m", "service")
SUBJECTS = ("A cat", "The old king", "My computer", "Rain", "Seven ships", "Paris", "Music", "A river", "Snow", "Bread")
VERBS = ("is", "was", "has", "can", "will", "never", "always", "once", "often", "seems")
PROMPTS = [f"{subject} {verb}{tail}" for subject in SUBJECTS for verb in VERBS for tail in ("", " the")]
COMPLETED_TOKENS = 4


class ServiceProcess:
    """`python -m service` as a child, its states read as they come and its log kept for the report of a failure.

    With a `terminal` it runs in a session of its own, and its log is what the terminal shows.
    """

    def __init__(
        self,
        *arguments: str,
        folder: Path | None = None,
        program: tuple[str, ...] = PROGRAM,
        terminal: int | None = None,
    ) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdin=subprocess.PIPE if terminal is None else terminal,
            stdout=subprocess.PIPE,
            stderr=self._log if terminal is None else terminal,
            start_new_session=terminal is not None,
            cwd=folder,
            # Also where only the checkout has it.
            env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))},
        )

    def states(self) -> Iterator[ServiceState]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield STATES.decode(line)

    def wait_until_ready(self) -> Ready:
        state = self.wait_until(lambda state: isinstance(state, Ready | Failed))
        assert isinstance(state, Ready), f"the service did not become ready; its log:\n{self.log()}"
        return state

    def wait_until(self, condition: Callable[[ServiceState], bool]) -> ServiceState | None:
        """The first state, from the next on, that meets the condition; ``None`` where it ends without."""
        watchdog = threading.Timer(HANG_S, self.process.kill)
        watchdog.start()
        try:
            return next(filter(condition, self.states()), None)
        finally:
            watchdog.cancel()

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-8000:]

    def stop(self) -> int:
        """End it in order; returns its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(HANG_S)
        finally:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout, self._log):
                if stream is not None:
                    stream.close()


TUNNEL = "tunnel.test:9000"
"""By this name and port, too, the common service may be called."""


class Service:
    """What a test asks of the running service."""

    def __init__(self, ready: Ready, process: ServiceProcess) -> None:
        self.ready = ready
        self.process = process
        self.pid = process.process.pid
        self.url = ready.url

    def complete(self, prompt: Any, **fields: Any) -> requests.Response:
        body = {"prompt": prompt, "max_tokens": 8, "temperature": 0} | fields
        return requests.post(f"{self.url}/v1/completions", json=body, timeout=HANG_S, stream=bool(fields.get("stream")))

    def change(self, **settings: Any) -> requests.Response:
        return requests.put(f"{self.url}/batching", json=settings, timeout=HANG_S)

    def memory_bytes(self) -> dict[int, int]:
        """Of each of its processes, by id, what it has in memory."""
        supervisor = psutil.Process(self.pid)
        return {each.pid: each.memory_info().rss for each in (supervisor, *supervisor.children(recursive=True))}

    def processors_s(self) -> float:
        """What all of its processes have taken of the processors."""
        supervisor = psutil.Process(self.pid)
        return sum(sum(each.cpu_times()[:2]) for each in (supervisor, *supervisor.children(recursive=True)))

    def telemetry(self, after: int | None = None) -> contextlib.AbstractContextManager[Telemetry]:
        return telemetry_of(self.url, after)


def served(*arguments: str, folder: Path | None = None, program: tuple[str, ...] = PROGRAM) -> Iterator[Service]:
    """Another service than the common one, for as long as a fixture or a test wants it."""
    process = ServiceProcess("--port", str(quiet_port()), *arguments, folder=folder, program=program)
    try:
        yield Service(process.wait_until_ready(), process)
    finally:
        process.stop()


@pytest.fixture(scope="package")
def service_process() -> Iterator[tuple[ServiceProcess, Ready]]:
    process = ServiceProcess("--port", str(quiet_port()), "--dtype", "float32", "--allow-host", TUNNEL)
    try:
        yield process, process.wait_until_ready()
    finally:
        code = process.stop()
    assert code == 0, "the service did not end in order"


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    with started_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="package")
def adder_service() -> Iterator[Service]:
    yield from served("--workload", "adder")


@pytest.fixture(scope="package")
def completions(model_folder: ModelFolder) -> dict[str, str]:
    """Greedy completions of 200 prompts, of `COMPLETED_TOKENS`, by an engine of our own, in batches of its own."""
    import torch

    from service.engine.engine import TextEngine
    from service.engine.job import SamplingParams, Sequence
    from service.engine.model.load import load

    torch.set_num_threads(1)  # the service computes beside it
    engine = TextEngine(load(model_folder, "cpu", "float32"))
    sampling = SamplingParams(max_tokens=COMPLETED_TOKENS, ignore_eos=True)
    texts = dict.fromkeys(PROMPTS, "")

    def collect(progress: list[Progress]) -> None:
        for each in progress:
            texts[each.job.id] += each.text

    for start in range(0, len(PROMPTS), 50):
        batch = PROMPTS[start : start + 50]
        engine.generate([Sequence(each, engine.encode(each, COMPLETED_TOKENS), sampling) for each in batch], collect)
    return texts


@pytest.fixture
def service(service_process: tuple[ServiceProcess, Ready]) -> Iterator[Service]:
    """The running service with its settings as they were at the start."""
    process, ready = service_process
    service = Service(ready, process)
    yield service
    restored = service.change(**msgspec.to_builtins(Settings()))
    assert restored.status_code == 200, restored.text


def error_of(response: requests.Response) -> dict[str, Any]:
    """The error of a refusal, which always has OpenAI's shape."""
    error = json.loads(response.text)["error"]
    assert isinstance(error["message"], str)
    assert error["message"]
    return dict(error)
