"""A replica that is late is never called lost, and one that was killed is, with real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from itertools import pairwise

import aiohttp
import pytest

from service.commands import remote
from service.messages.telemetry import SILENT_S, TelemetryFrame
from tests.service import HANG_S
from tests.service.conftest import Service, served
from tests.service.telemetry import Reader, reading

STOPPED_S = 30.0
REQUESTS = 30
"""One a batch of 200 ms: they outlast the stop."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    yield from served("--workload", "adder", "--max-batch-size", "1")


async def ask(session: aiohttp.ClientSession, service: Service, number: int) -> str:
    body = {"prompt": str(number)}
    async with session.post(f"{service.url}/v1/completions", json=body) as response:
        answer = await response.json()
    return str(answer["choices"][0]["text"])


async def running_replica(reader: Reader) -> int:
    """Its process, once it runs a request."""
    frame = await reader.read_until(lambda frame: any(replica.running for replica in frame.replicas))
    return frame.replicas[0].pid


@pytest.mark.promise("T21")
async def test_that_a_stopped_replica_is_late_and_no_frame_calls_it_lost_or_a_request_failed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GIVE_UP_AFTER_S", HANG_S)  # it is this replica that streams the telemetry
    timeout = aiohttp.ClientTimeout(total=HANG_S)
    async with aiohttp.ClientSession(timeout=timeout) as session, reading(service) as reader:
        asked = [asyncio.create_task(ask(session, service, number)) for number in range(REQUESTS)]
        pid = await running_replica(reader)
        os.kill(pid, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(STOPPED_S, os.kill, pid, signal.SIGCONT)
        await reader.read_until(lambda frame: any(replica.ledger.completed >= REQUESTS for replica in frame.replicas))
        answers = await asyncio.gather(*asked)
    assert answers == [str(number + 1) for number in range(REQUESTS)]
    assert longest_silence_s(reader.frames) > SILENT_S
    assert {replica for frame in reader.frames for replica in frame.gone_replicas} == set()
    states = {request.state for frame in reader.frames for request in frame.requests}
    assert states & {"failed", "cancelled", "refused"} == set()
    assert {replica.pid for frame in reader.frames for replica in frame.replicas} == {pid}


@pytest.mark.promise("T06")
async def test_that_a_killed_replica_is_lost_and_another_follows(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GIVE_UP_AFTER_S", HANG_S)  # on a busy machine the next replica takes its time
    async with reading(service) as reader:
        frame = await reader.read_until(lambda frame: bool(frame.replicas))
        os.kill(frame.replicas[0].pid, signal.SIGKILL)
        lost = await reader.read_until(lambda frame: bool(frame.lost_replicas))
        assert lost.lost_replicas == (frame.replicas[0].replica,)
        await reader.read_until(lambda frame: any(status.replica == "r2" for status in frame.replicas))


def longest_silence_s(frames: list[TelemetryFrame]) -> float:
    reported_s = [status.at_s for frame in frames for status in frame.replicas]
    return max(after - before for before, after in pairwise(reported_s))
