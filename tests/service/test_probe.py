"""Applications that are not ours, under `serve run` on a Ray that is not ours, seen through the probe."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from service.commands.remote import RemoteService
from service.messages.life import Ready
from service.messages.telemetry import BatchRecord
from tests.service import HANG_S
from tests.service.cluster import Cluster
from tests.service.conftest import error_of
from tests.service.telemetry import telemetry_of

pytestmark = pytest.mark.timeout(1200)

FIND = """
import json, sys, time
import batchscope, ray
ray.init(namespace="serve", log_to_driver=False)
while sys.argv[1] not in (urls := batchscope.urls()):
    time.sleep(0.1)
print(json.dumps(urls[sys.argv[1]]))
"""
"""A function is probed from its first call on, and the hub that then starts takes seconds."""


class Probed:
    """A function of an application that runs.

    Attributes:
        url: of the application.
        hub: address of the function's hub.
    """

    def __init__(self, url: str, function: str, cluster: Cluster) -> None:
        self.url = url
        find = [sys.executable, "-c", FIND, function]
        told = subprocess.run(find, env=cluster.environment, capture_output=True, check=True, timeout=HANG_S).stdout
        self.hub: str = json.loads(told.splitlines()[-1])

    def ask(self, name: str, inputs: list[Any]) -> tuple[list[str], list[BatchRecord]]:
        """Ask for all of them at once; the answers, and the batches that they came in."""
        with telemetry_of(self.hub) as telemetry, ThreadPoolExecutor(len(inputs)) as pool:
            telemetry.read_until_idle()  # the replica reports
            asked = [pool.submit(self._ask, name, each) for each in inputs]
            telemetry.read_until_done(len(inputs))
            return [each.result() for each in asked], telemetry.batches()

    def _ask(self, name: str, value: Any) -> str:
        answer = requests.get(self.url, params={name: value}, timeout=HANG_S)
        assert answer.status_code == 200, answer.text
        return answer.text

    def put(self, path: str, **changes: Any) -> requests.Response:
        return requests.put(f"{self.hub}{path}", json=changes, timeout=HANG_S)

    def get(self, path: str) -> Any:
        answer = requests.get(f"{self.hub}{path}", timeout=HANG_S)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def probed(cluster: Cluster, function: str, question: str, *arguments: str) -> Iterator[Probed]:
    with cluster.serve_run(*arguments, question=question) as url:
        yield Probed(url, function, cluster)


@pytest.fixture(scope="module")
def adder(cluster: Cluster) -> Iterator[Probed]:
    function = "default/BatchAdder/BatchAdder.handle_batch"
    with probed(cluster, function, "/?number=0", "tests.service.probed:adder") as adder:
        yield adder


def test_that_the_tutorials_adder_is_seen_with_its_batches_and_settings_take_effect(adder: Probed) -> None:
    answers, batches = adder.ask("number", list(range(12)))
    assert answers == [str(number + 1) for number in range(12)]
    assert max(batch.size for batch in batches) > 1
    assert all(batch.size <= batch.cap == 4 for batch in batches)
    assert {batch.formation for batch in batches} == {"late"}

    changed = adder.put("/batching", max_batch_size=2)
    assert changed.status_code == 200, changed.text
    answers, batches = adder.ask("number", list(range(12)))
    assert answers == [str(number + 1) for number in range(12)]
    assert max(batch.size for batch in batches) == 2
    assert {batch.settings_version for batch in batches} == {changed.json()["version"]}

    changed = adder.put("/batching", formation="early", max_batch_size=4)
    _, batches = adder.ask("number", list(range(12)))
    assert {(batch.formation, batch.settings_version) for batch in batches} == {("early", changed.json()["version"])}


def test_that_the_window_can_attach_to_it(adder: Probed) -> None:
    async def asked() -> Ready:
        async with RemoteService(adder.hub) as remote:
            return await remote.ready()

    ready = asyncio.run(asked())
    assert (ready.model, ready.workload.unit, ready.replicas) == ("BatchAdder.handle_batch", "items", 1)
    assert "application" in ready.closed
    assert adder.get("/batching")["settings"]["max_concurrent_batches"] == 1
    assert adder.get("/deployment")["wanted"] == {"replicas": 1, "max_ongoing_requests": 5}


def test_that_what_cannot_be_is_refused_in_words(adder: Probed) -> None:
    refused = adder.put("/batching", max_batch_size=0)
    assert (refused.status_code, error_of(refused)["param"]) == (422, "max_batch_size")
    refused = adder.put("/deployment", replicas=2)
    assert (refused.status_code, error_of(refused)["param"]) == (422, "replicas")
    assert "Serve config" in error_of(refused)["message"]
    asked = requests.post(f"{adder.hub}/v1/completions", json={"prompt": "Once"}, timeout=HANG_S)
    assert asked.status_code == 404
    assert "application" in error_of(asked)["message"]
    from_a_page = requests.get(f"{adder.hub}/batching", headers={"Origin": "http://evil.example"}, timeout=HANG_S)
    assert from_a_page.status_code == 403


def test_that_the_tutorials_text_generator_is_seen_with_its_batches(cluster: Cluster, tmp_path: Path) -> None:
    from tests.unit.tiny_models import byte_level_tokenizer, tiny_gpt2

    model = tiny_gpt2()
    model.generation_config.max_new_tokens = 8
    model.save_pretrained(tmp_path)
    byte_level_tokenizer().save_pretrained(tmp_path)
    function = "default/BatchTextGenerator/BatchTextGenerator.handle_batch"
    run = ("tests.service.probed:generator", f"model={tmp_path}")
    with probed(cluster, function, "/?text=Once", *run) as generator:
        answers, batches = generator.ask("text", [f"Once {number}" for number in range(10)])
    assert all(answer.startswith(f"Once {number}") for number, answer in enumerate(answers))
    assert max(batch.size for batch in batches) > 1


def test_that_a_watched_function_is_seen_and_left_as_it_is_to_its_end(cluster: Cluster) -> None:
    with ExitStack() as open_until_the_end, ExitStack() as running:
        served = probed(cluster, "default/Doubler/Doubler.double", "/?number=1", "tests.service.watched:app")
        doubler = running.enter_context(served)
        answers, batches = doubler.ask("number", list(range(8)))
        assert answers == [str(2 * number) for number in range(8)]
        assert {batch.formation for batch in batches} == {"early"}
        assert doubler.get("/batching")["settings"]["batch_wait_timeout_s"] == 0.1
        refused = doubler.put("/batching", max_batch_size=2)
        assert (refused.status_code, error_of(refused)["param"]) == (422, "max_batch_size")

        telemetry = open_until_the_end.enter_context(telemetry_of(doubler.hub))
        replica = telemetry.read_until_idle().replicas[0].replica
        running.close()
        ended = telemetry.read_until(lambda frame: bool(frame.gone_replicas))
        assert (ended.left_replicas, ended.lost_replicas) == ((replica,), ()), "Serve has stopped it"
