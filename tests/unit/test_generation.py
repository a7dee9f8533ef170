"""One replica without Ray: every request gets one answer, its own, and its place is free when its asker goes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import pytest_asyncio

from service.batching.batcher import QueueFullError
from service.engine.compute_thread import EngineThreads
from service.engine.job import Admit, DeviceLostError, Emit, Progress, SamplingParams, Sequence
from service.messages.settings import Settings, VersionedSettings
from service.messages.telemetry import BatchRecord, BatchWork
from service.replica.answers import answers_to
from service.replica.bodies import CompletionBody, StreamOptions
from service.replica.completions import AnswerStream, Asked, submit_all
from service.replica.errors import PromptRefusedError
from service.replica.generation import Generation
from service.replica.requests import GenerationError, GenerationRequest
from service.replica.step_watch import EngineStalledError


class SteppedEngine:
    """An engine that makes a step when the test says so: each token of a prompt is the prompt itself.

    A prompt that holds "poison" fails alone; "crash" brings the engine down, "lost" the device.
    """

    name = "stepped"
    memory_tokens = 0
    limit_s = 60.0

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.adopted: list[Settings] = []
        self.has_admitted = threading.Event()
        self._steps = threading.Semaphore(0)

    def allow(self, steps: int) -> None:
        self._steps.release(steps)

    def job(self, id: str, input: str, sampling: SamplingParams) -> Sequence:
        if len(input) > 50:
            raise ValueError("The prompt is too long.")
        return Sequence(id, [ord(c) for c in input], sampling)

    def adopt(self, settings: Settings) -> None:
        self.adopted.append(settings)

    def stall_limit_s(self, longest_s: float | None, unread_tokens: int) -> float:
        return self.limit_s

    def generate(self, sequences: list[Sequence], emit: Emit, admit: Admit | None = None) -> BatchWork:
        self.batches.append([_text(s) for s in sequences])
        step = 0
        while sequences:
            self._steps.acquire()
            step += 1
            if any("crash" in _text(s) for s in sequences):
                raise SystemExit("crashed")
            if any("lost" in _text(s) for s in sequences):
                emit([Progress(s, "", 0, "error", "The device failed.") for s in sequences])
                raise DeviceLostError("an illegal memory access")
            progress = [self._advance(s, _text(s)) for s in sequences]
            emit(progress)
            sequences = [s for s, p in zip(sequences, progress, strict=True) if p.finish_reason is None]
            joining = admit(BatchWork(steps=step), True) if admit else []
            sequences += joining
            if joining:
                self.has_admitted.set()
        return BatchWork(steps=step)

    def _advance(self, sequence: Sequence, text: str) -> Progress:
        if sequence.is_cancelled:
            return Progress(sequence, "", len(sequence.tokens), "cancelled")
        if "poison" in text:
            return Progress(sequence, "", 0, "error", "ValueError: poison")
        sequence.tokens.append(0)
        count = len(sequence.tokens)
        return Progress(sequence, text, count, "length" if count == sequence.sampling.max_tokens else None)


def _text(sequence: Sequence) -> str:
    return "".join(map(chr, sequence.prompt_ids))


class Replica:
    """A generation at work, with its engine and all records that it has reported."""

    def __init__(self, settings: Settings) -> None:
        self.engine = SteppedEngine()
        self.thread = ThreadPoolExecutor(1)
        in_force = VersionedSettings(version=1, settings=settings)
        self.generation = Generation("r1", self.engine, EngineThreads(self.thread), in_force)
        self.work = asyncio.get_running_loop().create_task(self.generation.run())

    async def submit(self, prompt: str, max_tokens: int = 1, streamed: bool = False) -> GenerationRequest:
        sampling = SamplingParams(max_tokens=max_tokens)
        return await self.generation.submit(prompt, sampling, received_s=0.0, streamed=streamed)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the news that makes it true."""
        news = self.generation.recorder.news
        async with asyncio.timeout(5):
            while not condition():
                await news.wait()
                news.clear()

    def batches(self) -> list[BatchRecord]:
        """What was told of each batch last."""
        return list(self.generation.recorder.batches.values())

    async def close(self) -> None:
        self.engine.allow(1000)
        self.work.cancel()
        await asyncio.to_thread(self.thread.shutdown)


@pytest_asyncio.fixture
async def replica() -> AsyncIterator[Replica]:
    replica = Replica(Settings(max_batch_size=4, batch_wait_timeout_s=0, max_queued_requests=3))
    yield replica
    await replica.close()


async def test_that_each_asker_gets_its_own_completion(replica: Replica) -> None:
    first = await replica.submit("a")
    await replica.until(lambda: replica.generation.requests.running == 1)
    others = [await replica.submit(prompt) for prompt in ("b", "c", "d")]
    replica.engine.allow(2)
    answers = [await replica.generation.result(request) for request in (first, *others)]
    assert [answer.text for answer in answers] == ["a", "b", "c", "d"]
    assert replica.engine.batches == [["a"], ["b", "c", "d"]]


async def test_that_a_stream_adds_up_to_the_whole(replica: Replica) -> None:
    request = await replica.submit("x", max_tokens=5, streamed=True)
    replica.engine.allow(5)
    chunks = [chunk async for chunk in replica.generation.chunks(request)]
    assert "".join(chunk.text for chunk in chunks) == "xxxxx"
    assert [chunk.finish_reason for chunk in chunks][-1] == "length"
    assert chunks[-1].completion_tokens == 5


async def test_that_what_comes_while_the_reader_of_a_stream_pauses_is_not_lost(replica: Replica) -> None:
    request = await replica.submit("x", max_tokens=3, streamed=True)
    chunks = replica.generation.chunks(request)
    replica.engine.allow(1)
    first = await anext(chunks)
    replica.engine.allow(2)
    await replica.until(lambda: request.is_final)
    rest = [chunk async for chunk in chunks]
    assert [(chunk.text, chunk.finish_reason) for chunk in (first, *rest)] == [("x", None), ("xx", "length")]


@pytest.mark.parametrize(("chunks_per_s", "steps"), [(1e9, 1), (0.01, 3)], ids=["at once", "seldom"])
async def test_that_a_stream_sends_what_came_until_its_next_chunk_may_go(
    replica: Replica, chunks_per_s: float, steps: int
) -> None:
    replica.generation.chunks_per_s, replica.generation.open_streams = chunks_per_s, 1
    request = await replica.submit("x", max_tokens=4, streamed=True)
    answers = answers_to(CompletionBody(prompt="x"), replica.engine, [request], "1")
    events = aiter(AnswerStream(replica.generation, [request], answers, StreamOptions()).body_iterator)
    replica.engine.allow(1)
    await anext(events)
    coming = asyncio.ensure_future(anext(events))
    replica.engine.allow(steps)
    event = bytes(await coming).removeprefix(b"data: ").partition(b"\n")[0]
    assert msgspec.json.decode(event)["choices"][0]["text"] == "x" * steps
    replica.engine.allow(3)


async def test_that_the_gaps_between_tokens_are_noted_and_the_longest_is_the_requests(replica: Replica) -> None:
    request = await replica.submit("x", max_tokens=4, streamed=True)
    replica.engine.allow(4)
    await replica.until(lambda: request.is_final)
    record = request.record("r1")
    gaps = replica.generation.recorder.take_gaps(1e9)
    assert sum(each.gaps.count for each in gaps) == 3, "the first token ends no gap"
    assert record.longest_gap_s == max(each.gaps.longest_s for each in gaps)
    assert record.first_token_s is not None
    assert record.longest_gap_at_s is not None
    assert record.finished_s is not None
    assert record.first_token_s < record.longest_gap_at_s <= record.finished_s
    alone = await replica.submit("y")
    replica.engine.allow(1)
    await replica.generation.result(alone)
    assert (alone.record("r1").longest_gap_s, replica.generation.recorder.take_gaps(1e9)) == (None, ())


async def test_that_the_tokens_of_a_batch_are_told_while_it_runs(replica: Replica) -> None:
    await replica.submit("x", max_tokens=5)
    batches = replica.generation.recorder.batches
    replica.engine.allow(3)
    await replica.until(lambda: [batch.tokens for batch in batches.values()] == [3])
    assert [batch.finished_s for batch in batches.values()] == [None]


async def test_that_a_poisonous_request_harms_only_itself(replica: Replica) -> None:
    await replica.submit("first")
    await replica.until(lambda: replica.generation.requests.running == 1)
    good, bad = await replica.submit("good"), await replica.submit("poison")
    replica.engine.allow(2)
    assert (await replica.generation.result(good)).text == "good"
    with pytest.raises(GenerationError, match="poison"):
        await replica.generation.result(bad)


async def test_that_a_crash_of_the_engine_is_told_to_those_it_hit_and_the_next_are_served(replica: Replica) -> None:
    crashing = await replica.submit("crash")
    replica.engine.allow(1)
    with pytest.raises(GenerationError, match="engine stopped"):
        await replica.generation.result(crashing)
    fine = await replica.submit("fine")
    replica.engine.allow(1)
    assert (await replica.generation.result(fine)).text == "fine"


async def test_that_a_full_queue_refuses_in_words_and_says_when_to_come_again(replica: Replica) -> None:
    await replica.submit("running")
    await replica.until(lambda: replica.generation.requests.running == 1)
    for i in range(3):
        await replica.submit(f"waiting {i}")
    with pytest.raises(QueueFullError, match="max_queued_requests") as full:
        await replica.submit("one too many")
    assert full.value.retry_after_s >= 1


async def test_that_more_inputs_than_the_queue_can_ever_hold_are_refused_for_good(replica: Replica) -> None:
    asked = [Asked(name, SamplingParams(max_tokens=1)) for name in "abcd"]
    sentence = r"4 inputs, but the queue holds 3 at most \(max_queued_requests\)\. Send at most 3 in one request"

    with pytest.raises(PromptRefusedError, match=sentence):
        await submit_all(replica.generation, asked, 0.0)

    ledger = replica.generation.recorder.ledger
    assert (ledger.received, ledger.refused, ledger.admitted) == (4, 4, 0)
    assert len(await submit_all(replica.generation, asked[:3], 0.0)) == 3


async def test_that_giving_up_in_the_queue_frees_the_place_at_once(replica: Replica) -> None:
    await replica.submit("running")
    await replica.until(lambda: replica.generation.requests.running == 1)
    waiting = [await replica.submit(f"waiting {i}") for i in range(3)]
    replica.generation.give_up(waiting[0])
    await asyncio.sleep(0)
    await replica.submit("takes the place")
    assert waiting[0].state == "cancelled"


async def test_that_giving_up_while_running_ends_the_computation_at_the_next_step(replica: Replica) -> None:
    request = await replica.submit("long", max_tokens=100)
    await replica.until(lambda: replica.generation.requests.running == 1)
    replica.generation.give_up(request)
    replica.engine.allow(1)
    await replica.until(lambda: request.state == "cancelled")
    assert replica.generation.requests.running == 0


async def test_that_a_prompt_the_engine_refuses_is_never_admitted(replica: Replica) -> None:
    with pytest.raises(ValueError, match="too long"):
        await replica.submit("x" * 51)
    ledger = replica.generation.recorder.ledger
    assert (ledger.received, ledger.refused, ledger.admitted) == (1, 1, 0)


async def test_that_the_ledger_balances(replica: Replica) -> None:
    done, failed, gone = await replica.submit("done"), await replica.submit("poison"), await replica.submit("gone")
    replica.generation.give_up(gone)
    replica.engine.allow(10)
    await replica.until(lambda: all(request.is_final for request in (done, failed, gone)))
    ledger = replica.generation.recorder.ledger
    assert ledger.received == ledger.refused + ledger.admitted == 3
    assert (ledger.completed, ledger.failed, ledger.cancelled) == (1, 1, 1)


async def test_that_the_stages_of_a_request_follow_each_other(replica: Replica) -> None:
    request = await replica.submit("staged", max_tokens=2)
    replica.engine.allow(2)
    await replica.generation.result(request)
    record = request.record("r1")
    stages = [record.enqueued_s, record.formed_s, record.started_s, record.first_token_s, record.finished_s]
    assert None not in stages
    assert stages == sorted(stages)  # type: ignore[type-var]
    assert record.batch == "r1-b1"


# ------------------------------------------------------------------------------------------------ formation continuous


CONTINUOUS = Settings(formation="continuous", max_batch_size=2, batch_wait_timeout_s=0)


@pytest_asyncio.fixture
async def open_replica() -> AsyncIterator[Replica]:
    replica = Replica(CONTINUOUS)
    yield replica
    await replica.close()


async def test_that_a_request_joins_between_two_steps_and_leaves_when_it_is_done(open_replica: Replica) -> None:
    long = await open_replica.submit("long", max_tokens=4)
    await open_replica.until(lambda: open_replica.generation.requests.running == 1)
    short = await open_replica.submit("short", max_tokens=1)
    open_replica.engine.allow(2)
    assert (await open_replica.generation.result(short)).text == "short"
    assert long.state == "running"
    open_replica.engine.allow(2)
    assert (await open_replica.generation.result(long)).text == "long" * 4
    assert open_replica.engine.batches == [["long"]], "the engine was asked once"


async def test_that_a_request_joins_while_the_event_loop_is_busy(open_replica: Replica) -> None:
    """The engine takes it from the queue itself, and asks the loop for nothing."""
    long = await open_replica.submit("long", max_tokens=3)
    await open_replica.until(lambda: open_replica.generation.requests.running == 1)
    short = await open_replica.submit("short", max_tokens=1)
    open_replica.engine.allow(3)
    assert open_replica.engine.has_admitted.wait(4), "the loop is held up here meanwhile"
    assert short.state == "waiting", "the loop has not heard of it yet"
    assert (await open_replica.generation.result(short)).text == "short"
    assert (await open_replica.generation.result(long)).text == "long" * 3
    assert (short.formed_s, short.batch) == (short.started_s, "r1-b2")


async def test_that_a_request_that_ends_in_the_moment_it_joins_stays_as_it_ended(open_replica: Replica) -> None:
    long = await open_replica.submit("long", max_tokens=3)
    await open_replica.until(lambda: open_replica.generation.requests.running == 1)
    overdue = await open_replica.submit("overdue", max_tokens=9)
    open_replica.engine.allow(1)
    assert open_replica.engine.has_admitted.wait(4)
    overdue.job.cancel()
    open_replica.generation.requests.finish(overdue, "failed", "It was not complete in time.")
    open_replica.engine.allow(2)
    assert (await open_replica.generation.result(long)).text == "long" * 3
    await open_replica.until(lambda: all(record.finished_s is not None for record in open_replica.batches()))
    assert [(b.size, b.work and b.work.steps) for b in open_replica.batches()] == [(1, 3)]
    assert (overdue.state, overdue.batch, overdue.started_s) == ("failed", None, None)


async def test_that_no_more_run_than_max_batch_size(open_replica: Replica) -> None:
    requests = [await open_replica.submit(str(i), max_tokens=2) for i in range(5)]
    open_replica.engine.allow(1)
    await open_replica.until(lambda: sum(r.state == "running" for r in requests) == 2)
    open_replica.engine.allow(10)
    for request in requests:
        await open_replica.generation.result(request)
    sizes = [record.size for record in open_replica.batches()]
    assert max(sizes) == 2


async def test_that_each_change_of_the_members_begins_a_batch_of_its_own(open_replica: Replica) -> None:
    long = await open_replica.submit("long", max_tokens=4)
    await open_replica.until(lambda: open_replica.generation.requests.running == 1)
    short = await open_replica.submit("short", max_tokens=1)
    open_replica.engine.allow(4)
    await open_replica.generation.result(long)
    await open_replica.until(lambda: all(record.finished_s is not None for record in open_replica.batches()))

    told = [(b.release_reason, b.size, b.tokens, b.work and b.work.steps) for b in open_replica.batches()]
    assert told == [("drained", 1, 1, 1), ("joined", 2, 2, 1), ("left", 1, 2, 2)]
    assert (long.batch, short.batch) == ("r1-b1", "r1-b2")


async def test_that_a_change_of_formation_loses_no_request(open_replica: Replica) -> None:
    first = [await open_replica.submit(str(i), max_tokens=3) for i in range(4)]
    open_replica.engine.allow(1)
    await open_replica.until(lambda: open_replica.generation.requests.running == 2)
    for version, formation in enumerate(("late", "continuous"), start=2):
        settings = CONTINUOUS.revised({"formation": formation, "batch_wait_timeout_s": 0.01})
        open_replica.generation.apply(VersionedSettings(version=version, settings=settings))
        first.append(await open_replica.submit(formation, max_tokens=2))
        open_replica.engine.allow(1)
    open_replica.engine.allow(100)
    answers = [await open_replica.generation.result(request) for request in first]
    assert [answer.text for answer in answers] == [
        *(str(i) * 3 for i in range(4)),
        *(f * 2 for f in ("late", "continuous")),
    ]


async def test_that_the_engine_adopts_the_settings_with_the_batcher(open_replica: Replica) -> None:
    settings = CONTINUOUS.revised({"prefill_chunk_tokens": 32})
    open_replica.generation.apply(VersionedSettings(version=2, settings=settings))
    assert open_replica.engine.adopted == [CONTINUOUS, settings]
    assert open_replica.generation.batcher.in_force.settings == settings


async def test_that_the_replica_s_work_ends_when_its_device_is_lost(replica: Replica) -> None:
    """So that Serve, which asks for its health, puts another in its place."""
    asked = await replica.submit("lost")
    replica.engine.allow(1)
    with pytest.raises(GenerationError, match="device failed"):
        await replica.generation.result(asked)
    with pytest.raises(ExceptionGroup) as ended:
        await replica.work
    assert ended.group_contains(DeviceLostError)


async def test_that_all_requests_fail_with_the_reason_when_the_engine_makes_no_step_any_more(replica: Replica) -> None:
    """So that nobody waits for `REQUEST_TIMEOUT_S`, and Serve puts another replica in its place."""
    replica.engine.limit_s = 0.1
    asked = [await replica.submit("stuck")]
    await replica.until(lambda: replica.generation.requests.running == 1)
    asked.append(await replica.submit("waiting"))
    for request in asked:
        with pytest.raises(GenerationError, match=r"no step for 0\.\d s; its replica is replaced"):
            await replica.generation.result(request)
    with pytest.raises(ExceptionGroup) as ended:
        await replica.work
    assert ended.group_contains(EngineStalledError)
    with pytest.raises(GenerationError, match="its replica is replaced"):
        await replica.submit("late")


async def test_that_requests_that_wait_fail_when_the_replica_s_work_ends(replica: Replica) -> None:
    lost = await replica.submit("lost")
    await replica.until(lambda: replica.generation.requests.running == 1)
    waiting = await replica.submit("waiting")
    replica.engine.allow(1)
    for request, reason in ((lost, "device failed"), (waiting, "work has ended")):
        with pytest.raises(GenerationError, match=reason):
            await replica.generation.result(request)


async def test_that_requests_that_joined_are_told_of_a_crash_of_the_engine_too(open_replica: Replica) -> None:
    first = await open_replica.submit("first", max_tokens=9)
    await open_replica.until(lambda: open_replica.generation.requests.running == 1)
    crashing = await open_replica.submit("crash", max_tokens=9)
    open_replica.engine.allow(2)
    for request in (first, crashing):
        with pytest.raises(GenerationError, match="engine stopped"):
            await open_replica.generation.result(request)
    fine = await open_replica.submit("fine")
    open_replica.engine.allow(1)
    assert (await open_replica.generation.result(fine)).text == "fine"


async def test_that_two_batches_run_side_by_side_where_two_may(replica: Replica) -> None:
    settings = Settings(max_batch_size=1, batch_wait_timeout_s=0, max_concurrent_batches=2)
    replica.generation.apply(VersionedSettings(version=2, settings=settings))
    requests = [await replica.submit(prompt, max_tokens=2) for prompt in ("a", "b", "c")]
    await replica.until(lambda: replica.generation.requests.running == 2)
    replica.engine.allow(1000)
    assert [(await replica.generation.result(request)).text for request in requests] == ["aa", "bb", "cc"]
    await replica.until(lambda: all(batch.finished_s for batch in replica.batches()))
    spans = sorted((batch.started_s or 0.0, batch.finished_s or 0.0) for batch in replica.batches())
    assert spans[1][0] < spans[0][1], "the second began while the first ran"
    assert spans[2][0] >= min(end_s for _, end_s in spans[:2]), "the third waited for a place"
