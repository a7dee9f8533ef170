"""What happened in one replica since its last report: one record a request, however often it changed."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from service.batching.queue import Batch
from service.messages.clock import monotonic_clock_id
from service.messages.gaps import GAPS_STEP_S, Gaps
from service.messages.objectives import Objectives
from service.messages.telemetry import BatchRecord, Ledger, ReplicaStatus, RequestRecord, TokenGaps
from service.replica.changes import Changes, Listener, TraceContext
from service.replica.metrics import Counts, Tally

logger = logging.getLogger(__name__)

MAX_UNREPORTED = 20_000
"""Bound on what is kept between two reports; beyond it the oldest news is forgotten."""
MAX_UNREPORTED_STEPS = 240
"""The same for times between tokens: a minute of them."""
REPEATED_S = 10.0
"""What was reported within this time is reported again to a hub that was restarted: longer than readers are behind."""


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """From a replica to the hub. Times are on the replica's clock.

    Attributes:
        number: higher than that of the replica's report before.
        sent_s: when the report left.
        counts: all that the replica has counted since it started.
        is_last: the replica leaves as it was asked to, after it has answered all it held.
    """

    number: int
    clock: str
    sent_s: float
    status: ReplicaStatus
    batches: tuple[BatchRecord, ...]
    requests: tuple[RequestRecord, ...]
    gaps: tuple[TokenGaps, ...] = ()
    counts: Counts = Counts()
    is_last: bool = False


class HubAnswer(msgspec.Struct, frozen=True):
    """From the hub to a replica that has reported.

    Attributes:
        life: of the hub, counted from 0; another one has heard nothing of what was reported before.
        interval_s: seconds to gather news in before the next report.
    """

    life: int
    interval_s: float


class Recordable(Protocol):
    """A request that can say at any time what is known of it."""

    def record(self, replica: str) -> RequestRecord: ...


@dataclass
class News:
    """What a report holds: the newest record of each batch by its id, requests, and times between tokens."""

    batches: dict[str, BatchRecord] = field(default_factory=dict)
    requests: dict[Recordable, None] = field(default_factory=dict)
    gaps: tuple[TokenGaps, ...] = ()

    def after(self, older: News) -> News:
        """These and older ones, of which the oldest are forgotten where there are too many."""
        batches, requests = older.batches | self.batches, older.requests | self.requests
        return News(
            batches=dict(list(batches.items())[-MAX_UNREPORTED:]),
            requests=dict.fromkeys(list(requests)[-MAX_UNREPORTED:]),
            gaps=(older.gaps + self.gaps)[-MAX_UNREPORTED_STEPS:],
        )


class Recorder:
    """Collects the news of one replica until the hub has them, in memory that is bounded, and numbers its batches.

    What a report holds is kept until that is acknowledged, else the next report holds it again. Records can be repeated
    without harm, since a later one of the same id takes the place of the earlier one; of times between tokens a reader
    knows by their time which it has.

    Attributes:
        batches: the newest record of each batch of which there is news since the last report, by the batch's id.
        listeners: are called with what has changed before each report.
    """

    def __init__(self, replica: str, objectives: Objectives | None = None) -> None:
        """With the objectives of the deployment, where it has some."""
        self.ledger = Ledger()
        self.news = asyncio.Event()
        self.batches: dict[str, BatchRecord] = {}
        self.listeners: list[Listener] = []
        self._replica = replica
        self._tally = Tally(objectives)
        self._waited_s: deque[float] = deque(maxlen=MAX_UNREPORTED)
        self._contexts: dict[str, TraceContext] = {}  # of requests that have not ended
        self._requests: dict[Recordable, None] = {}
        self._gaps: deque[TokenGaps] = deque(maxlen=MAX_UNREPORTED_STEPS)
        self._gaps_end_s = 0.0  # of the newest step
        self._batch_numbers = itertools.count(1)
        self._under_way: dict[str, BatchRecord] = {}
        self._sent: News | None = None  # and not acknowledged
        self._sent_s = 0.0
        self._sent_number = 0
        self._acknowledged: deque[tuple[float, News]] = deque()  # of late, with the time of the report

    def count(self, **counts: int) -> None:
        """Add to the ledger."""
        sums = {name: getattr(self.ledger, name) + count for name, count in counts.items()}
        self.ledger = msgspec.structs.replace(self.ledger, **sums)

    def note_request(self, request: Recordable) -> None:
        self._requests[request] = None
        if len(self._requests) > MAX_UNREPORTED:
            del self._requests[next(iter(self._requests))]
        self.news.set()

    def note_trace_context(self, request: str, context: TraceContext) -> None:
        """The request with that id, which is noted next, came by HTTP with this context."""
        self._contexts[request] = context

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
        if batch.entries:  # else requests have left a batch that goes on, and none has waited
            self._waited_s.append(batch.formed_s - batch.entries[0].enqueued_s)
        self.note_batch(record)
        return record.id

    def change_batch(self, id: str, **changes: Any) -> None:
        """Something about a batch under way changed; with `finished_s` it is the last."""
        record = msgspec.structs.replace(self._under_way[id], **changes)
        self._under_way[id] = record
        self.note_batch(record)
        if record.finished_s is not None:
            del self._under_way[id]

    def report(self, status: ReplicaStatus, *, is_last: bool = False) -> ReplicaReport:
        """All news that were not acknowledged, and the replica's status."""
        news = News(self.batches, self._requests, self.take_gaps(status.at_s))
        records = {request: request.record(self._replica) for request in news.requests}
        self._pass_on(Changes(tuple(news.batches.values()), tuple(records.values()), news.gaps), status)
        self._sent = news = news if self._sent is None else news.after(self._sent)
        self._sent_s = status.at_s
        self._sent_number += 1
        self.batches, self._requests = {}, {}
        self.news.clear()
        return ReplicaReport(
            number=self._sent_number,
            clock=monotonic_clock_id(),
            sent_s=status.at_s,
            status=status,
            batches=tuple(news.batches.values()),
            requests=tuple(records.get(request) or request.record(self._replica) for request in news.requests),
            gaps=news.gaps,
            counts=self._tally.counts(),
            is_last=is_last,
        )

    def _pass_on(self, changes: Changes, status: ReplicaStatus) -> None:
        """Count the changes, with what is known of them beside the records, and hand them to the listeners."""
        ended = [each.id for each in changes.ended_requests if each.id in self._contexts]
        contexts = {request: self._contexts.pop(request) for request in ended}
        changes = replace(changes, waited_s=tuple(self._waited_s), contexts=contexts)
        self._waited_s.clear()
        self._tally.add(changes)
        for listener in list(self.listeners):
            try:
                listener(changes, status)
            except Exception:  # what looks on must not end the replica's reports
                logger.exception("%s has failed and hears no more", type(listener).__name__)
                self.listeners.remove(listener)

    def acknowledge(self, number: int) -> None:
        """The hub has the report of that number, which is to be the last: a later one holds more."""
        if self._sent is not None and number == self._sent_number:
            self._acknowledged.append((self._sent_s, self._sent))
            self._sent = None
            while self._sent_s - self._acknowledged[0][0] > REPEATED_S:
                self._acknowledged.popleft()

    def repeat(self) -> None:
        """The hub has been restarted: what the one before received of late, its readers may not have received."""
        for _, news in reversed(self._acknowledged):
            self._sent = news if self._sent is None else self._sent.after(news)
        self._acknowledged.clear()
        self._sent_number += 1  # a report that is under way holds none of these
