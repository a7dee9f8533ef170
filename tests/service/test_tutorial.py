"""The tutorials' clients, each against `serve run` on a Ray that is not ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import requests

from service.messages.telemetry import TelemetryFrame
from service.workloads.house_price import HousePrice
from tests.service import HANG_S
from tests.service.cluster import Cluster
from tests.service.telemetry import telemetry_of

pytestmark = pytest.mark.timeout(1200)  # the engine stands back for all other tests

CLIENT = Path(__file__).with_name("tutorial_client.py")
RUN = {
    "text": ("service.app:generator", "--name", "Text-Completion-App"),
    "adder": ("service.app:build", "workload=adder"),
    "house-price": ("service.app:build", "workload=house-price"),
}

LONG_WAIT_S = 1.0


class Served:
    """A tutorial's application at work, and what its client was answered in each of its ways."""

    def __init__(self, tutorial: str, url: str, cluster: Cluster) -> None:
        self.url = url
        wait = {"batch_wait_timeout_s": LONG_WAIT_S}  # a slow machine sends few requests in the usual time
        requests.put(f"{url}/batching", json=wait, timeout=HANG_S).raise_for_status()
        client = [sys.executable, CLIENT, tutorial, url]
        told = subprocess.run(client, env=cluster.environment, stdout=subprocess.PIPE, check=True).stdout
        self.inputs, self.answers = json.loads(told).values()

    def batches(self) -> list[list[int]]:
        """How large the batches of each way were, one way after the other."""
        asked, sizes = len(self.inputs), dict[str, int]()

        def are_all_told(frame: TelemetryFrame) -> bool:
            sizes.update((batch.id, batch.size) for batch in frame.batches)
            return sum(sizes.values()) >= asked * len(self.answers)

        with telemetry_of(self.url, after=0) as telemetry:
            telemetry.read_until(are_all_told)
        ends = [0, *accumulate(sizes.values())]
        ways = pairwise(ends.index(asked * number) for number in range(len(self.answers) + 1))
        return [list(sizes.values())[first:end] for first, end in ways]


@pytest.fixture(scope="module")
def served(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Served]:
    with cluster.serve_run(*RUN[request.param]) as url:
        yield Served(request.param, url, cluster)


def for_tutorial(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("served", [name], indirect=True, scope="module")


def by_curl(*arguments: str) -> str:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    curl = ["curl", "--silent", "--fail", *arguments]
    return subprocess.run(curl, capture_output=True, text=True, check=True, timeout=HANG_S).stdout


@for_tutorial("adder")
def test_that_numbers_are_added_in_batches_however_they_are_asked_for(served: Served) -> None:
    assert served.inputs == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert served.answers == [[1, 2, 3, 4, 5, 6, 7, 8, 9]] * 3
    assert all(max(sizes) > 1 for sizes in served.batches())


@for_tutorial("adder")
def test_that_curl_is_answered_with_the_sum(served: Served) -> None:
    assert by_curl("-X", "GET", f"{served.url}/?number=3") == "4"


@for_tutorial("text")
def test_that_texts_are_continued_in_batches_by_http_and_by_handle(served: Served) -> None:
    for answers in served.answers:
        for text, answer in zip(served.inputs, answers, strict=True):
            assert answer.startswith(text)
            assert len(answer) > len(text) + 20
    assert all(max(sizes) > 1 for sizes in served.batches())


@for_tutorial("text")
def test_that_curl_is_answered_with_the_text_and_its_continuation(served: Served) -> None:
    assert by_curl(f"{served.url}/?text=Once+upon+a+time").startswith("Once upon a time")


def estimated(houses: list[Any]) -> list[Any]:
    """What the workload says by itself."""
    workload = HousePrice()
    workload.load("cpu")
    return list(map(pytest.approx, workload([workload.check(house) for house in houses])))


@for_tutorial("house-price")
def test_that_prices_are_estimated_in_batches_by_http_and_by_handle(served: Served) -> None:
    assert served.answers == [estimated(served.inputs)] * 2
    assert all(max(sizes) > 1 for sizes in served.batches())


@for_tutorial("house-price")
def test_that_curl_is_answered_with_predictions(served: Served) -> None:
    houses = served.inputs[:2]
    body = json.dumps({"features": houses})
    told = by_curl("-X", "POST", served.url, "-H", "Content-Type: application/json", "-d", body)
    assert json.loads(told) == {"predictions": estimated(houses)}
