"""One interface for all formations, so that neither engine nor clients need to know which is in force."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from service.batching.early import EarlyFormation
from service.batching.queue import Batch, BatchQueue, Entry, wait_for_change
from service.batching.rules import Rules
from service.messages.settings import VersionedSettings

Item = TypeVar("Item")


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

    def __init__(self, in_force: VersionedSettings, on_formed: Callable[[Batch[Item]], None]) -> None:
        """`on_formed` is called with each batch when it is sealed, which is before it runs."""
        self._on_formed = on_formed
        self._changed = asyncio.Event()
        self._running = 0
        self._late: BatchQueue[Item] = BatchQueue(Rules.of(in_force.settings), changed=self._changed)
        self._early: EarlyFormation[Item] = EarlyFormation(in_force, self._on_sealed_early)
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
        self._late.configure(Rules.of(in_force.settings, in_force.version))
        self._early.configure(in_force)

    def submit(self, item: Item, tokens: int = 1) -> asyncio.Future[Any]:
        """Queue `item`, which needs so many tokens, for a batch; raises `QueueFullError`.

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
            now_s, deadline_s = time.monotonic(), None
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
        for formation in (self._left, self._active):
            if batch := formation.take(now_s, free_since_s, more_may_come=formation is self._active):
                if formation is self._late:
                    batch = replace(batch, formation="continuous" if self._is_continuous else "late")
                    self._on_formed(batch)
                return batch
        return None

    def take_joining(self, running: int, tokens: int) -> tuple[Entry[Item], ...]:
        """The oldest requests that may join so many running ones with so many tokens; none unless `continuous`."""
        if not self._is_continuous or self._early.formed:
            return ()
        return self._late.take_joining(running, tokens)

    def note_run_time(self, seconds: float) -> None:
        """A request ran so long in its batch; the `Retry-After` of a refusal is estimated from it."""
        self._recent_run_s.append(seconds)

    def _on_sealed_early(self, batch: Batch[Item]) -> None:
        self._on_formed(batch)
        self._changed.set()

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
