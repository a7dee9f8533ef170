"""Replicas come and go, and Ray's limit changes, while requests are served: none of them is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests

from service.commands.remote import RemoteService, ServiceUnreachableError
from service.messages.settings import Settings
from service.messages.telemetry import RequestRecord, TelemetryFrame
from tests.service import HANG_S
from tests.service.conftest import Service, error_of, served
from tests.service.telemetry import Reader, reading

MANY = 24
"""Waiting at a replica with two a batch of 200 ms: for longer than it has where the whole service ends."""

REFUSING = """
from pathlib import Path
from service.workloads.workload import Workload

class Refusing(Workload):
    name, description, examples = "refusing", "Loads once", ("1",)

    def load(self, device):
        if Path("loaded").exists():
            raise ValueError("There is one of me already.")
        Path("loaded").touch()

    def __call__(self, inputs):
        return inputs
"""


@pytest.fixture(scope="module")
def adder(adder_service: Service) -> Service:
    adder_service.change(max_batch_size=2)
    return adder_service


def redeploy(service: Service, **changes: Any) -> requests.Response:
    return requests.put(f"{service.url}/deployment", json=changes, timeout=HANG_S)


def deployment_of(service: Service) -> dict[str, Any]:
    """Without when it was seen."""
    deployment = requests.get(f"{service.url}/deployment", timeout=HANG_S).json()
    return {name: value for name, value in deployment.items() if name != "at_s"}


class Askers:
    """Requests under way, all at once."""

    def __init__(self, service: Service, session: aiohttp.ClientSession) -> None:
        self._service = service
        self._session = session
        self._asked: list[asyncio.Task[str]] = []

    def ask(self, more: int) -> None:
        numbers = range(len(self._asked), len(self._asked) + more)
        self._asked += [asyncio.create_task(self._sum(number)) for number in numbers]

    async def ask_until_both_hold(self, waiting: int, reader: Reader) -> None:
        """Serve gives requests that come at once to one replica, so they come little by little."""
        held: dict[str, int] = {}
        while len(held) < 2 or min(held.values()) < waiting:
            self.ask(12)
            frame = await reader.read_until(lambda frame: bool(frame.replicas))
            held |= {replica.replica: replica.waiting for replica in frame.replicas}

    async def are_all_answered(self) -> bool:
        return await asyncio.gather(*self._asked) == [str(number + 1) for number in range(len(self._asked))]

    async def _sum(self, number: int) -> str:
        async with self._session.get(f"{self._service.url}/?number={number}") as answer:
            return await answer.text()


@asynccontextmanager
async def asking(service: Service) -> AsyncIterator[Askers]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield Askers(service, session)


async def scaled(service: Service, reader: Reader, replicas: int) -> TelemetryFrame:
    answer = await asyncio.to_thread(redeploy, service, replicas=replicas)
    assert answer.status_code == 200, answer.text
    return await reader.read_until_settled(replicas=replicas)


async def test_that_nothing_queued_is_lost_when_a_replica_comes_and_when_it_leaves(adder: Service) -> None:
    async with reading(adder) as reader, reading(adder), asking(adder) as askers:
        askers.ask(8)
        await scaled(adder, reader, 2)
        await askers.ask_until_both_hold(MANY, reader)
        before = len(reader.frames)
        settled = await scaled(adder, reader, 1)
        assert await askers.are_all_answered()
        await reader.read_until(lambda frame: all(r.waiting + r.running == 0 for r in frame.replicas))
    frames = reader.frames[before:]
    assert any(frame.deployment is not None and frame.deployment.leaving for frame in frames)
    (left,) = (name for frame in frames for name in frame.left_replicas)
    assert not any(frame.lost_replicas for frame in reader.frames)
    assert settled.deployment is not None
    assert (settled.deployment.running, settled.deployment.failure) == (1, None)
    told = {request.id: request for frame in reader.frames for request in frame.requests}
    assert {request.state for request in told.values()} == {"done"}
    assert sum(request.replica == left for request in told.values()) > MANY


async def test_that_a_request_goes_to_the_replica_whose_batch_it_fits(adder: Service) -> None:
    """Of four that come one after the other Serve's own router sends two to each replica."""
    async with reading(adder) as reader, asking(adder) as askers:
        await scaled(adder, reader, 2)
        adder.change(max_batch_size=3, batch_wait_timeout_s=2.0)
        for _ in range(20):  # until the replicas have told the router so, which takes some seconds
            if await sizes_of_batches(askers, reader) == [1, 3]:
                break
        sizes = [await sizes_of_batches(askers, reader) for _ in range(3)]
        adder.change(max_batch_size=2, batch_wait_timeout_s=Settings().batch_wait_timeout_s)
        await scaled(adder, reader, 1)
        assert await askers.are_all_answered()
    assert sizes == [[1, 3]] * 3
    assert all(replica.is_fitted for replica in reader.frames[-1].replicas)


async def sizes_of_batches(askers: Askers, reader: Reader) -> list[int]:
    """Of four requests, each of which is sent after the one before has come to its queue."""
    told: dict[str, RequestRecord] = {}

    def has_told(count: int, state: str = "") -> Callable[[TelemetryFrame], bool]:
        def is_so(frame: TelemetryFrame) -> bool:
            told.update((each.id, each) for each in frame.requests)
            return sum(state in ("", each.state) for each in told.values()) == count

        return is_so

    for number in range(1, 5):
        askers.ask(1)
        await reader.read_until(has_told(number))
    await reader.read_until(has_told(4, "done"))
    return sorted(Counter(each.batch for each in told.values()).values())


async def test_that_the_limit_of_ray_changes_in_the_replica_that_runs(adder: Service) -> None:
    async with reading(adder) as reader, asking(adder) as askers:
        pids = {replica.pid for replica in reader.frames[0].replicas}
        await asyncio.to_thread(redeploy, adder, max_ongoing_requests=4)
        await reader.read_until_settled(max_ongoing_requests=4)
        limited = await reader.read_until(lambda frame: bool(frame.replicas))
        assert [(r.max_ongoing_requests, r.pid in pids) for r in limited.replicas] == [(4, True)]
        before = len(reader.frames)
        askers.ask(12)
        assert await askers.are_all_answered()
        await reader.read_until(lambda frame: all(r.waiting + r.formed + r.running == 0 for r in frame.replicas))
        held = [r.waiting + r.formed + r.running for frame in reader.frames[before:] for r in frame.replicas]
        assert 2 <= max(held) <= 4
        await asyncio.to_thread(redeploy, adder, max_ongoing_requests=100_000)
        await reader.read_until_settled(max_ongoing_requests=100_000)


async def test_that_readers_of_telemetry_leave_places_for_requests_however_few_there_are(adder: Service) -> None:
    async with reading(adder) as reader:
        await asyncio.to_thread(redeploy, adder, max_ongoing_requests=3)
        await reader.read_until_settled(max_ongoing_requests=3)
        async with RemoteService(adder.url) as another:
            with pytest.raises(ServiceUnreachableError, match="may hold 3 requests, 1 of which read"):
                await anext(another.telemetry())
        assert (await asyncio.to_thread(requests.get, f"{adder.url}/?number=3", timeout=HANG_S)).text == "4"
        await asyncio.to_thread(redeploy, adder, max_ongoing_requests=100_000)
        await reader.read_until_settled(max_ongoing_requests=100_000)


@pytest.mark.parametrize(
    ("changes", "field", "rule"),
    [
        ({"replicas": 0}, "replicas", "Must be a whole number from 1 to 64."),
        ({"replicas": "2"}, "replicas", "Must be a whole number from 1 to 64."),
        ({"max_ongoing_requests": 1.5}, "max_ongoing_requests", "Must be a whole number from 3 to 999999."),
        ({"replicas": 2, "copies": 2}, "copies", "Unknown here."),
    ],
)
def test_that_what_is_refused_changes_nothing(adder: Service, changes: Any, field: str, rule: str) -> None:
    before = deployment_of(adder)
    answer = redeploy(adder, **changes)
    assert answer.status_code == 422
    assert error_of(answer)["param"] == field
    assert error_of(answer)["message"].startswith(rule)
    assert deployment_of(adder) == before


def test_that_a_body_that_is_no_object_is_refused(adder: Service) -> None:
    answer = requests.put(f"{adder.url}/deployment", data=b"[1]", timeout=HANG_S)
    assert answer.status_code == 400
    assert "JSON object" in error_of(answer)["message"]


async def test_that_a_replica_that_cannot_start_is_given_up_in_words(tmp_path: Path) -> None:
    (tmp_path / "refusing.py").write_text(REFUSING)
    for service in served("--workload", "refusing:Refusing", folder=tmp_path):
        async with reading(service) as reader:
            redeploy(service, replicas=2)
            given_up = await reader.read_until(lambda frame: frame.deployment is not None and frame.deployment.failure)
        deployment = given_up.deployment
        assert deployment is not None
        assert "There is one of me already" in str(deployment.failure)
        assert (deployment.wanted.replicas, deployment.running, deployment.is_settled) == (1, 1, True)
        answer = await asyncio.to_thread(requests.post, service.url, json={"inputs": ["1"]}, timeout=HANG_S)
        assert answer.json() == {"outputs": ["1"]}
