"""Both formations behind one face: what becomes of those who wait when one gives way to the other."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

import pytest

from service.batching import batcher
from service.batching.batcher import Batcher
from service.batching.queue import Batch, Entry
from service.messages.settings import Settings, VersionedSettings


class SealedAtOnce:
    """Early formation by script, as Ray's own works in a replica only: each item is a sealed batch of one."""

    waiting = formed = 0

    def __init__(self, in_force: VersionedSettings, on_formed: object) -> None:
        self._sealed: deque[Batch[Any]] = deque()

    def configure(self, in_force: VersionedSettings) -> None:
        pass

    def submit(self, item: object) -> asyncio.Future[Any]:
        entry: Entry[Any] = Entry(item, time.monotonic())
        self._sealed.append(Batch((entry,), "timeout", entry.enqueued_s, 1, 4, "early"))
        return entry.future

    def take(self, now_s: float, free_since_s: float, *, more_may_come: bool = True) -> Batch[Any] | None:
        return self._sealed.popleft() if self._sealed else None


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Batcher[str]:
    monkeypatch.setattr(batcher, "EarlyFormation", SealedAtOnce)
    settings = Settings(formation="late", max_batch_size=4, batch_wait_timeout_s=5)
    return Batcher(VersionedSettings(version=1, settings=settings), on_formed=lambda _: None)


async def test_that_those_who_wait_when_the_formation_changes_are_served_first(late: Batcher[str]) -> None:
    """They are older than all that the other formation gets, and nobody can join them: waiting on would be in vain."""
    late.submit("older")
    late.apply(VersionedSettings(version=2, settings=Settings(formation="early")))
    late.submit("younger")
    batches = [await late.next_batch(), await late.next_batch()]
    assert [entry.item for batch in batches for entry in batch.entries] == ["older", "younger"]
    assert [batch.release_reason for batch in batches] == ["drained", "timeout"]
