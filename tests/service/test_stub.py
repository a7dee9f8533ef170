"""A service whose engine is a stub: each request gets its own answer, and what one orders harms no other."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest
import requests

from service.commands import remote
from service.messages.life import ProcessLost
from service.messages.pipes import our_python
from service.messages.telemetry import ReplicaStatus
from tests.service import HANG_S
from tests.service.clients import Question, asking, watching
from tests.service.conftest import Service, served
from tests.service.raw_requests import raw_requests
from tests.service.telemetry import Reader, reading

REQUESTS = 200
MEMORY_TOKENS = 2_000


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    model = f"stub?step_ms=2&row_ms=0&prompt_token_ms=0&memory_tokens={MEMORY_TOKENS}"
    yield from served("--model", model, "--max-batch-size", "16")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine what takes the place of a dead process takes its time."""
    monkeypatch.setattr(remote, "GIVE_UP_AFTER_S", HANG_S)


async def ask(session: aiohttp.ClientSession, service: Service, prompt: str) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": 3}
    async with session.post(f"{service.url}/v1/completions", json=body) as response:
        answer: dict[str, Any] = await response.json()
    return answer


async def asked(service: Service, *prompts: str) -> list[str]:
    """Their texts, or what is said of their errors."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HANG_S)) as session:
        answers = await asyncio.gather(*(ask(session, service, prompt) for prompt in prompts))
    return [each["error"]["message"] if "error" in each else each["choices"][0]["text"] for each in answers]


def answer_to(prompt: str) -> str:
    return "".join(f"<{prompt}#{n}>" for n in (1, 2, 3))


async def test_that_each_of_many_gets_its_own_answer(service: Service) -> None:
    prompts = [f"request {number}" for number in range(REQUESTS)]
    assert await asked(service, *prompts) == list(map(answer_to, prompts))


@pytest.mark.promise("T10")
async def test_that_only_a_request_that_alone_exceeds_memory_is_in_a_batch_that_does(
    service: Service, record_property: Callable[[str, object], None], is_long: bool
) -> None:
    """As many requests as 200 batches of 32 have, or a quarter of them: one of twenty is such a giant."""
    count = 200 * 32 // (1 if is_long else 4)
    texts = (f"{'giant ' * 400 if number % 20 == 7 else 'long ' * 20}{number}" for number in range(count))
    async with asking(service) as clients, watching(service) as seen:
        await seen.watch(clients.ask([Question(number, text=text) for number, text in enumerate(texts)], clients=64))
    assert clients.count() == {"right": count}
    assert len({status.pid for status in seen.statuses}) == 1
    tokens, members = Counter[str](), Counter[str]()
    for record in seen.records:
        assert record.batch
        tokens[record.batch] += record.prompt_tokens + record.max_tokens
        members[record.batch] += 1
    giants = sum(each > MEMORY_TOKENS for each in tokens.values())
    assert members.total() == count
    assert giants == count / 20
    assert all(each <= MEMORY_TOKENS or members[batch] == 1 for batch, each in tokens.items())
    assert max(members.values()) > 4, "others share their batches"
    record_property(
        "T10", f"{count:,} requests in {len(members):,} batches: {giants} alone exceed memory, all answered"
    )


async def test_that_an_error_that_a_prompt_orders_harms_it_alone(service: Service) -> None:
    texts = await asked(service, "one", "a stub:error", "two")
    assert texts == [answer_to("one"), "The prompt asked for this error.", answer_to("two")]


@contextlib.contextmanager
def loaded(service: Service, rate_per_s: int) -> Iterator[None]:
    load = our_python("service", "load", "--url", service.url, "--rate", str(rate_per_s), "--duration", "600")
    with subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield
        process.kill()


def ran(service: Service, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = our_python("service", command, "--url", service.url, "--objective", "p95=0.5", *options)
    return subprocess.run(words, capture_output=True, text=True, check=False)


def in_force(service: Service) -> dict[str, Any]:
    settings: dict[str, Any] = requests.get(f"{service.url}/batching", timeout=HANG_S).json()["settings"]
    return settings


def test_that_settings_that_hold_an_objective_are_found_put_in_force_and_held(service: Service) -> None:
    """One at a time are 20 requests/s at most; the objective wants more."""
    service.change(max_batch_size=1)
    with loaded(service, 30):
        held = ran(service, "hold", "--seconds", "12")
        given_back = in_force(service)
        service.change(max_batch_size=8)
        found = ran(service, "goal", "--rate", "30", "--seconds", "5", "--max-batch-size-up-to", "8", "--apply")
    assert (held.returncode, held.stderr) == (0, "")
    assert held.stdout.startswith("Holding latency ≤ 0.5 s. The settings at first: formation late, max_batch_size 1, ")
    assert "max_batch_size 1 → 2" in held.stdout
    assert held.stdout.endswith("the settings from before are in force again.\n")
    assert given_back["max_batch_size"] == 1
    assert found.returncode == 0, found.stderr
    assert "In force: " in found.stdout
    assert 2 <= in_force(service)["max_batch_size"] <= 8
    assert service.change(max_batch_size=16, formation="late", batch_wait_timeout_s=0.05).status_code == 200


def test_that_it_chats_by_a_template_of_its_own(service: Service) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    answer = requests.post(f"{service.url}/v1/chat/completions", json=body, timeout=HANG_S).json()
    assert answer["choices"][0]["message"]["content"] == "<user: hello\nassistant:#1>"


@pytest.mark.parametrize("dies", ["", "ServeController"], ids=["alone", "while the controller starts anew"])
@pytest.mark.promise("T06", "T07")
async def test_that_a_replica_whose_device_is_lost_is_replaced(service: Service, dies: str) -> None:
    async with reading(service) as reader:
        before = (await reader.read_until(lambda frame: bool(frame.replicas))).replicas[0].pid
        if dies:
            beside(before, dies).kill()
        (text,) = await asked(service, "a stub:lost")
        await reader.read_until(lambda frame: any(replica.pid != before for replica in frame.replicas))
    assert "the prompt asked for this" in text
    assert is_said_to_be_lost("The last replica", service)
    assert await asked(service, "after it") == [answer_to("after it")]


def is_said_to_be_lost(name: str, service: Service) -> bool:
    return service.process.wait_until(lambda state: state == ProcessLost(name=name)) is not None


def beside(replica: int, name: str) -> psutil.Process:
    """Ray's process of that name, given that of a replica: Ray starts both."""
    (process,) = [each for each in psutil.Process(replica).parent().children() if name in " ".join(each.cmdline())]
    return process


async def before_death_of(name: str, service: Service, reader: Reader) -> ReplicaStatus:
    """Kill a process of Ray's while the replica works, in small batches so that it lasts, and no answer is missing."""
    prompts = [f"request {number}" for number in range(REQUESTS)]
    before = (await reader.read_until(lambda frame: bool(frame.replicas))).replicas[0]
    answers = asyncio.create_task(asked(service, *prompts))
    await reader.read_until(lambda frame: any(replica.running for replica in frame.replicas))
    beside(before.pid, name).kill()
    assert await answers == list(map(answer_to, prompts))
    return before


@pytest.mark.promise("T07")
async def test_that_a_hub_that_dies_takes_no_request_no_news_and_no_setting_with_it(
    service: Service,
) -> None:
    async with reading(service) as reader:
        changed = service.change(max_batch_size=2).json()
        before = await before_death_of("Hub", service, reader)
        completed = before.ledger.completed + REQUESTS
        after = await reader.read_until(
            lambda frame: bool(reader.missed) and any(each.ledger.completed == completed for each in frame.replicas)
        )
        assert is_said_to_be_lost("The hub, which reports what runs,", service)
        assert after.in_force.version == changed["version"]
        assert (after.replicas[0].replica, after.replicas[0].pid) == (before.replica, before.pid)
        assert not any(before.replica in frame.gone_replicas for frame in reader.frames)
        records = {request.id: request for frame in reader.frames for request in frame.requests}
        states = [record.state for record in records.values() if record.received_s > before.at_s]
        assert states == REQUESTS * ["done"], "of no request the end is unknown"
        assert service.change(max_batch_size=16).json()["version"] == changed["version"] + 1


@pytest.mark.promise("T07")
async def test_that_a_controller_that_dies_is_replaced_and_takes_no_request_with_it(
    service: Service,
) -> None:
    """The next one is there once it brings a change of the deployment to its replica."""
    async with reading(service) as reader:
        service.change(max_batch_size=2)
        before = await before_death_of("ServeController", service, reader)
        for most in (400, 100_000):
            wanted = {"max_ongoing_requests": most}
            answer = await asyncio.to_thread(requests.put, f"{service.url}/deployment", json=wanted, timeout=HANG_S)
            assert answer.status_code == 200, answer.text
            await reader.read_until_settled(**wanted)
        assert not any(before.replica in frame.gone_replicas for frame in reader.frames)
        service.change(max_batch_size=16)
    assert await asked(service, "after it") == [answer_to("after it")]


@pytest.mark.promise("T07")
async def test_that_a_proxy_that_dies_is_replaced_and_takes_no_replica_with_it(
    service: Service,
) -> None:
    async with reading(service) as reader:
        before = (await reader.read_until(lambda frame: bool(frame.replicas))).replicas[0]
        beside(before.pid, "ProxyActor").kill()
        answered = len(reader.frames)
        after = await reader.read_until(lambda frame: len(reader.frames) > answered + 1 and bool(frame.replicas))
    assert is_said_to_be_lost("Ray Serve's proxy", service)
    assert (after.replicas[0].replica, after.replicas[0].pid) == (before.replica, before.pid)
    assert await asked(service, "after it") == [answer_to("after it")]


@pytest.mark.promise("T13")
async def test_that_whatever_comes_on_a_connection_is_answered_or_closed(
    service: Service, record_property: Callable[[str, object], None]
) -> None:
    """Also what never becomes a request: no head that stays incomplete keeps its connection."""
    host = urlsplit(service.url).netloc
    sent = list(raw_requests(host))
    answers = await asyncio.gather(*(received(host, raw) for raw in sent))
    statuses = [[int(status) for status in STATUS.findall(answer)] for answer in answers]
    broken = [raw[:200] for raw, each in zip(sent, statuses, strict=True) if any(status >= 500 for status in each)]
    assert broken == []
    assert await asked(service, *map(str, range(100))) == [answer_to(str(number)) for number in range(100)]
    answered = sum(map(bool, statuses))
    record_property("T13", f"{len(sent)} raw requests: {answered} answered, the others closed, no 5xx")


STATUS = re.compile(rb"^HTTP/1\.[01] (\d{3}) ", re.MULTILINE)


async def received(host: str, raw: bytes) -> bytes:
    """All that comes until the service closes the connection."""
    reader, writer = await asyncio.open_connection(*host.split(":"))
    answer = b""
    with contextlib.suppress(ConnectionError):  # closed before all is sent
        writer.write(raw)
        while piece := await reader.read(1 << 16):
            answer += piece
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer
