"""One interface for all formations, Ray's among them: neither engine nor clients need to know which is in force."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from service.batching.queue import Batch, BatchQueue, Entry, wait_for_change
from service.batching.rules import Rules
from service.messages.settings import VersionedSettings

Item = TypeVar("Item")

SEALED_S: Final = 60.0  # after its wait, within which Ray has sealed a batch even in a replica that stood still


class QueueFullError(Exception):
    """The queue holds `max_queued_requests`; `retry_after_s` is about when there will be room."""

    def __init__(self, queued: int, retry_after_s: int) -> None:
        super().__init__(
            f"{queued} requests are waiting already, as many as max_queued_requests allows. "
            f"Try again in {retry_after_s} s."
        )
        self.retry_after_s = retry_after_s


class Batcher(Generic[Item]):
    """Takes requests in and hands batches out under the settings in force, to as many places as these allow.

    After a change of formation the one that was left is emptied first: its requests are older, and none is lost.
    """

    def __init__(
        self,
        in_force: VersionedSettings,
        on_formed: Callable[[Batch[Item]], None],
        clock: Callable[[], float] = time.monotonic,
        memory_tokens: int = 0,
    ) -> None:
        """Begin with an empty queue.

        Args:
            on_formed: is called with each batch when it is sealed, which is before it runs.
            clock: gives seconds.
            memory_tokens: what the engine's memory holds; requests wait in the queue for it. 0 where that is not known.
        """
        self._on_formed = on_formed
        self._clock = clock
        self._memory_tokens = memory_tokens
        self._changed = asyncio.Event()
        self._running = 0
        self._late: BatchQueue[Item] = BatchQueue(Rules.of(in_force.settings), clock=clock, changed=self._changed)
        self._early: EarlyFormation[Item] = EarlyFormation(in_force, on_formed, clock, memory_tokens, self._changed)
        self._recent_run_s: deque[float] = deque(maxlen=8)
        self.apply(in_force)

    @property
    def waiting(self) -> int:
        return len(self._late) + self._early.waiting

    @property
    def formed(self) -> int:
        return self._early.formed

    def apply(self, in_force: VersionedSettings) -> None:
        """Put settings in force for all batches formed from now on."""
        self.in_force = in_force
        self._late.configure(Rules.of(in_force.settings, in_force.version, self._memory_tokens))
        self._early.configure(in_force)

    def submit(self, item: Item, tokens: int = 1) -> asyncio.Future[Any]:
        """Queue `item`, which needs `tokens`, for a batch; raises `QueueFullError`.

        Cancelling the future frees its place.
        """
        queued = self.waiting + self.formed
        if queued >= self.in_force.settings.max_queued_requests:
            raise QueueFullError(queued, self._retry_after_s(queued))
        return self._active.submit(item, tokens)

    async def next_batch(self) -> Batch[Item]:
        """Wait for the next batch, and for a place where it can run; `free_place` gives that back."""
        free_since_s = math.inf
        while True:
            now_s, deadline_s = self._clock(), None
            if self._running < self.in_force.settings.places:
                free_since_s = min(free_since_s, now_s)
                if batch := self._take(now_s, free_since_s):
                    self._running += 1
                    return batch
                deadline_s = self._active.deadline_s(free_since_s)
            await wait_for_change(self._changed, deadline_s, now_s)

    def free_place(self) -> None:
        """A batch that was handed out has run."""
        self._running -= 1
        self._changed.set()

    def _take(self, now_s: float, free_since_s: float) -> Batch[Item] | None:
        """A batch of the formation whose requests are the oldest.

        Where requests of both wait, since the formation has changed, the older leave at once: waiting for others would
        keep the later ones waiting too. After several changes either may have the older ones.
        """
        oldest_s = [(each.oldest_s, each) for each in (self._left, self._active)]
        waiting = [(at_s, each) for at_s, each in oldest_s if at_s is not None]
        for _, formation in sorted(waiting, key=itemgetter(0)):
            more_may_come = formation is self._active and len(waiting) == 1
            if batch := formation.take(now_s, free_since_s, more_may_come=more_may_come):
                if formation is self._late:
                    batch = replace(batch, formation="continuous" if self._is_continuous else "late")
                    self._on_formed(batch)
                return batch
        return None

    def take_joining(self, running: int, tokens: int) -> Batch[Item] | None:
        """The oldest requests that may join `running` ones, which need `tokens`; ``None`` where none may.

        Any thread may call it. None joins unless in `continuous`, and while batches wait that were sealed before it.
        """
        if not self._is_continuous or self._early.has_sealed:
            return None
        joining = self._late.take_joining(running, tokens)
        return None if joining is None else replace(joining, formation="continuous")

    def note_run_time(self, seconds: float) -> None:
        """A request ran for `seconds` in its batch; the `Retry-After` of a refusal is estimated from it."""
        self._recent_run_s.append(seconds)

    @property
    def _active(self) -> BatchQueue[Item] | EarlyFormation[Item]:
        return self._early if self.in_force.settings.formation == "early" else self._late

    @property
    def _left(self) -> BatchQueue[Item] | EarlyFormation[Item]:
        return self._late if self.in_force.settings.formation == "early" else self._early

    @property
    def _is_continuous(self) -> bool:
        return self.in_force.settings.formation == "continuous"

    def _retry_after_s(self, queued: int) -> int:
        run_s = sum(self._recent_run_s) / len(self._recent_run_s) if self._recent_run_s else 1.0
        batches_ahead = queued / (self.in_force.settings.max_batch_size * self.in_force.settings.places)
        return min(60, max(1, math.ceil(run_s * batches_ahead)))


class EarlyFormation(Generic[Item]):
    """Same face as `BatchQueue`, but batches are Ray's `@serve.batch` as shipped, kept as the fault to look at.

    Ray seals a batch every `batch_wait_timeout_s` whether or not the engine is free (FACTS: seen in Ray 2.60, and its
    `max_concurrent_batches` semaphore only holds the sealed batches back). Here the decorated function hands each
    sealed batch on at once and the wait for the engine is ours, so that the stage between sealing and running can be
    seen; when and how batches are sealed is Ray's alone.
    """

    def __init__(
        self,
        in_force: VersionedSettings,
        on_formed: Callable[[Batch[Item]], None],
        clock: Callable[[], float],
        memory_tokens: int,
        changed: asyncio.Event,
    ) -> None:
        self._memory_tokens = memory_tokens
        self._changed = changed
        self._on_formed = on_formed
        self._clock = clock
        self._waiting: dict[Entry[Item], None] = {}
        self._sealed: deque[tuple[Batch[Item], Rules]] = deque()  # each with the rules that it began under
        self._sealed_s = 0.0

        from ray import serve  # not above: to import this module takes no Ray

        @serve.batch(
            max_batch_size=in_force.settings.max_batch_size,
            batch_wait_timeout_s=in_force.settings.longest_wait_s,
        )
        async def seal(entries: list[Entry[Item]]) -> list[None]:
            self._on_sealed(entries)
            return [None] * len(entries)

        self._seal: Any = seal
        self._history: deque[tuple[float, VersionedSettings]] = deque([(0.0, in_force)])
        self._rules = Rules.of(in_force.settings)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def formed(self) -> int:
        """Requests in sealed batches that wait for the engine."""
        return sum(not entry.future.done() for batch, _ in self._sealed for entry in batch.entries)

    @property
    def oldest_s(self) -> float | None:
        """When the oldest request in a sealed batch came; ``None`` without one."""
        return self._sealed[0][0].entries[0].enqueued_s if self._sealed else None

    @property
    def has_sealed(self) -> bool:
        """Whether a batch waits for the engine; any thread may ask."""
        return bool(self._sealed)

    def configure(self, in_force: VersionedSettings) -> None:
        if in_force.settings.formation != "early" and self._waiting:
            self._on_sealed(list(self._waiting))  # not when Ray would: it is older than all that comes elsewhere
        self._seal.set_max_batch_size(in_force.settings.max_batch_size)
        self._seal.set_batch_wait_timeout_s(in_force.settings.longest_wait_s)
        self._rules = Rules.of(in_force.settings)
        now_s = self._clock()
        self._history.append((now_s, in_force))
        while self._history[1][0] + self._history[0][1].settings.longest_wait_s < now_s - SEALED_S:
            self._history.popleft()

    def submit(self, item: Item, tokens: int = 1) -> asyncio.Future[Any]:
        entry = Entry(item, self._clock(), tokens)
        entry.future.add_done_callback(lambda future: self._on_end(entry, has_left=future.cancelled()))
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
        return self._sealed.popleft()[0]

    def deadline_s(self, free_since_s: float) -> float | None:
        """When the oldest sealed batch leaves; ``None`` without one.

        A stride that has changed since it began lets it leave sooner and never later. One that all have left holds
        nobody up.
        """
        if not self._sealed:
            return None
        oldest, began_under = self._sealed[0]
        ready_s = max(oldest.formed_s, free_since_s)
        if all(entry.future.done() for entry in oldest.entries):
            return ready_s
        return min(rules.tick_s(ready_s) for rules in (began_under, self._rules))

    def _on_end(self, entry: Entry[Item], *, has_left: bool) -> None:
        self._waiting.pop(entry, None)
        if has_left:  # its batch may be empty now, and then leaves at once
            self._changed.set()

    async def _pass_to_ray(self, entry: Entry[Item]) -> None:
        try:
            await self._seal(entry)
        except Exception as error:
            entry.fail(error)

    def _on_sealed(self, entries: list[Entry[Item]]) -> None:
        now_s = self._clock()
        in_force = self._rules_of_batch_begun_at(max(self._sealed_s, entries[0].enqueued_s))
        self._sealed_s = now_s
        rules = Rules.of(in_force.settings, in_force.version, self._memory_tokens)
        # Ray seals those that have left as well, and one that leaves at this moment is still known as waiting.
        staying = [entry for entry in entries if entry in self._waiting and not entry.future.done()]
        for entry in staying:
            del self._waiting[entry]
        for members, reason in rules.divided(staying, is_full=len(entries) >= rules.max_batch_size):
            batch = Batch(tuple(members), reason, now_s, rules.version, rules.max_batch_size, "early")
            self._sealed.append((batch, rules))
            self._on_formed(batch)
            self._changed.set()

    def _rules_of_batch_begun_at(self, begun_s: float) -> VersionedSettings:
        """Ray reads the settings when a batch takes its first entry, and keeps them for that batch."""
        while len(self._history) > 1 and self._history[1][0] <= begun_s:
            self._history.popleft()
        return self._history[0][1]
