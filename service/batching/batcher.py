"""One face for all formations, so that the engine and those who ask need not know which is in force."""

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
    """Takes requests in and hands batches out under the settings in force.

    After a change of formation the one that was left is emptied first: its requests are older, and none is lost.
    """

    def __init__(self, in_force: VersionedSettings, on_formed: Callable[[Batch[Item]], None]) -> None:
        """`on_formed` is told of each batch when it is sealed, which is before it runs."""
        self._on_formed = on_formed
        self._changed = asyncio.Event()
        settings = in_force.settings
        self._late: BatchQueue[Item] = BatchQueue(
            settings.max_batch_size, settings.batch_wait_timeout_s, changed=self._changed
        )
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
        settings = in_force.settings
        self._late.configure(settings.max_batch_size, settings.batch_wait_timeout_s, in_force.version)
        self._early.configure(in_force)

    def submit(self, item: Item) -> asyncio.Future[Any]:
        """Queue `item` for a batch; raises `QueueFullError`. Cancelling the future frees its place."""
        queued = self.waiting + self.formed
        if queued >= self.in_force.settings.max_queued_requests:
            raise QueueFullError(queued, self._retry_after_s(queued))
        return self._active.submit(item)

    async def next_batch(self) -> Batch[Item]:
        """Wait for the next batch; to be called when the engine is free."""
        free_since_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            for formation in (self._left, self._active):
                if batch := formation.take(now_s, free_since_s, more_may_come=formation is self._active):
                    if formation is self._late:
                        batch = replace(batch, formation="continuous" if self._is_continuous else "late")
                        self._on_formed(batch)
                    return batch
            await wait_for_change(self._changed, self._late.deadline_s(free_since_s), now_s)

    def take_joining(self, running: int) -> tuple[Entry[Item], ...]:
        """The oldest requests that may join so many running ones: none unless formation is `continuous`."""
        if not self._is_continuous or self._early.formed:
            return ()
        return self._late.take_up_to(self.in_force.settings.max_batch_size - running)

    def note_run_time(self, seconds: float) -> None:
        """Tell how long a request ran in its batch, from which the time until there is room again is estimated."""
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
        batches_ahead = queued / self.in_force.settings.max_batch_size
        return min(60, max(1, math.ceil(run_s * batches_ahead)))
