"""The config file of chosen settings, given to the real `serve run` as it is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import requests

from service.compare.serve_config import serve_config
from service.messages.settings import Settings
from service.options import ServiceOptions
from tests.service.cluster import Cluster
from tests.service.ports import free_port

SETTINGS = Settings(max_batch_size=5, batch_wait_timeout_s=0.125, max_queued_requests=77)


@pytest.mark.timeout(180)
def test_that_serve_run_starts_the_service_with_the_chosen_settings(cluster: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "serve.yaml"
    port = free_port()
    config.write_text(serve_config(ServiceOptions(device="cpu", settings=SETTINGS), ["Chosen by a test."], port))
    with cluster.serve_run(config, port=port) as url:
        in_force = requests.get(f"{url}/batching", timeout=10).json()["settings"]
    assert msgspec.convert(in_force, Settings) == SETTINGS
