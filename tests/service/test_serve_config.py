"""On a cluster of somebody's: the config file of chosen settings, given to the real `serve run`, and the service."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import requests

from service.analysis.compare.serve_config import serve_config
from service.launch.checks import quiet_port
from service.messages.life import Failed, StageProgress
from service.messages.objectives import Objectives
from service.messages.options import ServiceOptions
from service.messages.settings import Scale, Settings, SettingsChange
from service.messages.telemetry import ReplicaStatus
from tests.service import HANG_S
from tests.service.cluster import Cluster
from tests.service.conftest import Service, ServiceProcess, error_of
from tests.service.telemetry import Telemetry

NO_GPU = "Ray finds no GPU for the device cuda. Choose the device cpu"
SETTINGS = Settings(max_batch_size=5, batch_wait_timeout_s=0.125, max_queued_requests=77)

THEIRS = """
from ray import serve

@serve.deployment
class Theirs:
    def __call__(self, request):
        return "theirs"

app = Theirs.bind()
"""


def replicas_redeployed(url: str, **changes: int) -> tuple[tuple[ReplicaStatus, ...], tuple[ReplicaStatus, ...]]:
    """What replicas say of themselves before and after a redeployment."""
    wanted = Scale().revised(changes)
    with requests.get(f"{url}/telemetry", stream=True, timeout=HANG_S) as response:
        telemetry = Telemetry(response)
        before = telemetry.read_until(lambda frame: bool(frame.replicas)).replicas
        assert requests.put(f"{url}/deployment", json=changes, timeout=HANG_S).status_code == 200
        telemetry.read_until(
            lambda frame: (seen := frame.deployment) is not None and seen.is_settled and seen.wanted == wanted
        )
        return before, telemetry.read_until(lambda frame: bool(frame.replicas)).replicas


def ask(url: str, is_over: threading.Event) -> None:
    body = {"model": "stub", "prompt": "x", "max_tokens": 20, "stream": False}
    while not is_over.is_set():
        requests.post(f"{url}/v1/completions", json=body, timeout=HANG_S)


def change_under_load(url: str) -> SettingsChange:
    """The first change of settings while twelve users wait for their answers."""
    is_over = threading.Event()
    with ThreadPoolExecutor(12) as users, requests.get(f"{url}/telemetry", stream=True, timeout=HANG_S) as response:
        for _ in range(12):
            users.submit(ask, url, is_over)
        try:
            frame = Telemetry(response).read_until(lambda frame: bool(frame.changes))
        finally:
            is_over.set()
    return frame.changes[0]


def test_that_serve_run_starts_the_service_with_the_chosen_settings_which_hold_then_moves_and_it_can_be_redeployed(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = tmp_path / "serve.yaml"
    port = quiet_port()
    options = ServiceOptions(
        model="stub?step_ms=20&row_ms=0", device="cpu", settings=SETTINGS, hold=Objectives(latency_s=1.0)
    )
    config.write_text(serve_config(options, ["Chosen by a test."], port))
    with cluster.serve_run(config, port=port) as url:
        in_force = requests.get(f"{url}/batching", timeout=HANG_S).json()["settings"]
        change = change_under_load(url)
        before, after = replicas_redeployed(url, max_ongoing_requests=50)
    assert change.reason.startswith("Hold: rate ")
    assert change.previous == SETTINGS != change.settings
    assert msgspec.convert(in_force, Settings) == SETTINGS
    assert [(status.pid, status.max_ongoing_requests) for status in before] == [(before[0].pid, 100_000)]
    assert [(status.pid, status.max_ongoing_requests) for status in after] == [(before[0].pid, 50)]


def test_that_replicas_that_serve_scales_by_itself_are_left_to_it(cluster: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "serve.yaml"
    port = quiet_port()
    chosen = serve_config(ServiceOptions(workload="adder", device="cpu", settings=SETTINGS), port=port)
    autoscaled = 'autoscaling_config: {"min_replicas": 1, "max_replicas": 2}'
    config.write_text(chosen.replace("num_replicas: 1", autoscaled))
    with cluster.serve_run(config, port=port) as url:
        refusal = requests.put(f"{url}/deployment", json={"replicas": 2}, timeout=HANG_S)
        before, after = replicas_redeployed(url, max_ongoing_requests=50)
    assert error_of(refusal)["param"] == "replicas"
    assert "autoscaling_config" in error_of(refusal)["message"]
    assert [(status.pid, status.max_ongoing_requests) for status in after] == [(before[0].pid, 50)]


def test_that_serve_run_refuses_a_gpu_that_the_cluster_lacks(cluster: Cluster) -> None:
    log = cluster.serve_run_refused("service.app:build", "workload=house-price", "device=cuda")
    assert NO_GPU in log


def test_that_serve_run_refuses_a_gpu_by_number(cluster: Cluster) -> None:
    log = cluster.serve_run_refused("service.app:build", "workload=house-price", "device=cuda:1")
    assert "Ray chooses the GPU of each replica, so that the device cuda:1 cannot be had here." in log


@pytest.fixture
def address(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the cluster, which programs that are started now may join."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    return cluster.address


def refused(*arguments: str) -> tuple[str, set[str]]:
    """The words in which the service refuses to start, and the stages it came to."""
    process = ServiceProcess(*arguments)
    states = list(process.states())
    assert process.stop() == 1
    failed = states[-1]
    assert isinstance(failed, Failed)
    return failed.reason, {state.name for state in states if isinstance(state, StageProgress)}


def test_that_the_service_refuses_a_gpu_that_the_cluster_lacks(address: str) -> None:
    reason, stages = refused("--address", address, "--workload", "house-price", "--device", "cuda")
    assert reason.startswith(NO_GPU)
    assert stages == {"check", "ray"}


def test_that_the_service_takes_a_place_beside_the_applications_of_others(
    cluster: Cluster, address: str, tmp_path: Path
) -> None:
    (tmp_path / "theirs.py").write_text(THEIRS)
    beside = ("--address", address, "--workload", "adder")
    with cluster.serve_run("theirs:app", "--app-dir", tmp_path, "--name", "theirs", question="/") as url:
        reason, _ = refused(*beside)
        assert reason.startswith("The cluster serves the application theirs at /, and it stays untouched.")
        reason, _ = refused(*beside, "--route-prefix", "/mine", "--name", "theirs")
        assert reason.startswith("The cluster already runs an application named theirs, and it stays untouched.")

        process = ServiceProcess(*beside, "--route-prefix", "/mine", "--name", "mine")
        try:
            service = Service(process.wait_until_ready(), process)
            assert service.url == f"{url}/mine"
            assert service.complete("41").json()["choices"][0]["text"] == "42"
            assert service.change(max_batch_size=3).json()["settings"]["max_batch_size"] == 3
            assert requests.get(url, timeout=HANG_S).text == "theirs"
        finally:
            assert process.stop() == 0
        assert requests.get(f"{url}/mine/batching", timeout=HANG_S).text == "theirs", "which all other paths go to"
