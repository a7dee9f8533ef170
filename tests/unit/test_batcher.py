"""Both formations behind one face: what becomes of requests that wait when one gives way to the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from service.batching import batcher
from service.batching.batcher import Batcher
from service.batching.queue import Batch, Entry
from service.batching.rules import Rules
from service.messages.settings import Formation, Settings, VersionedSettings


class SealedAtOnce:
    """Early formation by script, as Ray's own works in a replica only: each item is a sealed batch of one."""

    formed = 0

    def __init__(
        self,
        in_force: VersionedSettings,
        on_formed: object,
        clock: Callable[[], float],
        memory_tokens: int,
        changed: asyncio.Event,
    ) -> None:
        self._clock = clock
        self._sealed: deque[Batch[Any]] = deque()

    def configure(self, in_force: VersionedSettings) -> None:
        pass

    def submit(self, item: object, tokens: int = 1) -> asyncio.Future[Any]:
        entry: Entry[Any] = Entry(item, self._clock())
        self._sealed.append(Batch((entry,), "timeout", entry.enqueued_s, 1, 4, "early"))
        return entry.future

    def take(self, now_s: float, free_since_s: float, *, more_may_come: bool = True) -> Batch[Any] | None:
        return self._sealed.popleft() if self._sealed else None

    def deadline_s(self, free_since_s: float) -> float | None:
        return None

    @property
    def waiting(self) -> int:
        return len(self._sealed)

    @property
    def oldest_s(self) -> float | None:
        return self._sealed[0].entries[0].enqueued_s if self._sealed else None


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Batcher[str]:
    monkeypatch.setattr(batcher, "EarlyFormation", SealedAtOnce)
    settings = Settings(formation="late", max_batch_size=4, batch_wait_timeout_s=5)
    return Batcher(VersionedSettings(version=1, settings=settings), on_formed=lambda _: None)


async def test_that_requests_that_wait_when_the_formation_changes_are_served_first(late: Batcher[str]) -> None:
    """They are older than all that the other formation gets, and nobody can join them: waiting on would be in vain."""
    late.submit("older")
    late.apply(VersionedSettings(version=2, settings=Settings(formation="early")))
    late.submit("younger")
    batches = [await late.next_batch()]
    late.free_place()
    batches.append(await late.next_batch())
    assert [entry.item for batch in batches for entry in batch.entries] == ["older", "younger"]
    assert [batch.release_reason for batch in batches] == ["drained", "timeout"]


async def test_that_the_oldest_are_served_first_however_often_the_formation_changes(late: Batcher[str]) -> None:
    """While many batches that were sealed early wait for the engine, it may change to late and back again."""
    formations: tuple[Formation, ...] = ("early", "late", "early", "late")
    for version, formation in enumerate(formations, start=2):
        settings = Settings(formation=formation, max_batch_size=4, batch_wait_timeout_s=5)
        late.apply(VersionedSettings(version=version, settings=settings))
        late.submit(f"{version} a")
        late.submit(f"{version} b")
    served = []
    while late.waiting:
        batch = await late.next_batch()
        served.append([entry.item for entry in batch.entries])
        late.free_place()
    assert served == [["2 a"], ["2 b"], ["3 a", "3 b", "5 a", "5 b"], ["4 a"], ["4 b"]]


async def test_that_as_many_batches_run_at_a_time_as_there_are_places(late: Batcher[str]) -> None:
    settings = Settings(max_batch_size=1, max_concurrent_batches=2)
    late.apply(VersionedSettings(version=2, settings=settings))
    for item in ("first", "second", "third"):
        late.submit(item)
    await late.next_batch()
    await late.next_batch()
    third = asyncio.create_task(late.next_batch())
    await asyncio.sleep(0)
    assert not third.done()
    late.free_place()
    assert [entry.item for entry in (await third).entries] == ["third"]


async def test_that_another_place_is_there_at_once(late: Batcher[str]) -> None:
    late.apply(VersionedSettings(version=2, settings=Settings(max_batch_size=1)))
    late.submit("first")
    late.submit("second")
    await late.next_batch()
    second = asyncio.create_task(late.next_batch())
    await asyncio.sleep(0)
    late.apply(VersionedSettings(version=3, settings=Settings(max_batch_size=1, max_concurrent_batches=2)))
    assert [entry.item for entry in (await second).entries] == ["second"]


PLACES = {"late": 1, "continuous": 2}  # of the 2 of late each has half of the memory


@pytest.mark.parametrize("formation", ["late", "continuous"])
async def test_that_no_more_leave_than_memory_holds_and_the_others_wait(formation: Formation) -> None:
    settings = Settings(formation=formation, max_batch_size=4, batch_wait_timeout_s=0, max_concurrent_batches=2)
    in_force = VersionedSettings(version=1, settings=settings)
    of_memory: Batcher[str] = Batcher(in_force, on_formed=lambda _: None, memory_tokens=200 // PLACES[formation])
    for item in ("a", "b", "c"):
        of_memory.submit(item, tokens=40)
    of_two = [entry.item for entry in (await of_memory.next_batch()).entries]
    assert of_two == ["a", "b"], "100 tokens in each of two batches"
    if formation == "continuous":
        assert of_memory.take_joining(running=2, tokens=80) is None
        joined = of_memory.take_joining(running=1, tokens=40)
        assert joined is not None
        assert ([entry.item for entry in joined.entries], joined.formation) == (["c"], "continuous")


def test_that_of_two_budgets_the_smaller_counts() -> None:
    assert Rules.of(Settings()).max_batch_tokens == 0
    assert Rules.of(Settings(), memory_tokens=100).max_batch_tokens == 100
    assert Rules.of(Settings(max_concurrent_batches=8), memory_tokens=3).max_batch_tokens == 1, "and not without limit"
    assert Rules.of(Settings(max_batch_tokens=50), memory_tokens=100).max_batch_tokens == 50
    assert Rules.of(Settings(max_batch_tokens=200), memory_tokens=100).max_batch_tokens == 100
