"""Late formation: a queue from which the engine pulls its next batch when it is free.

A batch grows until the moment it starts, so it never waits sealed behind a running one. The module and its rules know
neither Ray nor torch; take them into a service of your own:

    queue = BatchQueue(Rules(max_batch_size=16, batch_wait_timeout_s=0.05))

    async def serve():                        # one task an engine
        while True:
            batch = await queue.next_batch()
            for entry, answer in zip(batch.entries, await run([e.item for e in batch.entries])):
                entry.answer(answer)

    answer = await queue.submit(item)         # cancel it, and its place in the queue is free at once
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from service.batching.rules import ReleaseReason, Rules

Item = TypeVar("Item")


@dataclass(eq=False, slots=True)
class Entry(Generic[Item]):
    """An item in the queue and the future its submitter waits for."""

    item: Item
    enqueued_s: float  # on the queue's clock
    tokens: int = 1  # that it counts for in a batch
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def answer(self, result: object) -> None:
        """Resolve the future, unless its submitter has gone."""
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(frozen=True, eq=False, slots=True)
class Batch(Generic[Item]):
    """Entries that run together; two batches are never equal.

    Attributes:
        release_reason: `full` (it could hold no more), `timeout` (the wait for more was over) or `drained`
            (there is no wait, and nothing more waited); `joined` or `left` where that changed a running batch.
        rules_version: number of the rules it was formed under, as given to `configure`.
        cap: the `max_batch_size` of these rules.
    """

    entries: tuple[Entry[Item], ...]
    release_reason: ReleaseReason
    formed_s: float
    rules_version: int
    cap: int
    formation: Literal["late", "early", "continuous"] = "late"


class BatchQueue(Generic[Item]):
    """First in, first out; deadlines on a monotonic clock.

    A batch is released when it is full, or when the engine was free with an entry waiting for `batch_wait_timeout_s`,
    whichever comes first. Time spent behind a running batch does not count: with it, users that ask again as soon as
    they are answered stay in the groups they once fell into, each group leaving before the other can come back.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        clock: Callable[[], float] = time.monotonic,
        changed: asyncio.Event | None = None,
    ) -> None:
        self._clock = clock
        self._changed = changed or asyncio.Event()
        self._entries: dict[Entry[Item], None] = {}  # ordered, and any entry can leave in O(1)
        self._lock = threading.Lock()  # of the entries, for `take_joining`
        self.configure(rules)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def oldest_s(self) -> float | None:
        """When the oldest entry came; ``None`` without one."""
        with self._lock:
            return next((entry.enqueued_s for entry in self._entries), None)

    def configure(self, rules: Rules) -> None:
        """Rules for every batch released from now on."""
        self._rules = rules
        self._changed.set()

    def submit(self, item: Item, tokens: int = 1, future: asyncio.Future[Any] | None = None) -> asyncio.Future[Any]:
        """Queue `item`; the future is resolved by the runner of its batch. Cancelling it takes the item out.

        Args:
            future: of the item, where it has one already.
        """
        entry = Entry(item, self._clock(), tokens, *([] if future is None else [future]))
        entry.future.add_done_callback(lambda _: self._drop(entry))
        with self._lock:
            self._entries[entry] = None
        self._changed.set()
        return entry.future

    def take_joining(self, running: int, tokens: int) -> Batch[Item] | None:
        """The oldest entries that may join `running` ones, which need `tokens`, at once; ``None`` where none may.

        Any thread may call it: an engine asks between two steps, and would otherwise wait for the event loop.
        """
        with self._lock:
            rules = self._rules
            entries = self._take(rules.fitting(self._entries, running, tokens)[0])
        return Batch(entries, "joined", self._clock(), rules.version, rules.max_batch_size) if entries else None

    async def next_batch(self, is_free: Callable[[], bool] = lambda: True) -> Batch[Item]:
        """Wait for the next batch. Safe to cancel: nothing leaves the queue unless the batch is returned.

        Args:
            is_free: whether the engine has a place for a batch; `changed` is set where that changes.
        """
        free_since_s = math.inf
        while True:
            now_s, deadline_s = self._clock(), None
            if is_free():
                free_since_s = min(free_since_s, now_s)
                if batch := self.take(now_s, free_since_s):
                    return batch
                deadline_s = self.deadline_s(free_since_s)
            await wait_for_change(self._changed, deadline_s, now_s)

    def take(self, now_s: float, free_since_s: float, *, more_may_come: bool = True) -> Batch[Item] | None:
        """The batch that the rules release at `now_s`, if any, to an engine that is free since `free_since_s`.

        Where no more may come, because nothing is submitted here any longer, there is nothing to wait for.
        """
        with self._lock:
            while release := self._rules.release(self._entries, free_since_s):
                if more_may_come and now_s < release.at_s:
                    return None
                reason = release.reason if more_may_come or release.reason == "full" else "drained"
                assert release.size <= self._rules.max_batch_size, f"{release.size} released at a cap of {self._rules}"
                if entries := self._take(release.size):
                    return Batch(entries, reason, now_s, self._rules.version, self._rules.max_batch_size)
        return None

    def deadline_s(self, free_since_s: float) -> float | None:
        """When a batch is released if no entry comes or goes; ``None`` while the queue is empty."""
        with self._lock:
            release = self._rules.release(self._entries, free_since_s)
        return None if release is None else release.at_s

    def _drop(self, entry: Entry[Item]) -> None:
        with self._lock:
            self._entries.pop(entry, None)

    def _take(self, count: int) -> tuple[Entry[Item], ...]:
        """The oldest entries, without those that are cancelled at this moment; to be called with the lock held."""
        entries = tuple(itertools.islice(self._entries, count))
        for entry in entries:
            del self._entries[entry]
        return tuple(entry for entry in entries if not entry.future.done())


async def wait_for_change(changed: asyncio.Event, deadline_s: float | None, now_s: float) -> None:
    """Return when `changed` is set or the deadline has passed, whichever comes first."""
    changed.clear()
    with suppress(TimeoutError):
        async with asyncio.timeout(None if deadline_s is None else max(0.0, deadline_s - now_s)):
            await changed.wait()
