"""What the batcher does under load, seen through telemetry: nothing lost by changes, cancellations or a full queue."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import requests

from service.messages.settings import SettingsChange
from service.messages.telemetry import BatchRecord
from tests.service import HANG_S
from tests.service.conftest import Service, error_of


async def ask(session: aiohttp.ClientSession, service: Service, number: int, max_tokens: int = 8) -> int:
    body = {"prompt": f"Number {number}", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    async with session.post(f"{service.url}/v1/completions", json=body) as response:
        await response.read()
        return response.status


async def poisson(service: Service, rate_per_s: float, count: int, max_tokens: int = 8) -> list[int]:
    """Statuses of `count` requests that arrive at random, whatever becomes of those before them."""
    arrivals = random.Random(5)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = []
        due = asyncio.get_running_loop().time()
        for number in range(count):
            due += arrivals.expovariate(rate_per_s)
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            tasks.append(asyncio.create_task(ask(session, service, number, max_tokens)))
        return list(await asyncio.gather(*tasks))


def batches_under(service: Service, formation: str) -> list[BatchRecord]:
    """Of Poisson arrivals, faster than one request after the other could be served."""
    changed = service.change(formation=formation, max_batch_size=16, batch_wait_timeout_s=0.005).json()
    with service.telemetry() as telemetry:
        statuses = asyncio.run(poisson(service, rate_per_s=24, count=30, max_tokens=4))
        telemetry.read_until(lambda _: telemetry.done() >= 30)
    assert statuses == [200] * 30
    formed = [batch for batch in telemetry.batches() if batch.settings_version == changed["version"]]
    assert {batch.formation for batch in formed} == {formation}
    return formed


def test_that_early_formation_seals_small_batches_and_late_formation_lets_them_grow(service: Service) -> None:
    """The same arrivals; how many come within the timeout of `early` depends on the machine, and on nothing else."""
    early, late = batches_under(service, "early"), batches_under(service, "late")
    early_mean, late_mean = (statistics.mean(batch.size for batch in batches) for batches in (early, late))
    assert {batch.release_reason for batch in early} == {"timeout"}, "the engine is not asked whether it is free"
    assert late_mean > max(2.0, 1.5 * early_mean)


def test_that_a_sealed_batch_that_waits_for_the_engine_is_seen_as_formed(service: Service) -> None:
    service.change(formation="early", batch_wait_timeout_s=0)
    with service.telemetry() as telemetry, ThreadPoolExecutor(6) as clients:
        answers = [clients.submit(service.complete, f"Item {i}", max_tokens=16) for i in range(6)]
        telemetry.read_until(lambda frame: any(replica.formed > 0 for replica in frame.replicas))
        assert all(answer.result().status_code == 200 for answer in answers)


def test_that_in_continuous_formation_a_request_joins_a_running_batch_and_leaves_before_it_ends(
    service: Service,
) -> None:
    service.change(formation="continuous", max_batch_size=4)
    with service.telemetry() as telemetry, ThreadPoolExecutor(2) as clients:
        long = clients.submit(service.complete, "A long one", max_tokens=64, ignore_eos=True)
        telemetry.read_until_running(1)
        short = clients.submit(service.complete, "A short one", max_tokens=4)
        assert (long.result().status_code, short.result().status_code) == (200, 200)
        telemetry.read_until(lambda _: telemetry.done() == 2)
    first, second = sorted(telemetry.requests(), key=lambda request: request.received_s)
    assert first.started_s < second.started_s < second.finished_s < first.finished_s  # type: ignore[operator]
    told = {batch.id: batch for batch in telemetry.batches()}
    assert [(batch.release_reason, batch.size) for batch in told.values()][1:] == [("joined", 2), ("left", 1)]
    assert second.batch == list(told)[1]


async def test_that_changing_settings_and_formation_under_load_loses_nothing(service: Service) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def change_all_the_time() -> list[dict[str, object]]:
            answers = []
            for i in range(12):
                change = {"max_batch_size": 1 + i * 2, "formation": ("early", "late", "continuous")[i % 3]}
                async with session.put(f"{service.url}/batching", json=change) as response:
                    answers.append(await response.json())
                await asyncio.sleep(0.1)
            return answers

        changes = asyncio.create_task(change_all_the_time())
        statuses = await asyncio.gather(*(ask(session, service, i, max_tokens=4) for i in range(60)))
        answers = await changes
    assert statuses == [200] * 60
    assert [answer["version"] for answer in answers] == sorted({answer["version"] for answer in answers})  # type: ignore[type-var]


def test_that_every_replica_adopts_a_change_and_every_batch_obeys_the_version_it_names(service: Service) -> None:
    with service.telemetry() as telemetry, ThreadPoolExecutor(16) as clients:
        answers = [clients.submit(service.complete, f"Item {i}", max_tokens=8) for i in range(16)]
        caps = {service.change(max_batch_size=cap).json()["version"]: cap for cap in (3, 5, 2)}
        assert all(answer.result().status_code == 200 for answer in answers)
        telemetry.read_until(lambda _: telemetry.done() == 16)
    seen = [change for frame in telemetry.frames for change in frame.changes]
    changes: list[SettingsChange] = [change for change in seen if change.version in caps]
    assert [change.version for change in changes] == list(caps)
    for batch in telemetry.batches():
        assert batch.cap == caps.get(batch.settings_version, batch.cap)
        assert batch.size <= batch.cap


def test_that_a_full_queue_sheds_with_503_and_says_when_to_come_again(service: Service) -> None:
    service.change(max_batch_size=1, max_queued_requests=2)
    with ThreadPoolExecutor(10) as clients:
        answers = [a.result() for a in [clients.submit(service.complete, f"Item {i}") for i in range(10)]]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert {answer.status_code for answer in answers} == {200, 503}
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
    assert all(error_of(answer)["code"] == "queue_full" for answer in refused)


def test_that_a_client_that_hangs_up_frees_its_place(service: Service) -> None:
    service.change(max_batch_size=1)
    with service.telemetry() as telemetry:
        with service.complete("Count to a million:", max_tokens=2000, stream=True, ignore_eos=True) as running:
            lines = running.iter_lines()  # held: the connection ends with it
            next(lines)
            with service.complete("Count to a million:", max_tokens=2000, stream=True, ignore_eos=True) as queued:
                telemetry.read_until(lambda frame: any(replica.waiting == 1 for replica in frame.replicas))
                queued.close()
            telemetry.read_until(lambda frame: any(request.state == "cancelled" for request in frame.requests))
        telemetry.read_until_idle()
    assert [request.state for request in telemetry.requests()].count("cancelled") == 2
    assert service.complete("Next, please.").status_code == 200


def test_that_a_reader_of_telemetry_resumes_without_a_gap(service: Service) -> None:
    with service.telemetry() as first:
        service.complete("One")
        first.read_until_idle()
    last = first.frames[-1].number
    service.complete("Two")
    with service.telemetry(after=last) as second:
        second.read_until(lambda frame: any(request.state == "done" for request in frame.requests))
    numbers = [frame.number for frame in first.frames + second.frames]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert second.missed == []


def test_that_the_stages_of_every_request_follow_each_other(service: Service) -> None:
    with service.telemetry() as telemetry:
        with ThreadPoolExecutor(8) as clients:
            list(clients.map(service.complete, [f"Item {i}" for i in range(8)]))
        telemetry.read_until(lambda _: telemetry.done() == 8)
    for request in telemetry.requests():
        stages = [request.received_s, request.enqueued_s, request.formed_s, request.started_s, request.first_token_s]
        stages.append(request.finished_s)
        assert None not in stages
        assert stages == sorted(stages)  # type: ignore[type-var]


def test_that_a_killed_replica_fails_what_it_held_and_is_replaced_with_the_settings_in_force(service: Service) -> None:
    version = service.change(max_batch_size=4, batch_wait_timeout_s=5).json()["version"]  # they run together
    with service.telemetry() as telemetry, ThreadPoolExecutor(4) as clients:
        answers = [clients.submit(service.complete, f"Item {i}", max_tokens=400, ignore_eos=True) for i in range(4)]
        frame = telemetry.read_until_running(4)
        os.kill(frame.replicas[0].pid, signal.SIGKILL)
        statuses = {answer.result().status_code for answer in answers}
    assert statuses == {500}
    wait_until_answered(service)
    settings = requests.get(f"{service.url}/batching", timeout=HANG_S).json()
    assert (settings["version"], settings["settings"]["max_batch_size"]) == (version, 4)


def wait_until_answered(service: Service) -> None:
    """Until the next replica serves; the proxy holds requests back as long as there is none."""
    for _ in range(20):
        if service.complete("Are you there?", max_tokens=1).status_code == 200:
            return
    raise AssertionError("no replica took over")
