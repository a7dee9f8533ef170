"""Promises that only many requests at once can break, on a real service of two replicas whose engine is a stub.

T01, T02, T03, T05, T06, T11, T12, T13, T14, T25 and T26 of the reliability tests: what was sent and what came back is
counted at the clients and held against what the replicas counted. Each records what it saw for the table at the end.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

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

from service.commands import remote
from service.messages.settings import Settings
from service.messages.telemetry import BatchRecord, RequestRecord, TelemetryFrame
from tests.service import HANG_S
from tests.service.clients import IN_FLIGHT, TOKENS, Question, asking, watching
from tests.service.conftest import Service, served
from tests.service.telemetry import reading

REPLICAS: Final = 2
REQUESTS: Final = 10_000
LONG: Final = 2000  # tokens, of which nobody waits for the last
EXAMPLES: Final = 100
CHANGES: Final = 200
KILLS: Final = 3
TEXTS: Final = 200
STRANGE: Final = (
    *(
        "\0",
        "\r\n",
        "\n\n",
        "\r",
        "data: [DONE]\n\n",
        "\u2028",
        "\x85",
        "\x1b[2J",
        "\u202e",
        "\ufeff",
        "\uffff",
        "%00",
        "\\",
    ),
    *(
        "👩\u200d👩\u200d👧",
        "e" + "\u0301" * 300,
        "<|endoftext|>",
        "<|im_start|>",
        "𝒳",
        "שלום",
        "ﷺ",
        '"',
        "{}",
        "\U0010ffff",
    ),
)
NONSENSE: Final = (
    *("NaN", "Infinity", "-Infinity", "1e400", "-1", "-1e-300", "1" * 400, '"8"', '"８"', '""', '"\\u0000"', '"late "'),
    *("[]", "[8]", "{}", '{"a": 1}', "null", "tru", "0x8", "1_000", "", "8 8", "[[[]]]", "[null]", '{"": {}}', "'8'"),
    *("8,", "08", "+8", ".5", "5.", "1e", "--1", "0b1", "8n", "Inf", "nan", "undefined", "None", "True", "[8", "{"),
    *('"a', '"', '"NaN"', '"1e3"', '"-1"', '"true"', '"null"', '"²"', '"Ⅷ"', '"٨"', '"\\ud800"', '" late"', '"LATE"'),
    *('"late\\n"', '"late\\u0000"', '"l\u0430te"', '"💥"', '"\u202elate"', "1e309", "-1e400", "-9" * 200, "-"),
)
MOST_TOKENS: Final = 5  # that a described request may ask for
AS_DESCRIBED: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
_VERBS: Final = {GenerationMode.POSITIVE: "allows", GenerationMode.NEGATIVE: "forbids"}
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def stub() -> Iterator[Service]:
    yield from served("--model", "stub?step_ms=2&row_ms=0&prompt_token_ms=0", "--replicas", str(REPLICAS))


@pytest.fixture
def record(record_property: Record) -> Record:
    """Takes the number of a test and what it saw, a line of the table at the end of the run."""
    return record_property


@pytest.fixture
def service(stub: Service) -> Iterator[Service]:
    """With the settings of the start."""
    assert stub.change(**msgspec.to_builtins(Settings())).status_code == 200
    yield stub
    assert stub.change(**msgspec.to_builtins(Settings())).status_code == 200


@pytest.mark.promise("T01")
async def test_that_each_of_ten_thousand_requests_is_answered_to_the_token(service: Service, record: Record) -> None:
    """T01: 256 clients in a closed loop."""
    async with asking(service) as clients, watching(service) as seen:
        await seen.watch(clients.ask(map(Question, range(REQUESTS))))
    assert clients.count() == {"right": REQUESTS}
    assert seen.counted("completed") == seen.counted("received") == REQUESTS
    assert {each.completion_tokens for each in seen.records} == {TOKENS}
    record("T01", f"{IN_FLIGHT} clients: {REQUESTS:,} of {REQUESTS:,} requests answered, each to the token")


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


@pytest.mark.promise("T03", "T25")
async def test_that_no_request_is_lost_doubled_or_swapped_and_none_is_overtaken_twice(
    service: Service, record: Record
) -> None:
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
    record(
        "T03",
        f"{REQUESTS:,} requests, {len(versions)} changes of settings: none lost, doubled or swapped; {poison} poisoned "
        f"failed, {left} left, of which {ended['cancelled']} before their end",
    )
    record("T25", f"{len(seen.records):,} requests: none overtaken by more than one batch")


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


@pytest.mark.promise("T02")
async def test_that_overload_is_refused_at_once_in_words_and_leaves_what_was_admitted_whole(
    service: Service, record: Record
) -> None:
    """T02: five times as many clients as all places and queues take."""
    bounds = {"max_batch_size": 8, "max_queued_requests": 24}
    assert service.change(**bounds, batch_wait_timeout_s=0.0).status_code == 200
    clients_at_once = 5 * REPLICAS * sum(bounds.values())
    async with asking(service) as clients, watching(service) as seen:
        await seen.watch(clients.ask([Question(number, tokens=120) for number in range(4_000)], clients_at_once))
    count = clients.count()
    assert set(count) == {"right", "refused"}
    assert count["refused"] > count["right"] > REPLICAS * sum(bounds.values())
    assert seen.counted("refused") == count["refused"]
    for status in seen.statuses:
        assert status.waiting <= bounds["max_queued_requests"]
        assert status.running + status.formed <= bounds["max_batch_size"]
    assert np.median([batch.size for batch in seen.batches]) == bounds["max_batch_size"], "no place stands empty"
    assert service.complete("after it", max_tokens=1).status_code == 200
    most = max(status.waiting for status in seen.statuses)
    record(
        "T02",
        f"{clients_at_once} clients: {count['refused']:,} requests refused, {count['right']:,} answered, none failed; "
        f"at most {most} of {bounds['max_queued_requests']} waited at a replica",
    )


@pytest.mark.promise("T02")
async def test_that_the_doors_refuse_what_no_replica_would_have_a_place_for(service: Service, record: Record) -> None:
    """T02: so many clients that Ray Serve's proxy would take requests in and hand no answer on."""
    assert service.change(max_batch_size=8, max_queued_requests=24).status_code == 200
    assert service.complete("so that the doors know of it", max_tokens=1).status_code == 200
    clients_at_once, sent = 1_500, 3_000
    async with asking(service) as clients, watching(service) as seen:
        await seen.watch(clients.ask(map(Question, range(sent)), clients_at_once))
    count = clients.count()
    assert set(count) == {"right", "refused"}
    at_the_doors = sent - seen.counted("received")
    assert at_the_doors > 0
    assert count["refused"] == at_the_doors + seen.counted("refused")
    record(
        "T02", f"{clients_at_once:,} clients: {at_the_doors:,} of {sent:,} requests refused before the proxy took them"
    )


@pytest.mark.promise("T05")
async def test_that_a_request_whose_client_left_while_it_was_on_its_way_is_not_computed(
    service: Service, record: Record
) -> None:
    """T05: clients that leave within 60 ms, before a replica hears of their requests or just after."""
    heard = 0
    for burst, clients_at_once in enumerate((32, 64) * 2):
        questions = [Question(burst * 300 + number, tokens=LONG, leaves="FIN") for number in range(300)]
        async with asking(service) as clients, watching(service) as seen:
            await seen.watch(clients.ask(questions, clients_at_once))
        assert clients.count() == {"left": len(questions)}
        assert seen.counted("cancelled") == seen.counted("received")
        heard += int(seen.counted("cancelled"))
    assert service.complete("after them", max_tokens=1).status_code == 200
    record("T05", f"1,200 clients that left within 60 ms: {heard} requests were heard of, none was completed")


@pytest.mark.promise("T05")
async def test_that_what_a_client_has_left_is_computed_no_further(service: Service, record: Record) -> None:
    """T05: of 2,100 clients all, half or a tenth leave, by FIN or RST, after the first event of their streams."""
    most = 0
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
        cancelled = [each for each in seen.records if each.state == "cancelled"]
        assert len(cancelled) == seen.counted("cancelled") == count * share
        most = max(most, *(each.completion_tokens for each in cancelled))
        assert most < LONG / 2
    async with asking(service) as clients:
        await clients.ask(map(Question, range(IN_FLIGHT)))
    assert clients.count() == {"right": IN_FLIGHT}
    record("T05", f"1,120 of 2,100 streams left after their first event: at most {most} of {LONG:,} tokens computed")


@pytest.mark.promise("T06")
async def test_that_a_replica_that_is_killed_costs_the_requests_that_it_held_and_no_other(
    service: Service, record: Record, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """T06: three times while 32 clients ask, half of them for streams; the next replica takes its place each time."""
    monkeypatch.setattr(remote, "GIVE_UP_AFTER_S", HANG_S)  # on a busy machine the next replica takes its time
    drawn, kills, enough = random.Random(6), [], asyncio.Event()
    async with asking(service) as clients, reading(service) as reader:
        asked = asyncio.create_task(clients.ask(_until(enough, is_mixed=True), clients=32))
        asked.add_done_callback(lambda _: enough.set())

        async def read_until(condition: Callable[[TelemetryFrame], bool]) -> TelemetryFrame:
            return await reader.read_until(lambda frame: enough.is_set() or condition(frame))

        for _ in range(20 if is_long else KILLS):
            for _ in range(drawn.randrange(1, 20)):  # frames, so at any moment of a batch
                await read_until(lambda _: True)
            victim = drawn.choice((await read_until(_are_all_at_work)).replicas)
            os.kill(victim.pid, signal.SIGKILL)
            kills.append((victim.replica, time.monotonic()))
            await read_until(lambda frame, name=victim.replica: name in frame.lost_replicas)
            await read_until(_are_all_at_work)
        enough.set()
        await asked
    count = clients.count()
    lost = [question for question, outcome in clients.outcomes.items() if outcome == "lost"]
    assert set(count) <= {"right", "lost"}
    assert len(lost) <= len(kills) * 32
    killed_s = [at_s for _, at_s in kills]
    ended_s = [clients.ended_s[question] for question in lost]
    longest_s = max((each_s - killed_s[bisect.bisect(killed_s, each_s) - 1] for each_s in ended_s), default=0.0)
    assert [name for frame in reader.frames for name in frame.lost_replicas] == [name for name, _ in kills]
    record(
        "T06",
        f"{len(kills)} replicas killed under 32 clients: {count['right']:,} requests answered, {len(lost)} lost; "
        f"of these the last ended {longest_s:.1f} s after the kill",
    )


def _are_all_at_work(frame: TelemetryFrame) -> bool:
    return sum(status.waiting + status.formed + status.running > 0 for status in frame.replicas) == REPLICAS


def most_unlike_ascii(count: int) -> Iterator[str]:
    """So many texts, of parts that something on their way might take for something else."""
    drawn = random.Random(14)
    for number in range(count):
        yield f"{number}" + "".join(drawn.choices(STRANGE, k=drawn.randrange(1, 9)))


@pytest.mark.promise("T14")
async def test_that_any_text_comes_back_byte_for_byte_in_one_piece_or_as_a_stream(
    service: Service, record: Record
) -> None:
    """T14: the stub repeats its prompt, so what was sent is seen in what comes back."""
    texts = list(most_unlike_ascii(TEXTS))
    questions = [
        Question(number, text=text, is_streamed=is_streamed)
        for number, text in enumerate(texts)
        for is_streamed in (False, True)
    ]
    async with asking(service) as clients:
        await clients.ask(questions, clients=32)
    assert clients.count() == {"right": len(questions)}
    record("T14", f"{TEXTS} strange texts: each came back byte for byte, whole and streamed")


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00\\ud800", "a\\udfffb"])
@pytest.mark.promise("T14")
def test_that_half_a_character_is_refused_in_words(service: Service, text: str) -> None:
    """T14: a surrogate alone, which JSON can write and UTF-8 cannot."""
    body = f'{{"prompt": "{text}"}}'.encode()
    answer = requests.post(f"{service.url}/v1/completions", data=body, timeout=HANG_S)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("beyond", [-1, 0, 1])
@pytest.mark.promise("T14")
def test_that_a_prompt_fills_the_context_and_does_not_exceed_it(service: Service, beyond: int) -> None:
    """T14: a character is a token of the stub's."""
    context = service.ready.context_length
    assert context is not None
    answer = service.complete("x" * (context - 1 + beyond), max_tokens=1)
    assert answer.status_code == (400 if beyond > 0 else 200)
    if beyond > 0:
        assert f"{context} tokens" in answer.json()["error"]["message"]


@pytest.mark.promise("T11")
async def test_that_two_hundred_changes_of_settings_under_load_harm_no_request_and_no_replica(
    service: Service, record: Record
) -> None:
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
    record(
        "T11",
        f"{CHANGES} changes under load: {len(clients.outcomes):,} of as many requests answered, the same replicas, "
        f"none of {len(seen.batches):,} batches under settings older than the last answer",
    )


def _until(enough: asyncio.Event, *, is_mixed: bool = False) -> Iterator[Question]:
    """Questions without end; where they are mixed, every other is for a stream."""
    numbers = itertools.count()
    while not enough.is_set():
        number = next(numbers)
        yield Question(number, is_streamed=is_mixed and number % 2 == 0)


@pytest.mark.parametrize("name", Settings.__struct_fields__)
@pytest.mark.promise("T12")
def test_that_a_setting_that_is_none_is_refused_in_words_and_changes_nothing(
    service: Service, record: Record, name: str
) -> None:
    """T12: by HTTP, what JSON can write of numbers, texts and lists, and what is no JSON."""
    before = requests.get(f"{service.url}/batching", timeout=HANG_S).json()
    for value in NONSENSE:
        body = f'{{"max_batch_size": 7, "{name}": {value}}}'.encode()
        answer = requests.put(f"{service.url}/batching", data=body, timeout=HANG_S)
        assert answer.status_code in (400, 422), value
        assert answer.json()["error"]["message"]
        assert requests.get(f"{service.url}/batching", timeout=HANG_S).json() == before
    assert service.complete("after them", max_tokens=1).status_code == 200
    record("T12", f"{name}: {len(NONSENSE)} of {len(NONSENSE)} kinds of nonsense refused in words, nothing changed")


@pytest.mark.parametrize("mode", _VERBS, ids=_VERBS.values())
@pytest.mark.promise("T13")
def test_that_what_the_description_says_is_answered_as_it_says(
    service: Service, record: Record, mode: GenerationMode, is_long: bool
) -> None:
    """T13: 100 requests a route, drawn from `GET /openapi.json`; each answer is one that is described, and no 5xx."""
    service.change(batch_wait_timeout_s=0.0)
    whole = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    described = whole.exclude(path="/telemetry").exclude(path="/deployment", method="PUT")  # endless; 64 replicas
    asked = 0
    for found in described.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
            continue

        @hypothesis.settings(max_examples=5 * EXAMPLES if is_long else EXAMPLES, database=None)
        @hypothesis.given(operation.as_strategy(generation_mode=mode))
        def is_answered(case: schemathesis.Case) -> None:
            nonlocal asked
            asked += 1
            if isinstance(case.body, dict) and case.operation.path.endswith("/completions"):
                tokens = case.body.setdefault("max_tokens", MOST_TOKENS)
                case.body["max_tokens"] = min(tokens, MOST_TOKENS) if isinstance(tokens, int) else tokens
            case.call_and_validate(checks=AS_DESCRIBED, timeout=HANG_S)

        is_answered()
    assert asked > EXAMPLES
    assert service.complete("after them", max_tokens=1).status_code == 200
    record("T13", f"{asked:,} drawn requests that the description {_VERBS[mode]}: each answered as described, no 5xx")


@pytest.mark.promise("T26")
async def test_that_batches_grow_under_load_and_nobody_waits_long(service: Service, record: Record) -> None:
    """T26: a batch of Ray's decorator as shipped has one request here, and the queue grows without end."""
    service.change(batch_wait_timeout_s=0.01, max_batch_size=64)  # else requests wait behind full batches
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
    assert np.mean(sizes) >= 8
    began = [each for each in seen.records if each.started_s and each.enqueued_s]
    before = [batches_before(each, seen.batches) for each in began]
    assert all(batch.size == batch.cap for batches in before for batch in batches), "else the request would be in it"
    waits_s = [each.started_s - each.enqueued_s for each in began if each.started_s and each.enqueued_s]
    assert np.percentile(waits_s, 99) < 2 * max(runs_s), "for the batch that runs, and no further one"
    record("T26", f"mean batch {np.mean(sizes):.1f}, 99 % wait less than {np.percentile(waits_s, 99):.2f} s")


def batches_before(request: RequestRecord, batches: Sequence[BatchRecord]) -> list[BatchRecord]:
    """Those that were formed at its replica while it waited, its own aside."""
    assert request.enqueued_s is not None
    assert request.started_s is not None
    own = [each for each in batches if each.replica == request.replica and each.id != request.batch]
    return [each for each in own if request.enqueued_s < each.formed_s < request.started_s]
