"""Late formation: when a batch is released, with which requests, and what a change or a cancellation does to it."""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from service.batching.queue import Batch, BatchQueue
from service.batching.rules import Rules
from tests.virtual_time import now_s, run_in_virtual_time


def queue(max_batch_size: int, batch_wait_timeout_s: float, **others: Any) -> BatchQueue[Any]:
    return BatchQueue(Rules(max_batch_size, batch_wait_timeout_s, **others), clock=now_s)


def items(batch: Batch[Any]) -> list[Any]:
    return [entry.item for entry in batch.entries]


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        run_in_virtual_time(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    return run


@in_virtual_time
async def test_that_a_full_batch_leaves_at_once() -> None:
    q = queue(3, 5.0)
    for i in range(5):
        q.submit(i)
    batch = await q.next_batch()
    assert (items(batch), batch.release_reason, batch.formed_s) == ([0, 1, 2], "full", 0.0)
    assert len(q) == 2


@in_virtual_time
async def test_that_a_batch_that_does_not_fill_leaves_when_its_first_request_has_waited() -> None:
    q = queue(8, 0.05)
    q.submit("first")
    asyncio.get_running_loop().call_at(0.03, q.submit, "second")
    batch = await q.next_batch()
    assert (items(batch), batch.release_reason) == (["first", "second"], "timeout")
    assert batch.formed_s == pytest.approx(0.05)


@in_virtual_time
async def test_that_without_a_timeout_a_batch_takes_what_is_there() -> None:
    q = queue(8, 0.0)
    q.submit("only")
    batch = await q.next_batch()
    assert (items(batch), batch.release_reason, batch.formed_s) == (["only"], "drained", 0.0)


@in_virtual_time
async def test_that_where_no_more_may_come_there_is_nothing_to_wait_for() -> None:
    q = queue(8, 5.0)
    q.submit("last")
    batch = q.take(now_s(), now_s(), more_may_come=False)
    assert batch is not None
    assert (items(batch), batch.release_reason) == (["last"], "drained")


@in_virtual_time
async def test_that_nothing_is_released_before_somebody_asks() -> None:
    q = queue(8, 0.01)
    q.submit("early bird")
    await asyncio.sleep(1.0)
    q.submit("late comer")
    batch = await q.next_batch()
    assert (items(batch), batch.release_reason) == (["early bird", "late comer"], "timeout")


@in_virtual_time
async def test_that_a_changed_setting_rules_the_batch_that_is_forming() -> None:
    q = queue(8, 5.0)
    for i in range(4):
        q.submit(i)
    asyncio.get_running_loop().call_at(0.1, q.configure, Rules(4, 5.0, version=2))
    batch = await q.next_batch()
    assert (len(batch.entries), batch.release_reason, batch.rules_version, batch.cap) == (4, "full", 2, 4)
    assert batch.formed_s == pytest.approx(0.1)


@in_virtual_time
async def test_that_cancelling_frees_the_place_in_the_queue() -> None:
    q = queue(2, 1.0)
    q.submit("stays")
    goes = q.submit("goes")
    goes.cancel()
    await asyncio.sleep(0)
    q.submit("comes")
    assert items(await q.next_batch()) == ["stays", "comes"]


@in_virtual_time
async def test_an_entry_that_is_cancelled_in_the_moment_of_release_is_in_no_batch() -> None:
    q = queue(2, 0.0)
    for future in [q.submit(item) for item in ("gone", "gone too", "gone as well")]:
        future.cancel()
    q.submit("stays")
    batch = q.take(now_s(), now_s(), more_may_come=False)
    assert batch is not None
    assert items(batch) == ["stays"]


@in_virtual_time
async def test_that_an_answer_reaches_its_own_request() -> None:
    q = queue(2, 1.0)
    one, two = q.submit(1), q.submit(2)
    for entry in (await q.next_batch()).entries:
        entry.answer(entry.item * 10)
    assert (await one, await two) == (10, 20)


@in_virtual_time
async def test_that_giving_up_the_wait_for_a_batch_loses_nothing() -> None:
    q = queue(4, 0.1)
    q.submit("kept")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await q.next_batch()
    assert items(await q.next_batch()) == ["kept"]


@in_virtual_time
async def test_that_batches_grow_while_the_engine_is_busy() -> None:
    """50 requests/s, 200 ms a batch, max 16, wait 10 ms; Ray as shipped gives a mean of about 1 (FACTS 1)."""
    q = queue(16, 0.01)
    sizes: list[int] = []
    arrivals = random.Random(7)

    async def arrive() -> None:
        for i in range(2000):
            await asyncio.sleep(arrivals.expovariate(50.0))
            q.submit(i)

    async def serve() -> None:
        while sum(sizes) < 2000:
            sizes.append(len((await q.next_batch()).entries))
            await asyncio.sleep(0.2)

    await asyncio.gather(arrive(), serve())
    assert statistics.mean(sizes) >= 8


@in_virtual_time
async def test_that_users_in_two_groups_share_a_batch_again() -> None:
    """16 users that ask again 5 ms after their answer; six of them came late to the first batch."""
    q = queue(16, 0.05)
    sizes: list[int] = []

    async def use(first_s: float) -> None:
        await asyncio.sleep(first_s)
        while True:
            await q.submit("again")
            await asyncio.sleep(0.005)

    users = [asyncio.create_task(use(0.1 if i < 6 else 0.0)) for i in range(16)]
    for _ in range(3):
        batch = await q.next_batch()
        sizes.append(len(batch.entries))
        await asyncio.sleep(1.0)
        for entry in batch.entries:
            entry.answer("done")
    for user in users:
        user.cancel()
    assert sizes == [10, 16, 16]


@in_virtual_time
async def test_that_a_free_engine_waits_no_longer_than_the_timeout() -> None:
    q = queue(8, 0.05)
    q.submit("while it was busy")
    await asyncio.sleep(1.0)
    batch = await q.next_batch()
    assert batch.formed_s == pytest.approx(1.05)


@in_virtual_time
async def test_that_nobody_is_overtaken() -> None:
    q = queue(3, 0.0)
    for i in range(100):
        q.submit(i)
    served = [item for _ in range(34) for item in items(await q.next_batch())]
    assert served == list(range(100))


@in_virtual_time
async def test_that_with_a_stride_batches_leave_on_its_ticks_only() -> None:
    q = queue(2, 0.05, stride_s=0.5)
    loop = asyncio.get_running_loop()
    for at_s in (0.1, 0.6, 0.7, 1.1):
        loop.call_at(at_s, q.submit, at_s)
    batches = [await q.next_batch() for _ in range(3)]
    assert [(items(batch), batch.release_reason) for batch in batches] == [
        ([0.1], "timeout"),
        ([0.6, 0.7], "full"),
        ([1.1], "timeout"),
    ]
    assert [batch.formed_s for batch in batches] == pytest.approx([0.5, 1.0, 1.5])


@in_virtual_time
async def test_that_a_tick_that_the_engine_misses_is_not_made_up_for() -> None:
    q = queue(1, 0.0, stride_s=0.5)
    for i in range(2):
        q.submit(i)
    first = await q.next_batch()
    await asyncio.sleep(0.6)
    second = await q.next_batch()
    assert [batch.formed_s for batch in (first, second)] == pytest.approx([0.0, 1.0])


@in_virtual_time
async def test_that_a_batch_holds_no_more_tokens_than_its_budget_and_nobody_is_overtaken() -> None:
    """The second does not fit beside the first; the third would, and does not go before it."""
    q = queue(8, 5.0, max_batch_tokens=100)
    for name, tokens in (("a", 60), ("b", 50), ("c", 20), ("d", 40)):
        q.submit(name, tokens)
    batches = [await q.next_batch(), await q.next_batch()]
    assert [(items(batch), batch.release_reason) for batch in batches] == [(["a"], "full"), (["b", "c"], "full")]


@in_virtual_time
async def test_that_a_request_beyond_the_token_budget_runs_alone() -> None:
    q = queue(8, 0.0, max_batch_tokens=100)
    for name, tokens in (("small", 10), ("large", 500), ("last", 10)):
        q.submit(name, tokens)
    assert [items(await q.next_batch()) for _ in range(3)] == [["small"], ["large"], ["last"]]


async def test_that_a_thread_takes_what_joins_while_the_event_loop_submits_and_cancels() -> None:
    """Each request is taken once, or has gone."""
    q: BatchQueue[str] = BatchQueue(Rules(64, 0.0, max_batch_tokens=50))
    taken: list[str] = []
    is_over = threading.Event()

    def take() -> None:
        while not is_over.is_set() or len(q):
            batch = q.take_joining(running=1, tokens=1)
            taken.extend(items(batch) if batch else [])

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        taking = asyncio.create_task(asyncio.to_thread(take))
        futures = {}
        for number in range(3000):
            futures[str(number)] = q.submit(str(number))
            if number % 3 == 0:
                futures[str(number - number % 7)].cancel()
                await asyncio.sleep(0)
        is_over.set()
        await taking
    finally:
        sys.setswitchinterval(interval_s)
    assert len(taken) == len(set(taken))
    assert set(futures) - set(taken) <= {name for name, future in futures.items() if future.cancelled()}


@in_virtual_time
async def test_that_requests_that_join_a_running_batch_find_places_and_tokens() -> None:
    q = queue(4, 0.0, max_batch_tokens=100)
    for name, tokens in (("a", 30), ("b", 30), ("c", 10)):
        q.submit(name, tokens)
    assert q.take_joining(running=4, tokens=0) is None
    assert q.take_joining(running=1, tokens=80) is None
    joined = [q.take_joining(running=1, tokens=60), q.take_joining(running=2, tokens=20)]
    assert [batch and (items(batch), batch.release_reason) for batch in joined] == [
        (["a"], "joined"),
        (["b", "c"], "joined"),
    ]
