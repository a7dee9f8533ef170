"""What happened in one replica since its last report: one record a request, however often it changed."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from service.batching.queue import Batch
from service.messages.clock import monotonic_clock_id
from service.messages.settings import Formation, ReleaseReason
from service.messages.telemetry import BatchRecord, Ledger, ReplicaStatus, RequestRecord

MAX_UNREPORTED = 20_000
"""Bound on what is kept between two reports; beyond it the oldest news is forgotten."""


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


class BatchLog:
    """Numbers the batches of one replica and keeps the records of batches under way."""

    def __init__(self, replica: str, recorder: Recorder) -> None:
        self._replica = replica
        self._recorder = recorder
        self._numbers = itertools.count(1)
        self._open: dict[str, BatchRecord] = {}

    def formed(self, batch: Batch[Any], members: Sequence[str]) -> str:
        """A batch was sealed; returns its id."""
        return self._begin(
            batch.formation, members, batch.cap, batch.rules_version, batch.release_reason, batch.formed_s
        )

    def resumed(self, members: Sequence[str], reason: ReleaseReason, cap: int, version: int) -> str:
        """An open batch goes on with other members; returns the id of this stretch, which begins now."""
        now_s = time.monotonic()
        stretch = self._begin("continuous", members, cap, version, reason, now_s)
        self.note(stretch, started_s=now_s)
        return stretch

    def note(self, id: str, **changes: Any) -> None:
        """Something about a batch under way changed; with `finished_s` it is the last."""
        record = msgspec.structs.replace(self._open[id], **changes)
        self._open[id] = record
        self._recorder.note_batch(record)
        if record.finished_s is not None:
            del self._open[id]

    def _begin(
        self, formation: Formation, members: Sequence[str], cap: int, version: int, reason: ReleaseReason, at_s: float
    ) -> str:
        number = next(self._numbers)
        record = BatchRecord(
            id=f"{self._replica}-b{number}",
            number=number,
            replica=self._replica,
            settings_version=version,
            formation=formation,
            size=len(members),
            cap=cap,
            release_reason=reason,
            formed_s=at_s,
            members=tuple(members),
        )
        self._open[record.id] = record
        self._recorder.note_batch(record)
        return record.id
