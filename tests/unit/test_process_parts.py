"""The small parts of the service's process: stages, checks, watching, its environment, its output."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
import ray
from ray.exceptions import AuthenticationError

from service.engine.model.child import Outcome
from service.launch import checks
from service.launch.driver import StageReporter, stages_to
from service.launch.reaper import ended
from service.launch.supervisor import StateLines
from service.messages.life import ServiceState, StageProgress, StartError, Stopping
from service.messages.options import RunOptions
from service.ray_serve import clusters, doors
from service.ray_serve.clusters import LocalCluster
from service.ray_serve.environment import driver_environment
from service.ray_serve.redeployer import reason_of
from tests.unit.fake_nvml import Nvml


class Told(list[StageProgress]):
    """Takes what a reporter emits."""

    def __call__(self, state: ServiceState) -> None:
        assert isinstance(state, StageProgress)
        self.append(state)

    @property
    def steps(self) -> list[tuple[str, bool]]:
        return [(progress.name, progress.finished) for progress in self]


# -- stages -----------------------------------------------------------------------------------------------------------


def test_that_only_pending_stages_of_the_model_lie_ahead() -> None:
    assert [s.name for s in stages_to("gpt2", (), is_local=True)] == ["check", "ray", "serve", "load", "answer"]
    names = [stage.name for stage in stages_to("gpt2", ("fetch", "convert"), is_local=True)]
    assert names == ["check", "fetch", "convert", "ray", "serve", "load", "answer"]


def test_that_a_function_is_not_said_to_be_a_model_and_loads_sooner() -> None:
    text, adder = (stages_to("gpt2", (), is_local=True, workload=name)[3] for name in ("text", "adder"))
    assert (text.title, adder.title) == ("Load the model", "Load adder")
    assert adder.about_s < text.about_s


def test_that_stages_are_told_as_they_begin_and_end() -> None:
    told = Told()
    reporter = StageReporter(told)
    with reporter.running("check"):
        pass
    reporter.begin("ray")
    reporter.finish()
    assert told.steps == [("check", False), ("check", True), ("ray", False), ("ray", True)]


def test_that_a_stage_that_failed_is_not_told_finished() -> None:
    told = Told()
    reporter = StageReporter(told)
    with pytest.raises(OSError, match="broken"), reporter.running("ray"):
        raise OSError("broken")
    assert told.steps == [("ray", False)]


def test_that_a_models_stages_follow_each_other_with_their_units() -> None:
    told = Told()
    reporter = StageReporter(told)
    reporter.model_progress("fetch", 5, 10)
    reporter.model_progress("convert", 0.5, 1)
    reporter.finish()
    assert told.steps == [("fetch", False), ("fetch", True), ("convert", False), ("convert", True)]
    assert (told[1].done, told[1].total, told[1].unit) == (5, 10, "bytes")
    assert (told[3].done, told[3].total, told[3].unit) == (0.5, 1, None)


def test_that_progress_is_throttled_but_the_last_is_told() -> None:
    told = Told()
    reporter = StageReporter(told)
    with reporter.running("fetch"):
        for done in range(1000):
            reporter.progress(done, 1000, "bytes")
    assert len(told) < 100
    assert told[-1].done == 999


def test_that_progress_that_stands_still_is_told_once_a_second() -> None:
    told, times = Told(), itertools.count(0.0, 0.125)
    reporter = StageReporter(told, clock=lambda: next(times))
    reporter.begin("load")
    for _ in range(24):  # three seconds
        reporter.progress(0, 1, "replicas")
    assert len(told) == 4


# -- checks -----------------------------------------------------------------------------------------------------------


def test_that_a_taken_port_is_refused_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(StartError, match=rf"^Port {port} is in use by another program\."):
            checks.choose_port(RunOptions(port=port))


def test_that_without_a_port_the_next_free_one_is_chosen() -> None:
    port = checks.choose_port(RunOptions())
    assert 8000 <= port < 8100


def test_that_any_free_port_is_one_that_no_connection_is_given_before_it_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as connections:
        own = [connections.enter_context(socket.create_connection(server.getsockname())) for _ in range(50)]
        given = {connection.getsockname()[1] for connection in own}
        chosen = {checks.choose_port(RunOptions(port=0)) for _ in range(50)}
    assert len(chosen) > 1, "services that start at once look at different places"
    assert max(chosen) < min(given)


def test_that_an_address_of_another_machine_is_refused_in_words() -> None:
    with pytest.raises(StartError, match=r"192\.0\.2\.1: it is no address of this machine"):
        checks.choose_port(RunOptions(host="192.0.2.1"))


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "localhost:{}"])
def test_that_a_cluster_that_is_not_there_is_told_at_once(form: str) -> None:
    address = form.format(checks.free_port("127.0.0.1"))
    with pytest.raises(StartError, match=f"no Ray cluster to be reached at {address}"):
        checks.check_address(address)


def test_that_an_address_that_ray_alone_can_read_is_left_to_it() -> None:
    checks.check_address("auto")


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("cuda", "This machine has no CUDA GPU that torch can use, so not cuda; choose auto or cpu."),
        ("cuda:1", "This machine has no CUDA GPU that torch can use, so not cuda:1; choose auto or cpu."),
        ("gpu", "There is no device called 'gpu'; the devices are auto, cpu, mps, cuda and cuda:N."),
    ],
)
def test_that_a_device_that_is_not_there_is_refused_in_words(
    device: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(StartError) as refusal:
        checks.check_device(device)
    assert str(refusal.value) == reason


def test_that_a_device_that_is_there_is_not_refused() -> None:
    assert checks.check_device("cpu") == 0, "it has no memory of a GPU"


@pytest.mark.parametrize(("count", "expected"), [(None, 0), (0, 0), (1, 24_000_000_000)])
def test_that_torch_is_asked_for_the_memory_of_a_gpu_only_where_there_may_be_one(
    count: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run_module(_module: str, device: str, **_: object) -> Outcome:
        asked.append(device)
        return Outcome(0, ("24000000000", "A library warns at its end."))

    monkeypatch.setattr(checks, "pynvml", Nvml(count))
    monkeypatch.setattr(checks, "run_module", run_module)
    assert checks.any_gpu_bytes() == expected
    assert asked == (["auto"] if count else [])


def test_that_a_driver_that_does_not_answer_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "DEVICE_LIMIT_S", 0.0)
    with pytest.raises(StartError, match=r"did not find out within 0 s whether the device cuda is there\. See that"):
        checks.check_device("cuda")


def test_that_a_torch_that_cannot_be_loaded_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13 is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(StartError, match=r"not look for the device cuda: .*libcudart\.so\.13 is missing\. Choose"):
        checks.check_device("cuda")


def test_that_a_model_that_does_not_fit_is_refused_in_words(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as weights:
        weights.truncate(10**13)
    with pytest.raises(StartError, match=r"need about \d+\.\d GB of memory and \d+\.\d GB are free"):
        checks.check_memory_for_model(tmp_path, replicas=1)


# -- reasons ----------------------------------------------------------------------------------------------------------


def test_that_the_models_own_sentence_is_the_reason() -> None:
    message = (
        "A replica failed to start with exception. Retrying 1 more time(s). Error:\n"
        "Traceback (most recent call last):\n  File x\n"
        "service.engine.model.report.ModelError: The model is too large: choose a smaller one.\n"
    )
    assert reason_of(message) == "The model is too large: choose a smaller one."


def test_that_any_other_reason_is_its_last_line() -> None:
    reason = reason_of("Error:\n  File x\nRuntimeError: CUDA is out of memory.\n\n")
    assert reason == "The model could not be loaded: RuntimeError: CUDA is out of memory. The log says more."


# -- watching ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("has_pidfd", [True, False])
async def test_that_the_end_of_a_process_is_noticed(
    has_pidfd: bool, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_pidfd:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    watching = asyncio.create_task(ended(child.pid))
    done, _ = await asyncio.wait([watching], timeout=0.3)
    assert not done
    child.kill()  # and not yet asked for
    await asyncio.wait_for(watching, 5)


async def test_that_a_process_that_is_gone_has_ended(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    await asyncio.wait_for(ended(child.pid), 1)


# -- environment ------------------------------------------------------------------------------------------------------


def test_that_our_own_ray_is_closed_and_behind_doors() -> None:
    environment = driver_environment(RunOptions(), "4711", {"RAY_ADDRESS": "1.2.3.4:6379", "HOME": "/home/me"})
    assert "RAY_ADDRESS" not in environment
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["HOME"] == "/home/me"
    assert environment[doors.PLACE_VARIABLE] == "proxy"
    assert doors.rules_from_environment(environment) == doors.DoorRules(host="127.0.0.1", instance="4711")


def test_that_what_goes_to_this_machine_takes_no_proxy() -> None:
    assert (
        driver_environment(RunOptions(), "1", {"NO_PROXY": "a.example"})["no_proxy"] == "127.0.0.1,localhost,a.example"
    )


def test_that_the_token_itself_is_told_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    options = RunOptions(host="0.0.0.0", token_file=str(tmp_path / "token"))
    environment = driver_environment(options, "4711", {})
    assert doors.rules_from_environment(environment).token_sha256 == doors.digest(b"0123456789abcdef")
    assert not any("0123456789abcdef" in value for value in environment.values())


def test_that_a_cluster_of_somebody_else_is_left_as_it_is() -> None:
    environment = driver_environment(RunOptions(address="1.2.3.4:6379"), "4711", {})
    assert "RAY_AUTH_MODE" not in environment
    assert not any(name.startswith(("RAY_SERVE", "BATCHSCOPE_DOORS")) for name in environment)


# -- Ray --------------------------------------------------------------------------------------------------------------


class RayThatStarts:
    """In the place of `ray.init`: leaves a process behind, and comes up with call number `comes_up`."""

    def __init__(self, comes_up: int) -> None:
        self._comes_up = comes_up
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, **_: object) -> None:
        self.started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        if len(self.started) < self._comes_up:
            raise Exception("The current node timed out during startup.")

    def end(self) -> None:
        for each in self.started:
            each.kill()
            each.wait()


@pytest.fixture
def start_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], RayThatStarts]]:
    rays = []

    def start(comes_up: int) -> RayThatStarts:
        fake = RayThatStarts(comes_up)
        rays.append(fake)
        monkeypatch.setattr(ray, "init", fake)
        LocalCluster(RunOptions(), str(tmp_path), lambda: 0, lambda: 0).start()
        return fake

    yield start
    for each in rays:
        each.end()


def test_that_a_ray_that_does_not_come_up_is_ended_and_started_once_more(
    start_ray: Callable[[int], RayThatStarts],
) -> None:
    first, second = start_ray(2).started
    assert first.poll() is not None
    assert second.poll() is None


def test_that_a_ray_that_comes_up_is_started_once(start_ray: Callable[[int], RayThatStarts]) -> None:
    [only] = start_ray(1).started
    assert only.poll() is None


def test_that_a_ray_that_never_comes_up_ends_the_start(start_ray: Callable[[int], RayThatStarts]) -> None:
    with pytest.raises(Exception, match="timed out during startup"):
        start_ray(9)


# -- output -----------------------------------------------------------------------------------------------------------


def test_that_states_are_lines_of_json() -> None:
    reader, writer = os.pipe()
    lines = StateLines(writer)
    lines.put(Stopping())
    lines.close()
    os.close(writer)
    with os.fdopen(reader, "rb") as output:
        assert msgspec.json.decode(output.read(), type=ServiceState) == Stopping()


def test_that_a_reader_that_has_gone_stops_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    lines = StateLines(writer)
    lines.put(Stopping())
    lines.put(Stopping())
    lines.close()
    os.close(writer)


def test_that_a_reader_that_does_not_read_stops_nothing() -> None:
    reader, writer = os.pipe()
    lines = StateLines(writer)
    for _ in range(10_000):
        lines.put(Stopping())
    os.close(reader)
    lines.close()
    os.close(writer)


@pytest.mark.parametrize(
    ("asks", "mode", "error", "words"),
    [
        (False, "", ConnectionError("no answer"), "There is no Ray cluster to be reached at 192.0.2.1:6379"),
        (True, "", None, "The Ray cluster at 192.0.2.1:6379 asks for its token"),
        (True, "token", AuthenticationError("there is none"), "The Ray cluster at 192.0.2.1:6379 asks for its token"),
        (True, "token", ConnectionError("no answer"), "The Ray cluster at 192.0.2.1:6379 refuses the token"),
    ],
    ids=["no cluster", "no mode", "no token", "another token"],
)
def test_that_a_cluster_that_cannot_be_joined_is_told_in_words_that_are_true(
    monkeypatch: pytest.MonkeyPatch, asks: bool, mode: str, error: Exception | None, words: str
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setattr(clusters, "asks_for_token", lambda address: asks)
    join = Mock(side_effect=error)
    monkeypatch.setattr(clusters.ray, "init", join)
    with pytest.raises(StartError, match=re.escape(words)):
        clusters.join("192.0.2.1:6379", "text", {})
    assert join.called == (error is not None), "Ray tries for 20 s"
