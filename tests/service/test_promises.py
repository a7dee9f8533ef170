"""Promises that only many requests at once can break, on a real service of two replicas whose engine is a stub.

T01, T02, T03, T05, T11, T12, T13, T25 and T26 of the reliability tests: what was sent and what came back is counted at
the clients and held against what the replicas counted.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import json
import random
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import aiohttp
import hypothesis
import msgspec
import numpy as np
import pytest
import requests
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.messages.settings import Settings
from service.messages.telemetry import BatchRecord, Ledger, ReplicaStatus, RequestRecord, TelemetryFrame
from tests.service import HANG_S
from tests.service.conftest import Service, served
from tests.service.telemetry import Reader, reading

REPLICAS: Final = 2
REQUESTS: Final = 10_000
IN_FLIGHT: Final = 256
TOKENS: Final = 4
LONG: Final = 2000  # tokens, of which nobody waits for the last
POISON: Final = "stub:error"
EXAMPLES: Final = 100
CHANGES: Final = 200
NONSENSE: Final = (
    *("NaN", "Infinity", "-Infinity", "1e400", "-1", "-1e-300", "1" * 400, '"8"', '"８"', '""', '"\\u0000"', '"late "'),
    *("[]", "[8]", "{}", '{"a": 1}', "null", "tru", "0x8", "1_000", "", "8 8"),
)
MOST_TOKENS: Final = 5  # that a described request may ask for
AS_DESCRIBED: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: a close that is an RST

Outcome = Literal["right", "wrong", "failed", "left", "refused"]


@pytest.fixture(scope="module")
def stub() -> Iterator[Service]:
    yield from served("--model", "stub?step_ms=2&row_ms=0&prompt_token_ms=0", "--replicas", str(REPLICAS))


@pytest.fixture
def service(stub: Service) -> Iterator[Service]:
    """With the settings of the start."""
    assert stub.change(**msgspec.to_builtins(Settings())).status_code == 200
    yield stub
    assert stub.change(**msgspec.to_builtins(Settings())).status_code == 200


@dataclass(frozen=True)
class Question:
    """A request of its own number; `leaves` is how its client goes before the answer is complete."""

    number: int
    tokens: int = TOKENS
    is_streamed: bool = False
    is_poison: bool = False
    leaves: Literal["", "FIN", "RST"] = ""

    @property
    def prompt(self) -> str:
        return f"request {self.number}" + (f" {POISON}" if self.is_poison else "")

    @property
    def answer(self) -> str:
        return "".join(f"<{self.prompt}#{n}>" for n in range(1, self.tokens + 1))


class Clients:
    """`IN_FLIGHT` clients, each of which sends its next request when the last has ended."""

    def __init__(self, service: Service, session: aiohttp.ClientSession) -> None:
        self._url = f"{service.url}/v1/completions"
        self._session = session
        self.outcomes: dict[Question, Outcome] = {}

    async def ask(self, questions: Iterable[Question], clients: int = IN_FLIGHT) -> None:
        left = iter(questions)

        async def client() -> None:
            for question in left:
                assert question not in self.outcomes
                self.outcomes[question] = await self._outcome(question)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())

    def count(self) -> Counter[Outcome]:
        return Counter(self.outcomes.values())

    async def _outcome(self, question: Question) -> Outcome:
        if not question.leaves or question.is_streamed:
            return await self._answer(question)
        asked = asyncio.create_task(self._answer(question))
        await asyncio.wait([asked], timeout=question.number % 7 * 0.01)  # it leaves on its way, in the queue, or later
        asked.cancel()
        return "left"

    async def _answer(self, question: Question) -> Outcome:
        body = {"prompt": question.prompt, "max_tokens": question.tokens, "stream": question.is_streamed}
        async with self._session.post(self._url, json=body) as response:
            if response.status == 503:
                assert int(response.headers["Retry-After"]) >= 1
                assert (await response.json())["error"]["code"] == "queue_full"
                return "refused"
            if question.leaves:
                await response.content.readline()
                _leave(response, question.leaves)
                return "left"
            answers = await _events(response) if question.is_streamed else [await response.json()]
        errors = [each["error"]["message"] for each in answers if "error" in each]
        if errors:
            return "failed" if errors == ["The prompt asked for this error."] and question.is_poison else "wrong"
        text = "".join(choice["text"] for each in answers for choice in each["choices"])
        return "right" if text == question.answer and not question.is_poison else "wrong"


def _leave(response: aiohttp.ClientResponse, how: str) -> None:
    connection = response.connection  # ``None`` where all has come
    if how == "RST" and connection is not None and connection.transport is not None:
        own: socket.socket = connection.transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    response.close()


async def _events(response: aiohttp.ClientResponse) -> list[dict[str, Any]]:
    """Of a stream; one whose last event did not come is no answer."""
    lines = [line.removeprefix(b"data: ").strip() async for line in response.content if line.startswith(b"data: ")]
    whole = lines[-1:] == [b"[DONE]"]
    events: list[dict[str, Any]] = [json.loads(line) for line in lines if line != b"[DONE]"]
    assert whole or "error" in events[-1]
    return events


@asynccontextmanager
async def asking(service: Service) -> AsyncIterator[Clients]:
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=HANG_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Clients(service, session)


class Watched:
    """What the replicas reported from a moment at rest to another."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._latest: dict[str, ReplicaStatus] = {}
        self._before: dict[str, Ledger] = {}
        self._first = 0
        self._done: asyncio.Future[object] | None = None
        self._done_s = 0.0

    async def watch(self, do: Awaitable[object]) -> None:
        """Do it at rest, and return once nothing is held any more."""
        await self._reader.read_until(self._is_at_rest)
        self._before = {name: each.ledger for name, each in self._latest.items()}
        self._first = len(self._reader.frames) - 1
        self._done = asyncio.ensure_future(do)
        self._done.add_done_callback(self._on_done)
        await self._reader.read_until(self._is_at_rest)
        await self._done

    def counted(self, name: str) -> int:
        """Of all replicas, meanwhile."""
        return sum(getattr(each.ledger, name) - getattr(self._before[id], name) for id, each in self._latest.items())

    @property
    def statuses(self) -> Iterator[ReplicaStatus]:
        return (status for frame in self._reader.frames[self._first :] for status in frame.replicas)

    @property
    def records(self) -> list[RequestRecord]:
        """The last of each request that came meanwhile."""
        latest = {request.id: request for frame in self._reader.frames for request in frame.requests}
        return [each for each in latest.values() if each.received_s >= self._begun_s]

    @property
    def batches(self) -> list[BatchRecord]:
        latest = {batch.id: batch for frame in self._reader.frames for batch in frame.batches}
        return [each for each in latest.values() if each.formed_s >= self._begun_s]

    @property
    def _begun_s(self) -> float:
        return self._reader.frames[self._first].at_s

    def _on_done(self, _: asyncio.Future[object]) -> None:
        self._done_s = self._reader.frames[-1].at_s
        self._latest.clear()

    def _is_at_rest(self, frame: TelemetryFrame) -> bool:
        """Whether each replica has reported since that it holds nothing."""
        self._latest |= {each.replica: each for each in frame.replicas if each.at_s > self._done_s}
        is_done = self._done is None or self._done.done()
        return is_done and len(self._latest) == REPLICAS and not any(map(_held, self._latest.values()))


def _held(status: ReplicaStatus) -> int:
    return status.waiting + status.formed + status.running


@asynccontextmanager
async def watching(service: Service) -> AsyncIterator[Watched]:
    """In each report the ledger of its replica balances."""
    async with reading(service) as reader:
        watched = Watched(reader)
        yield watched
        assert not reader.missed
        for status in watched.statuses:
            ledger = status.ledger
            assert ledger.received == ledger.refused + ledger.admitted
            assert ledger.admitted == ledger.completed + ledger.failed + ledger.cancelled + _held(status)


async def test_that_each_of_ten_thousand_requests_is_answered_to_the_token(service: Service) -> None:
    """T01: 256 clients in a closed loop."""
    async with asking(service) as clients, watching(service) as seen:
        await seen.watch(clients.ask(map(Question, range(REQUESTS))))
    assert clients.count() == {"right": REQUESTS}
    assert seen.counted("completed") == seen.counted("received") == REQUESTS
    assert {record.completion_tokens for record in seen.records} == {TOKENS}


def mixed(count: int) -> list[Question]:
    """One of ten leaves, one of a hundred is poison, half are streamed."""
    drawn = random.Random(3)
    return [
        Question(
            number,
            is_streamed=drawn.random() < 0.5,
            is_poison=number % 100 == 7,
            leaves=drawn.choice(("FIN", "RST")) if number % 10 == 3 else "",
        )
        for number in range(count)
    ]


async def test_that_no_request_is_lost_doubled_or_swapped_and_none_is_overtaken_twice(service: Service) -> None:
    """T03 and T25: cancelled, poisoned, streamed and whole ones mixed, while the settings change every second."""
    questions, versions = mixed(REQUESTS), []

    async with asking(service) as clients, watching(service) as seen:

        async def do() -> None:
            asked = asyncio.create_task(clients.ask(questions))
            for number in itertools.count():
                changes = {
                    "formation": ("late", "early", "continuous")[number % 3],
                    "max_batch_size": (16, 3, 8, 32)[number % 4],
                    "batch_wait_timeout_s": (0.05, 0.0)[number % 2],
                }
                versions.append((await asyncio.to_thread(service.change, **changes)).json()["version"])
                await asyncio.wait([asked], timeout=1.0)
                if asked.done():
                    break
            await asked

        await seen.watch(do())
    poison = sum(each.is_poison for each in questions)
    left = sum(bool(each.leaves) for each in questions)
    assert clients.count() == {"right": REQUESTS - poison - left, "failed": poison, "left": left}
    assert versions == sorted(set(versions)), "versions never go back"
    ended = {name: seen.counted(name) for name in ("completed", "failed", "cancelled")}
    assert sum(ended.values()) == seen.counted("received") >= REQUESTS - left, "a client may leave before it is heard"
    assert ended["failed"] == poison
    assert REQUESTS - poison - left <= ended["completed"] < REQUESTS - poison
    assert most_overtaken(seen.records) <= 1


def most_overtaken(records: Sequence[RequestRecord]) -> int:
    """By how many batches of later requests any request of the same replica was overtaken."""
    most, of_replica = 0, defaultdict(list)
    for record in records:
        if record.started_s is not None and record.enqueued_s is not None:
            of_replica[record.replica].append(record)
    for own in of_replica.values():
        batches = sorted({record.batch for record in own if record.batch is not None})
        number = {batch: place for place, batch in enumerate(batches)}
        place = np.array([number[record.batch] for record in own])
        queued_s, started_s = (np.array([getattr(each, name) for each in own]) for name in ("enqueued_s", "started_s"))
        latest_s, begun_s = np.full(len(batches), -np.inf), np.full(len(batches), np.inf)
        np.maximum.at(latest_s, place, queued_s)  # of each batch, when the last of its members came
        np.minimum.at(begun_s, place, started_s)
        overtook = (latest_s > queued_s[:, None]) & (begun_s < started_s[:, None])
        overtook[np.arange(len(own)), place] = False
        most = max(most, int(overtook.sum(axis=1).max()))
    return most


async def test_that_overload_is_refused_at_once_in_words_and_leaves_what_was_admitted_whole(service: Service) -> None:
    """T02: five times as many clients as all places and queues take."""
    bounds = {"max_batch_size": 8, "max_queued_requests": 24}
    assert service.change(**bounds, batch_wait_timeout_s=0.0).status_code == 200
    clients_at_once = 5 * REPLICAS * sum(bounds.values())
    async with asking(service) as clients, watching(service) as seen:
        await seen.watch(clients.ask([Question(number, tokens=20) for number in range(4_000)], clients_at_once))
    count = clients.count()
    assert set(count) == {"right", "refused"}
    assert count["refused"] > count["right"] > REPLICAS * sum(bounds.values())
    assert seen.counted("refused") == count["refused"]
    for status in seen.statuses:
        assert status.waiting <= bounds["max_queued_requests"]
        assert status.running + status.formed <= bounds["max_batch_size"]
    assert np.median([batch.size for batch in seen.batches]) == bounds["max_batch_size"], "no place stands empty"
    assert service.complete("after it", max_tokens=1).status_code == 200


async def test_that_a_request_whose_client_left_while_it_was_on_its_way_is_not_computed(service: Service) -> None:
    """T05: clients that leave within 60 ms, before a replica hears of their requests or just after."""
    for burst, clients_at_once in enumerate((32, 64) * 2):
        questions = [Question(burst * 300 + number, tokens=LONG, leaves="FIN") for number in range(300)]
        async with asking(service) as clients, watching(service) as seen:
            await seen.watch(clients.ask(questions, clients_at_once))
        assert clients.count() == {"left": len(questions)}
        assert seen.counted("cancelled") == seen.counted("received")
    assert service.complete("after them", max_tokens=1).status_code == 200


async def test_that_what_a_client_has_left_is_computed_no_further(service: Service) -> None:
    """T05: of 2,100 clients all, half or a tenth leave, by FIN or RST, after the first event of their streams."""
    for share in (1.0, 0.5, 0.1):
        drawn, count = random.Random(5), 700
        questions = [
            Question(
                number,
                tokens=LONG if number < count * share else TOKENS,
                is_streamed=True,
                leaves=drawn.choice(("FIN", "RST")) if number < count * share else "",
            )
            for number in range(count)
        ]
        async with asking(service) as clients, watching(service) as seen:
            await seen.watch(clients.ask(questions))
        assert clients.count() == Counter("left" if each.leaves else "right" for each in questions)
        cancelled = [record for record in seen.records if record.state == "cancelled"]
        assert len(cancelled) == seen.counted("cancelled") == count * share
        assert max(record.completion_tokens for record in cancelled) < LONG / 2
    async with asking(service) as clients:
        await clients.ask(map(Question, range(IN_FLIGHT)))
    assert clients.count() == {"right": IN_FLIGHT}


async def test_that_two_hundred_changes_of_settings_under_load_harm_no_request_and_no_replica(service: Service) -> None:
    """T11: each change is in force when it is answered, for a batch that forms after it as for the next change."""
    sizes = [1 + (7 * number) % 32 for number in range(CHANGES)]
    changed: list[tuple[float, int, int]] = []  # when that was answered, the version, and its size
    async with asking(service) as clients, watching(service) as seen:

        async def do() -> None:
            enough = asyncio.Event()
            asked = asyncio.create_task(clients.ask(_until(enough), clients=32))
            for number, size in enumerate(sizes):
                wait_s = (0.0, 0.02, 0.2)[number % 3]
                answer = await asyncio.to_thread(service.change, max_batch_size=size, batch_wait_timeout_s=wait_s)
                in_force = answer.json()
                changed.append((time.monotonic(), in_force["version"], size))
                assert in_force["settings"]["max_batch_size"] == size
                assert in_force["settings"]["batch_wait_timeout_s"] == wait_s
            enough.set()
            await asked

        await seen.watch(do())
    assert set(clients.count()) == {"right"}
    assert len({status.pid for status in seen.statuses}) == REPLICAS
    answered_s, versions, _ = map(list, zip(*changed, strict=True))
    assert versions == list(range(versions[0], versions[0] + CHANGES))
    size_of = {version: size for _, version, size in changed}
    under_them = [batch for batch in seen.batches if batch.settings_version in size_of]
    assert len({batch.settings_version for batch in under_them}) > CHANGES / 10
    for batch in under_them:
        assert batch.size <= batch.cap == size_of[batch.settings_version]
        assert batch.settings_version >= versions[0] - 1 + bisect.bisect_left(answered_s, batch.formed_s)


def _until(enough: asyncio.Event) -> Iterator[Question]:
    numbers = itertools.count()
    while not enough.is_set():
        yield Question(next(numbers))


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_that_a_setting_that_is_none_is_refused_in_words_and_changes_nothing(service: Service, name: str) -> None:
    """T12: by HTTP, what JSON can write of numbers, texts and lists, and what is no JSON."""
    before = requests.get(f"{service.url}/batching", timeout=HANG_S).json()
    for value in NONSENSE:
        body = f'{{"max_batch_size": 7, "{name}": {value}}}'.encode()
        answer = requests.put(f"{service.url}/batching", data=body, timeout=HANG_S)
        assert answer.status_code in (400, 422), value
        assert answer.json()["error"]["message"]
        assert requests.get(f"{service.url}/batching", timeout=HANG_S).json() == before
    assert service.complete("after them", max_tokens=1).status_code == 200


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allows", "forbids"])
def test_that_what_the_description_says_is_answered_as_it_says(service: Service, mode: GenerationMode) -> None:
    """T13: 100 requests a route, drawn from `GET /openapi.json`; each answer is one that is described, and no 5xx."""
    service.change(batch_wait_timeout_s=0.0)
    whole = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    described = whole.exclude(path="/telemetry").exclude(path="/deployment", method="PUT")  # endless; 64 replicas
    asked = 0
    for found in described.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
            continue

        @hypothesis.settings(max_examples=EXAMPLES, database=None)
        @hypothesis.given(operation.as_strategy(generation_mode=mode))
        def is_answered(case: schemathesis.Case) -> None:
            nonlocal asked
            asked += 1
            if isinstance(case.body, dict) and isinstance(tokens := case.body.get("max_tokens"), int):
                case.body["max_tokens"] = min(tokens, MOST_TOKENS)
            case.call_and_validate(checks=AS_DESCRIBED, timeout=HANG_S)

        is_answered()
    assert asked > EXAMPLES
    assert service.complete("after them", max_tokens=1).status_code == 200


async def test_that_batches_grow_under_load_and_nobody_waits_long(service: Service) -> None:
    """T26: a batch of Ray's decorator as shipped has one request here, and the queue grows without end."""
    service.change(batch_wait_timeout_s=0.01)
    rate_per_s, tokens = 50.0 * REPLICAS, 100  # a batch takes at least 0.2 s
    async with asking(service) as clients, watching(service) as seen:

        async def do() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(int(5 * rate_per_s)):
                    await asyncio.sleep(1 / rate_per_s)
                    group.create_task(clients.ask([Question(number, tokens=tokens)], clients=1))

        await seen.watch(do())
    assert set(clients.count()) == {"right"}
    sizes = [batch.size for batch in seen.batches]
    runs_s = [batch.finished_s - batch.started_s for batch in seen.batches if batch.finished_s and batch.started_s]
    waits_s = [each.started_s - each.enqueued_s for each in seen.records if each.started_s and each.enqueued_s]
    assert np.mean(sizes) >= 8
    assert np.percentile(waits_s, 99) < 2 * max(runs_s), "for the batch that runs, and no further one"
