"""Early formation, sealed by Ray's own decorator: what becomes of requests that leave before their batch runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from service.batching.batcher import Batcher
from service.batching.queue import Batch
from service.messages.settings import Settings, VersionedSettings
from service.replica.background import start_for_life
from tests.unit.gated_replica import ENOUGH, GatedReplica
from tests.virtual_time import now_s, run_in_virtual_time

pytestmark = pytest.mark.usefixtures("replica_context")

EARLY = Settings(formation="early", max_batch_size=4, batch_wait_timeout_s=0.02, max_queued_requests=64)


@pytest_asyncio.fixture
async def replica(replica_context: None) -> AsyncIterator[GatedReplica]:
    replica = GatedReplica(EARLY)
    yield replica
    await replica.close()


async def test_a_request_that_is_cancelled_before_its_batch_is_sealed_harms_nobody(replica: GatedReplica) -> None:
    gone = await replica.submit("gone")
    stays = await replica.submit("stays")
    replica.generation.give_up(gone)
    replica.allow(ENOUGH)
    await replica.ended()
    assert (gone.state, gone.batch, stays.state) == ("cancelled", None, "done")
    assert replica.engine.batches == [[stays.job.id]]


async def test_a_batch_of_cancelled_requests_is_never_formed(replica: GatedReplica) -> None:
    for request in [await replica.submit() for _ in range(4)]:
        replica.generation.give_up(request)
    stays = await replica.submit("stays")
    replica.allow(ENOUGH)
    await replica.ended()
    assert stays.batch == "r1-b1"


async def test_a_request_that_is_cancelled_in_a_sealed_batch_does_not_run(replica: GatedReplica) -> None:
    runs = await replica.submit("runs")
    await replica.until(lambda: runs.state == "running")
    gone, stays = await replica.submit("gone"), await replica.submit("stays")
    await replica.until(lambda: gone.state == "formed")
    replica.generation.give_up(gone)
    replica.allow(ENOUGH)
    await replica.ended()
    assert (gone.state, gone.started_s, stays.state) == ("cancelled", None, "done")


async def test_what_waits_for_ray_to_seal_it_runs_before_what_comes_to_another_formation() -> None:
    replica = GatedReplica(msgspec.structs.replace(EARLY, batch_wait_timeout_s=5.0))
    old = await replica.submit("old")
    replica.apply(Settings(formation="late", batch_wait_timeout_s=0.0))
    new = await replica.submit("new")
    replica.allow(ENOUGH)
    await replica.ended()
    assert replica.engine.batches == [[old.job.id], [new.job.id]]
    await replica.close()


async def test_a_request_that_ends_as_the_formation_changes_is_in_no_batch(replica: GatedReplica) -> None:
    gone, stays = await replica.submit("gone"), await replica.submit("stays")
    replica.generation.requests.finish(gone, "failed", "Its time is over.")
    replica.apply(Settings(formation="late", batch_wait_timeout_s=0.0))
    replica.allow(ENOUGH)
    await replica.ended()
    assert (gone.state, gone.batch, stays.state) == ("failed", None, "done")


async def test_a_batch_carries_the_settings_that_were_in_force_when_it_began() -> None:
    formed: list[Batch[str]] = []
    sealed = asyncio.Event()

    def on_formed(batch: Batch[str]) -> None:
        formed.append(batch)
        sealed.set()

    batcher: Batcher[str] = Batcher(VersionedSettings(version=1, settings=EARLY), on_formed)
    batcher.submit("begins it")
    batcher.apply(VersionedSettings(version=2, settings=EARLY))
    await sealed.wait()
    sealed.clear()
    batcher.submit("begins the next")
    await sealed.wait()
    assert [batch.rules_version for batch in formed] == [1, 2]


async def test_none_joins_a_running_batch_ahead_of_what_was_sealed_before() -> None:
    batcher: Batcher[str] = Batcher(VersionedSettings(version=1, settings=EARLY), lambda _: None)
    batcher.submit("sealed")
    continuous = Settings(formation="continuous", batch_wait_timeout_s=0.0)
    batcher.apply(VersionedSettings(version=2, settings=continuous))
    batcher.submit("joins")
    assert batcher.take_joining(running=1, tokens=1) is None
    assert [entry.item for entry in (await batcher.next_batch()).entries] == ["sealed"]
    joining = batcher.take_joining(running=1, tokens=1)
    assert joining is not None
    assert [entry.item for entry in joining.entries] == ["joins"]


def test_a_sealed_batch_leaves_before_the_tick_once_all_have_left_it() -> None:
    in_force = VersionedSettings(version=1, settings=Settings(formation="early", max_batch_size=1, stride_s=5.0))

    async def leave_after(seconds: float) -> float:
        sealed = asyncio.Event()
        batcher: Batcher[str] = Batcher(in_force, lambda _: sealed.set(), now_s)
        await asyncio.sleep(0.5)  # past a tick
        waiting = batcher.submit("gone")
        await sealed.wait()
        asyncio.get_running_loop().call_later(seconds, waiting.cancel)
        assert [entry.item for entry in (await batcher.next_batch()).entries] == ["gone"]
        return now_s()

    assert run_in_virtual_time(leave_after(1.0)) == pytest.approx(1.5)


@pytest.mark.parametrize(("before_s", "after_s"), [(0.0, 5.0), (5.0, 0.0)], ids=["comes", "goes"])
def test_that_a_stride_which_changes_holds_no_sealed_batch_up(before_s: float, after_s: float) -> None:
    def settings(version: int, stride_s: float) -> VersionedSettings:
        settings = Settings(formation="early", max_batch_size=2, batch_wait_timeout_s=5.0, stride_s=stride_s)
        return VersionedSettings(version=version, settings=settings)

    async def left_s() -> float:
        batcher: Batcher[str] = Batcher(settings(1, before_s), lambda _: None, now_s)
        await asyncio.sleep(0.5)  # past a tick
        batcher.submit("one")
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, batcher.apply, settings(2, after_s))
        loop.call_later(0.3, batcher.submit, "two")  # with which it is full
        await batcher.next_batch()
        return now_s()

    assert run_in_virtual_time(left_s()) == pytest.approx(0.8)


async def test_a_batch_that_ray_sealed_full_says_so_also_without_requests_that_left() -> None:
    formed: list[Batch[str]] = []
    batcher = Batcher(VersionedSettings(version=1, settings=EARLY), on_formed=formed.append)
    for future in [batcher.submit(item) for item in "abcd"][:3]:
        future.cancel()
    assert await batcher.next_batch() in formed
    assert [([entry.item for entry in batch.entries], batch.release_reason) for batch in formed] == [(["d"], "full")]


async def test_work_that_ends_unexpectedly_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise KeyError("r1-1")

    task = start_for_life(work(), "Running batches")
    await asyncio.wait((task,))
    (record,) = caplog.records
    assert record.getMessage().startswith("Running batches has ended unexpectedly")
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError


async def test_work_that_is_stopped_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    task = start_for_life(asyncio.sleep(60), "Running batches")
    task.cancel()
    await asyncio.wait((task,))
    assert not caplog.records
