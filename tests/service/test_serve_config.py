"""The config file of chosen settings, given to the real `serve run` as it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from service.compare.serve_config import serve_config
from service.messages.deployment import Scale
from service.messages.settings import Settings
from service.messages.telemetry import ReplicaStatus
from service.options import ServiceOptions
from tests.service.conftest import Telemetry, free_port

HERE = Path(__file__).parent
SERVE = Path(sys.executable).with_name("serve")
SETTINGS = Settings(max_batch_size=5, batch_wait_timeout_s=0.125, max_queued_requests=77)
UNTIL_DEPLOYED = Retry(total=120, status_forcelist=(404, 500, 503), backoff_factor=0.5, backoff_max=0.5)


def settings_in_force(url: str, log: Path) -> Settings:
    """Asks until the application is deployed; `serve run` itself only says that it has submitted the file."""
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=UNTIL_DEPLOYED))
        try:
            answer = session.get(f"{url}/batching", timeout=10)
        except requests.RequestException as error:
            pytest.fail(f"{error}\n{log.read_text()[-4000:]}")
    return msgspec.convert(answer.json()["settings"], Settings)


def replicas_redeployed(url: str, **changes: int) -> tuple[tuple[ReplicaStatus, ...], tuple[ReplicaStatus, ...]]:
    """What replicas say of themselves before and after a redeployment."""
    wanted = Scale().revised(changes)
    with requests.get(f"{url}/telemetry", stream=True, timeout=20) as response:
        telemetry = Telemetry(response)
        before = telemetry.read_until(lambda frame: bool(frame.replicas)).replicas
        assert requests.put(f"{url}/deployment", json=changes, timeout=20).status_code == 200
        telemetry.read_until(
            lambda frame: (seen := frame.deployment) is not None and seen.is_settled and seen.wanted == wanted
        )
        return before, telemetry.read_until(lambda frame: bool(frame.replicas)).replicas


@pytest.mark.timeout(180)
def test_that_serve_run_starts_the_service_with_the_chosen_settings_and_it_can_be_redeployed(tmp_path: Path) -> None:
    port = free_port()
    config, log = tmp_path / "serve.yaml", tmp_path / "serve.log"
    config.write_text(serve_config(ServiceOptions(device="cpu", settings=SETTINGS), ["Chosen by a test."], port))
    environment = os.environ | {"RAY_AUTH_MODE": "token"}
    cluster_command = [sys.executable, HERE / "tutorial_cluster.py", str(port)]
    with subprocess.Popen(
        cluster_command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        environment["RAY_ADDRESS"] = json.loads(cluster.stdout.readline())["address"]
        run = [SERVE, "run", config]
        with log.open("wb") as told, subprocess.Popen(run, env=environment, stdout=told, stderr=told) as serve:
            in_force = settings_in_force(f"http://127.0.0.1:{port}", log)
            before, after = replicas_redeployed(f"http://127.0.0.1:{port}", max_ongoing_requests=50)
            serve.send_signal(signal.SIGINT)
        cluster.stdin.close()

    assert in_force == SETTINGS
    assert [(status.pid, status.max_ongoing_requests) for status in before] == [(before[0].pid, 100_000)]
    assert [(status.pid, status.max_ongoing_requests) for status in after] == [(before[0].pid, 50)]
