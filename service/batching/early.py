"""Early formation: Ray's `@serve.batch` as shipped, kept as the fault to look at.

Ray seals a batch every `batch_wait_timeout_s` whether or not the engine is free (FACTS: seen in Ray 2.60, and its
`max_concurrent_batches` semaphore only holds the sealed batches back). Here the decorated function hands each sealed
batch on at once and the wait for the engine is ours, so that the stage between sealing and running can be seen; when
and how batches are sealed is Ray's alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ray import serve

from service.batching.queue import Batch, Entry
from service.batching.rules import Rules
from service.messages.settings import VersionedSettings

Item = TypeVar("Item")


class EarlyFormation(Generic[Item]):
    """Same face as `BatchQueue`, sealed by Ray."""

    def __init__(self, in_force: VersionedSettings, on_formed: Callable[[Batch[Item]], None]) -> None:
        self._on_formed = on_formed
        self._waiting: dict[Entry[Item], None] = {}
        self._sealed: deque[Batch[Item]] = deque()
        self._sealed_s = 0.0
        self._seal = self._decorated(in_force)
        self._history: deque[tuple[float, VersionedSettings]] = deque([(0.0, in_force)])
        self._rules = Rules.of(in_force.settings)
        self._tasks: set[asyncio.Task[None]] = set()

    def _decorated(self, in_force: VersionedSettings) -> Any:
        @serve.batch(
            max_batch_size=in_force.settings.max_batch_size,
            batch_wait_timeout_s=in_force.settings.longest_wait_s,
        )
        async def seal(entries: list[Entry[Item]]) -> list[None]:
            self._on_sealed(entries)
            return [None] * len(entries)

        return seal

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def formed(self) -> int:
        """Requests in sealed batches that wait for the engine."""
        return sum(not entry.future.done() for batch in self._sealed for entry in batch.entries)

    def configure(self, in_force: VersionedSettings) -> None:
        self._seal.set_max_batch_size(in_force.settings.max_batch_size)
        self._seal.set_batch_wait_timeout_s(in_force.settings.longest_wait_s)
        self._rules = Rules.of(in_force.settings)
        self._history.append((time.monotonic(), in_force))

    def submit(self, item: Item, tokens: int = 1) -> asyncio.Future[Any]:
        entry = Entry(item, time.monotonic(), tokens)
        entry.future.add_done_callback(lambda _: self._waiting.pop(entry, None))
        self._waiting[entry] = None
        task = asyncio.create_task(self._pass_to_ray(entry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return entry.future

    def take(self, now_s: float, free_since_s: float, *, more_may_come: bool = True) -> Batch[Item] | None:
        """The oldest sealed batch, on a tick; entries whose submitter left since it was sealed are still in it."""
        leaves_s = self.deadline_s(free_since_s)
        if leaves_s is None or (more_may_come and now_s < leaves_s):
            return None
        return self._sealed.popleft()

    def deadline_s(self, free_since_s: float) -> float | None:
        """When the oldest sealed batch leaves; ``None`` without one."""
        return self._rules.tick_s(max(self._sealed[0].formed_s, free_since_s)) if self._sealed else None

    async def _pass_to_ray(self, entry: Entry[Item]) -> None:
        try:
            await self._seal(entry)
        except Exception as error:
            entry.fail(error)

    def _on_sealed(self, entries: list[Entry[Item]]) -> None:
        now_s = time.monotonic()
        in_force = self._rules_of_batch_begun_at(max(self._sealed_s, entries[0].enqueued_s))
        self._sealed_s = now_s
        for entry in entries:
            self._waiting.pop(entry, None)
        rules = Rules.of(in_force.settings, in_force.version)
        staying = [entry for entry in entries if not entry.future.done()]  # Ray seals cancelled entries as well
        for members, reason in rules.divided(staying, is_full=len(entries) >= rules.max_batch_size):
            batch = Batch(tuple(members), reason, now_s, rules.version, rules.max_batch_size, "early")
            self._sealed.append(batch)
            self._on_formed(batch)

    def _rules_of_batch_begun_at(self, begun_s: float) -> VersionedSettings:
        """Ray reads the settings when a batch takes its first entry, and keeps them for that batch."""
        while len(self._history) > 1 and self._history[1][0] <= begun_s:
            self._history.popleft()
        return self._history[0][1]
