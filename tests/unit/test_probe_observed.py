"""A decorated function as telemetry shows it: its requests, its batches, and the ledger of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from ray import serve

from service.messages.settings import Settings, VersionedSettings
from service.messages.telemetry import BatchRecord, Ledger, RequestRecord
from service.probe.observed import Observed
from service.ray_serve.batch_queue import OpenQueue, open_queue_of

pytestmark = pytest.mark.usefixtures("replica_context")

SETTINGS = VersionedSettings(version=3, settings=Settings(max_batch_size=4, batch_wait_timeout_s=0.0))


class Seen:
    """What is observed of a function from its first call on."""

    def __init__(self, function: Any, **options: Any) -> None:
        self.call: Any = serve.batch(**options)(function)
        self.tuned: list[Settings] = []
        open_queue_of(self.call, "late", self._observe)

    def _observe(self, queue: OpenQueue) -> None:
        self.observed = Observed("add", "r1", queue, SETTINGS, self.tuned.append)

    async def report(self) -> tuple[list[RequestRecord], list[BatchRecord]]:
        """What is new, as soon as no request is held any more."""
        while self.observed.requests.live or any(
            each.finished_s is None for each in self.observed.recorder.batches.values()
        ):
            self.observed.recorder.news.clear()
            async with asyncio.timeout(10):
                await self.observed.recorder.news.wait()
        report = self.observed.recorder.report(self.observed.status())
        return list(report.requests), list(report.batches)


async def test_that_requests_and_their_batch_are_recorded_through_all_stages() -> None:
    async def add(numbers: list[int]) -> list[int]:
        return [number + 1 for number in numbers]

    seen = Seen(add)
    assert await asyncio.gather(*(seen.call(number) for number in range(3))) == [1, 2, 3]
    requests, (batch,) = await seen.report()
    assert [(each.id, each.state, each.batch, each.completion_tokens) for each in requests] == [
        (f"r1-{number}", "done", "r1-b1", 1) for number in (1, 2, 3)
    ]
    for each in requests:
        stages = [each.enqueued_s, each.formed_s, each.started_s, each.first_token_s, each.finished_s]
        assert None not in stages
        assert stages == sorted(stages, key=lambda at_s: at_s or 0.0)
    assert batch.members == ("r1-1", "r1-2", "r1-3")
    assert (batch.size, batch.cap, batch.settings_version, batch.tokens) == (3, 4, 3, 3)
    assert (batch.formation, batch.release_reason) == ("late", "drained")
    assert batch.work is not None
    assert batch.work.steps == 1


async def test_that_what_fails_or_is_left_is_told_with_its_reason() -> None:
    async def divide(numbers: list[int]) -> list[float]:
        return [1 / number for number in numbers]

    seen = Seen(divide)
    await asyncio.gather(seen.call(0), return_exceptions=True)
    left = asyncio.ensure_future(seen.call(1))
    await asyncio.sleep(0)
    left.cancel()
    requests, _ = await seen.report()
    assert [(each.state, each.error) for each in requests] == [
        ("failed", "ZeroDivisionError: division by zero"),
        ("cancelled", None),
    ]
    assert seen.observed.recorder.ledger == Ledger(received=2, admitted=2, failed=1, cancelled=1)


async def test_that_the_pieces_of_a_stream_are_counted_and_timed() -> None:
    async def count(limits: list[int]) -> AsyncIterator[list[Any]]:
        for number in range(max(limits)):
            yield [number if number < limit else StopAsyncIteration for limit in limits]

    seen = Seen(count)
    for stream in [seen.call(1), seen.call(4)]:
        assert [piece async for piece in stream]
    requests, (batch,) = await seen.report()
    assert [(each.state, each.completion_tokens) for each in requests] == [("done", 1), ("done", 4)]
    assert requests[1].longest_gap_s is not None
    assert batch.work is not None
    assert (batch.tokens, batch.work.steps) == (5, 4)
    assert seen.observed.status().unit == "pieces"


async def test_that_a_request_weighs_what_its_size_function_says() -> None:
    async def measure(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    seen = Seen(measure, batch_size_fn=lambda texts: sum(map(len, texts)), max_batch_size=4)
    assert await asyncio.gather(seen.call("a"), seen.call("abc"), seen.call("abcd")) == [1, 3, 4]
    requests, batches = await seen.report()
    assert [each.prompt_tokens + each.max_tokens for each in requests] == [1, 3, 4]
    assert [each.size for each in batches] == [2, 1]


async def test_that_a_status_counts_what_waits_and_what_runs() -> None:
    gate = asyncio.Event()
    called = asyncio.Event()

    async def wait(numbers: list[int]) -> list[int]:
        called.set()
        await gate.wait()
        return numbers

    seen = Seen(wait)
    calls = [asyncio.ensure_future(seen.call(0))]
    await called.wait()
    calls += [asyncio.ensure_future(seen.call(number)) for number in (1, 2)]
    await asyncio.sleep(0)
    status = seen.observed.status()
    assert (status.waiting, status.formed, status.running, status.settings_version) == (2, 0, 1, 3)
    gate.set()
    await asyncio.gather(*calls)


async def test_that_a_setter_of_the_application_is_passed_on() -> None:
    async def add(numbers: list[int]) -> list[int]:
        return [number + 1 for number in numbers]

    seen = Seen(add)
    await seen.call(1)
    seen.call.set_batch_wait_timeout_s(0.5)
    await asyncio.gather(*(seen.call(number) for number in range(4)))
    assert [each.batch_wait_timeout_s for each in seen.tuned] == [0.5]
