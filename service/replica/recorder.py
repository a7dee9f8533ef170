"""What happened in one replica since its last report: one record a request, however often it changed."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from service.batching.queue import Batch
from service.messages.clock import monotonic_clock_id
from service.messages.gaps import GAPS_STEP_S, Gaps
from service.messages.telemetry import BatchRecord, Ledger, ReplicaStatus, RequestRecord, TokenGaps

MAX_UNREPORTED = 20_000
"""Bound on what is kept between two reports; beyond it the oldest news is forgotten."""
MAX_UNREPORTED_STEPS = 240
"""The same for times between tokens: a minute of them."""


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """From a replica to the hub. Times are on the replica's clock; `sent_s` is when the report left."""

    clock: str
    sent_s: float
    status: ReplicaStatus
    batches: tuple[BatchRecord, ...]
    requests: tuple[RequestRecord, ...]
    gaps: tuple[TokenGaps, ...] = ()


class Recordable(Protocol):
    """A request that can say at any time what is known of it."""

    def record(self, replica: str) -> RequestRecord: ...


class Recorder:
    """Collects the news of one replica between two reports, in memory that is bounded, and numbers its batches.

    Attributes:
        batches: the newest record of each batch of which there is news since the last report, by the batch's id.
    """

    def __init__(self, replica: str) -> None:
        self.ledger = Ledger()
        self.news = asyncio.Event()
        self.batches: dict[str, BatchRecord] = {}
        self._replica = replica
        self._requests: dict[Recordable, None] = {}
        self._gaps: deque[TokenGaps] = deque(maxlen=MAX_UNREPORTED_STEPS)
        self._gaps_end_s = 0.0  # of the newest step
        self._batch_numbers = itertools.count(1)
        self._under_way: dict[str, BatchRecord] = {}

    def count(self, **counts: int) -> None:
        """Add to the ledger."""
        sums = {name: getattr(self.ledger, name) + count for name, count in counts.items()}
        self.ledger = msgspec.structs.replace(self.ledger, **sums)

    def note_request(self, request: Recordable) -> None:
        self._requests[request] = None
        if len(self._requests) > MAX_UNREPORTED:
            del self._requests[next(iter(self._requests))]
        self.news.set()

    def note_batch(self, record: BatchRecord) -> None:
        self.batches[record.id] = record
        if len(self.batches) > MAX_UNREPORTED:
            del self.batches[next(iter(self.batches))]
        self.news.set()

    def note_gap(self, request: str, gap_s: float, at_s: float) -> None:
        """The request with that id got a token at `at_s`, `gap_s` after the one before."""
        if not self._gaps or at_s >= self._gaps_end_s:
            self._gaps_end_s = (at_s // GAPS_STEP_S + 1) * GAPS_STEP_S
            step = TokenGaps(replica=self._replica, at_s=at_s, longest_at_s=at_s, request=request, gaps=Gaps())
            self._gaps.append(step)
        newest = self._gaps[-1]
        longest = {"longest_at_s": at_s, "request": request} if gap_s > newest.gaps.longest_s else {}
        newest.gaps.add(gap_s)
        self._gaps[-1] = msgspec.structs.replace(newest, at_s=at_s, **longest)

    def take_gaps(self, at_s: float) -> tuple[TokenGaps, ...]:
        """The times between tokens of the steps that are over at `at_s`, each step once: four reports a second."""
        over = [gaps for gaps in self._gaps if gaps.at_s // GAPS_STEP_S < at_s // GAPS_STEP_S]
        for _ in over:
            self._gaps.popleft()
        return tuple(over)

    def begin_batch(self, batch: Batch[Any], members: Sequence[str]) -> str:
        """A batch was formed of the requests with these ids; returns its own."""
        number = next(self._batch_numbers)
        record = BatchRecord(
            id=f"{self._replica}-b{number}",
            number=number,
            replica=self._replica,
            settings_version=batch.rules_version,
            formation=batch.formation,
            size=len(members),
            cap=batch.cap,
            release_reason=batch.release_reason,
            formed_s=batch.formed_s,
            members=tuple(members),
        )
        self._under_way[record.id] = record
        self.note_batch(record)
        return record.id

    def change_batch(self, id: str, **changes: Any) -> None:
        """Something about a batch under way changed; with `finished_s` it is the last."""
        record = msgspec.structs.replace(self._under_way[id], **changes)
        self._under_way[id] = record
        self.note_batch(record)
        if record.finished_s is not None:
            del self._under_way[id]

    def report(self, status: ReplicaStatus) -> ReplicaReport:
        """All news since the last report, and the replica's status."""
        report = ReplicaReport(
            clock=monotonic_clock_id(),
            sent_s=status.at_s,
            status=status,
            batches=tuple(self.batches.values()),
            requests=tuple(request.record(self._replica) for request in self._requests),
            gaps=self.take_gaps(status.at_s),
        )
        self.batches.clear()
        self._requests.clear()
        self.news.clear()
        return report
