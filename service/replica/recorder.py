"""What happened in one replica since it was last asked; as many changes to a request as there are, one record."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from service.messages.clock import monotonic_clock_id
from service.messages.telemetry import BatchRecord, Ledger, ReplicaStatus, RequestRecord

MAX_UNREPORTED = 20_000
"""Bound on what is kept while nobody asks; beyond it the oldest news is forgotten."""


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """From a replica to the hub. Times are on the replica's clock; `sent_s` is when the report left."""

    clock: str
    sent_s: float
    status: ReplicaStatus
    batches: tuple[BatchRecord, ...]
    requests: tuple[RequestRecord, ...]


class Recordable(Protocol):
    """A request that can say at any time what is known of it."""

    def record(self, replica: str) -> RequestRecord: ...


class Recorder:
    """Collects the news of one replica between two reports, in memory that is bounded."""

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._requests: dict[Recordable, None] = {}
        self._batches: dict[str, BatchRecord] = {}
        self._ledger = Ledger()
        self.news = asyncio.Event()

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    def count(self, **counts: int) -> None:
        """Add to the ledger."""
        sums = {name: getattr(self._ledger, name) + count for name, count in counts.items()}
        self._ledger = msgspec.structs.replace(self._ledger, **sums)

    def note_request(self, request: Recordable) -> None:
        self._requests[request] = None
        if len(self._requests) > MAX_UNREPORTED:
            del self._requests[next(iter(self._requests))]
        self.news.set()

    def note_batch(self, record: BatchRecord) -> None:
        self._batches[record.id] = record
        if len(self._batches) > MAX_UNREPORTED:
            del self._batches[next(iter(self._batches))]
        self.news.set()

    def report(self, status: ReplicaStatus) -> ReplicaReport:
        """All news since the last report, and the replica's status."""
        report = ReplicaReport(
            clock=monotonic_clock_id(),
            sent_s=status.at_s,
            status=status,
            batches=tuple(self._batches.values()),
            requests=tuple(request.record(self._replica) for request in self._requests),
        )
        self._batches.clear()
        self._requests.clear()
        self.news.clear()
        return report
