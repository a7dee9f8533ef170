"""`serve run` and the tutorial's three ways of asking, on a Ray that is not ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.conftest import free_port

HERE = Path(__file__).parent
SERVE = Path(sys.executable).with_name("serve")


@pytest.fixture(scope="module")
def environment_and_url() -> Iterator[tuple[dict[str, str], str]]:
    """`serve run service.app:generator --name Text-Completion-App` at work."""
    port = free_port()
    environment = os.environ | {"RAY_AUTH_MODE": "token"}  # local Ray's default, but not that of who connects to it
    command = [sys.executable, HERE / "tutorial_cluster.py", str(port)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        environment["RAY_ADDRESS"] = json.loads(cluster.stdout.readline())["address"]
        run = [SERVE, "run", "service.app:generator", "--name", "Text-Completion-App"]
        with subprocess.Popen(run, env=environment, stderr=subprocess.PIPE, text=True) as serve:
            assert serve.stderr is not None
            log = []
            for line in serve.stderr:
                log.append(line)
                if "is ready at" in line:
                    break
            else:
                pytest.fail("serve run ended:\n" + "".join(log))
            yield environment, f"http://127.0.0.1:{port}"
            serve.send_signal(signal.SIGINT)
            serve.stderr.read()
        cluster.stdin.close()


@pytest.mark.timeout(180)
def test_that_the_tutorials_three_ways_of_asking_work(environment_and_url: tuple[dict[str, str], str]) -> None:
    environment, url = environment_and_url
    curl = ["curl", "--silent", "--fail", f"{url}/?text=Once+upon+a+time"]
    by_curl = subprocess.run(curl, capture_output=True, text=True, check=True, timeout=60).stdout
    assert by_curl.startswith("Once upon a time")

    client = [sys.executable, HERE / "tutorial_client.py", url]
    answered = json.loads(subprocess.run(client, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    for text, by_http, by_handle in zip(answered["texts"], answered["by_http"], answered["by_handle"], strict=True):
        assert by_http.startswith(text)
        assert by_handle.startswith(text)
        assert len(by_handle) > len(text) + 20
