"""A recording as a trace in the Trace Event Format, which Perfetto and `chrome://tracing` open.

A replica is a process of the trace. Its batches are slices of a thread, of several where they run at a time; its
requests are nestable asynchronous slices with their stages in them; the depth of its queue is a counter. The load
generator is a process too. Changes of settings, bookmarks and ends of replicas are marks across all of them. Times are
microseconds since the recording's beginning. Prompts and answers are left out.

Events are made as the recording is read: of it no more is held than what has not ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

import msgspec

from service.analysis.observed.descriptions import describe_change
from service.analysis.observed.stages import stages_of
from service.analysis.recording.format import (
    LONGEST_S,
    Bookmarked,
    ClockJumped,
    Entry,
    RecordingHeader,
    ServiceEnded,
    ServiceStarted,
)
from service.messages.load import ClientRequest, LoadFrame
from service.messages.telemetry import FINAL_STATES, BatchRecord, ReplicaStatus, RequestRecord, TelemetryFrame
from service.messages.workload import TEXT

Event: TypeAlias = dict[str, Any]

SUFFIX: Final = ".json"
MOST_TOLD: Final = 100_000
"""Ids of what has ended that are kept: a hub that was restarted reports again what came within seconds."""
MARKS, LOAD, FIRST_REPLICA = 1, 2, 3
"""Numbers of the processes of the trace."""


def trace_file(header: RecordingHeader, entries: Iterable[Entry]) -> Iterator[bytes]:
    """The pieces of the trace's file, a line an event, in the format's form of an object."""
    about = {"recorded_at": header.recorded_at, "program_version": header.program_version, "model": header.model}
    yield b'{"displayTimeUnit":"ms","otherData":%b,"traceEvents":[\n' % msgspec.json.encode(about)
    separator = b""
    for event in trace_events(header, entries):
        yield separator + msgspec.json.encode(event)
        separator = b",\n"
    yield b"\n]}\n"


def trace_events(header: RecordingHeader, entries: Iterable[Entry]) -> Iterator[Event]:
    """The events of the trace, each once all of it is known, so not in the order of their times."""
    trace = _Trace(header)
    yield _name("process_name", MARKS, 0, "Marks")
    yield _name("process_name", LOAD, 0, "Load generator")
    for entry in entries:
        yield from trace.of(entry)
    yield from trace.end()


def _name(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": {"name": name}}


@dataclass
class _Ended:
    """Ids of what has ended, of which the oldest are forgotten."""

    ids: dict[str, None] = field(default_factory=dict)

    def add(self, id: str) -> None:
        self.ids[id] = None
        if len(self.ids) > MOST_TOLD:
            del self.ids[next(iter(self.ids))]


@dataclass
class _Replica:
    """A replica's process.

    Attributes:
        unit: of its tokens, from which the names of its stages follow.
        free_us: of each of its threads, when its latest batch ended; infinite while that runs.
        threads: of the batches that run, by their ids.
    """

    process: int
    unit: str = TEXT.unit
    free_us: list[float] = field(default_factory=list)
    threads: dict[str, int] = field(default_factory=dict)

    def thread(self, batch: str, started_us: int) -> int:
        """The thread of a batch: the first that is free when the batch starts. They count from 1."""
        if batch not in self.threads:
            free = (place for place, free_us in enumerate(self.free_us) if free_us <= started_us)
            place = next(free, len(self.free_us))
            self.free_us[place : place + 1] = [float("inf")]
            self.threads[batch] = place + 1
        return self.threads[batch]

    def free(self, batch: str, ended_us: int) -> None:
        self.free_us[self.threads.pop(batch) - 1] = ended_us


class _Trace:
    """What of a recording that is being read has not ended yet."""

    def __init__(self, header: RecordingHeader) -> None:
        self._header = header
        self._now_s = header.at_s  # on the recorder's clock
        self._ahead_s = 0.0  # of the recorder's clock before the service's
        self._service: str | None = None
        self._services = 0
        self._processes = FIRST_REPLICA
        self._sent: dict[str, ClientRequest] = {}
        self._forget()

    def _forget(self) -> None:
        """Another service: its ids begin anew."""
        self._replicas: dict[str, _Replica] = {}
        self._batches: dict[str, BatchRecord] = {}
        self._requests: dict[str, RequestRecord] = {}
        self._ended = _Ended()

    def of(self, entry: Entry) -> Iterator[Event]:
        """The events that are known with this entry."""
        self._now_s = entry.at_s
        match entry.event:
            case TelemetryFrame() as frame:
                yield from self._of_frame(frame)
            case LoadFrame() as load:
                yield from self._of_load(load)
            case ServiceStarted(ready=ready):
                yield self._mark("The service began to answer", self._us(entry.at_s), {"url": ready.url})
            case ServiceEnded(reason=reason):
                yield from self._end_service(self._us(entry.at_s))
                yield self._mark(reason or "The service was stopped", self._us(entry.at_s), {})
            case ClockJumped(jump=jump):
                yield self._mark("The time of day jumped", self._service_us(jump.end_s), {})
            case Bookmarked() as note:
                yield self._mark(note.text, self._service_us(note.start_s), {"seconds": note.end_s - note.start_s})

    def end(self) -> Iterator[Event]:
        """The recording has ended."""
        now_us = self._us(self._now_s)
        yield from self._end_service(now_us)
        for request in self._sent.values():
            yield from self._of_client(request, now_us)
        self._sent.clear()

    # -- times --------------------------------------------------------------------------------------------------------

    def _us(self, at_s: float) -> int:
        """Of a time on the recorder's clock; what began before the recording is shown from there."""
        return round(min(max(at_s - self._header.at_s, 0.0), LONGEST_S) * 1e6)

    def _service_us(self, at_s: float) -> int:
        """Of a time on the service's clock."""
        return self._us(at_s + self._ahead_s)

    # -- what the service reports -------------------------------------------------------------------------------------

    def _of_frame(self, frame: TelemetryFrame) -> Iterator[Event]:
        if frame.service != self._service:
            yield from self._end_service(self._us(self._now_s))
            self._service = frame.service
            self._services += 1
            is_here = frame.clock == self._header.clock
            self._ahead_s = 0.0 if is_here else self._now_s - frame.at_s  # to the delay of its first frame
        for status in frame.replicas:
            yield from self._of_status(status)
        for batch in sorted(frame.batches, key=lambda batch: batch.started_s or batch.formed_s):
            if batch.id not in self._ended.ids:
                yield from self._of_batch(batch)
        for request in frame.requests:
            if request.id not in self._ended.ids:
                yield from self._of_request(request)
        for change in frame.changes:
            text = describe_change(change.previous, change.settings)
            args = {"version": change.version, "reason": change.reason}
            yield self._mark(text, self._service_us(change.in_force_s), args)
        for name in frame.gone_replicas:
            how = "was lost" if name in frame.lost_replicas else "left"
            at_us = self._service_us(frame.at_s)
            yield from self._end_replica(name, at_us)
            yield self._mark(f"{name} {how}", at_us, {})

    def _of_status(self, status: ReplicaStatus) -> Iterator[Event]:
        yield from self._begin_replica(status.replica, f"{status.replica} · {status.model} · {status.device}")
        replica = self._replicas[status.replica]
        replica.unit = status.unit
        yield {
            "ph": "C",
            "name": "Queue depth",
            "pid": replica.process,
            "tid": 0,
            "ts": self._service_us(status.at_s),
            "args": {"running": status.running, "formed": status.formed, "waiting": status.waiting},
        }

    def _begin_replica(self, name: str, title: str) -> Iterator[Event]:
        """Nothing, where it has begun."""
        if name not in self._replicas:
            self._replicas[name] = _Replica(self._processes)
            yield _name("process_name", self._processes, 0, title)
            self._processes += 1

    def _of_batch(self, batch: BatchRecord) -> Iterator[Event]:
        yield from self._begin_replica(batch.replica, batch.replica)
        replica = self._replicas[batch.replica]
        self._batches[batch.id] = batch
        if batch.started_s is None:
            return
        known = len(replica.free_us)
        thread = replica.thread(batch.id, self._service_us(batch.started_s))
        if thread > known:
            yield _name("thread_name", replica.process, thread, "Batches" if thread == 1 else f"Batches, {thread}")
        if batch.finished_s is not None:
            yield self._end_batch(batch, self._service_us(batch.finished_s))

    def _end_batch(self, batch: BatchRecord, ended_us: int) -> Event:
        """The slice of a batch that has started."""
        assert batch.started_s is not None
        replica = self._replicas[batch.replica]
        begun_us = self._service_us(batch.started_s)
        ended_us = max(begun_us, ended_us)
        thread = replica.thread(batch.id, begun_us)
        replica.free(batch.id, ended_us)
        del self._batches[batch.id]
        self._ended.add(batch.id)
        names = ("id", "size", "cap", "release_reason", "formation", "settings_version", "tokens", "members")
        work = {} if batch.work is None else msgspec.structs.asdict(batch.work)
        return {
            "ph": "X",
            "name": f"{batch.size} {batch.release_reason}",
            "cat": "batch",
            "pid": replica.process,
            "tid": thread,
            "ts": begun_us,
            "dur": ended_us - begun_us,
            "args": {name: getattr(batch, name) for name in names} | work,
        }

    def _of_request(self, request: RequestRecord) -> Iterator[Event]:
        yield from self._begin_replica(request.replica, request.replica)
        self._requests[request.id] = request
        if request.state in FINAL_STATES:
            ended_s = request.finished_s if request.finished_s is not None else request.received_s
            yield from self._end_request(request, self._service_us(ended_s))

    def _end_request(self, request: RequestRecord, ended_us: int) -> Iterator[Event]:
        replica = self._replicas[request.replica]
        del self._requests[request.id]
        self._ended.add(request.id)
        names = ("id", "client_id", "state", "batch", "prompt_tokens", "completion_tokens", "max_tokens", "error")
        begun_s = {
            "admission": request.received_s,
            "waiting": request.enqueued_s,
            "sealed": request.formed_s,
            "prefill": request.started_s,
            "decode": request.first_token_s,
        }
        titles = {stage.name: stage.title for stage in stages_of(replica.unit)}
        begun_us = {titles[name]: None if at_s is None else self._service_us(at_s) for name, at_s in begun_s.items()}
        id = f"{self._services}:{request.id}"
        args = {name: getattr(request, name) for name in names}
        yield from _slices(replica.process, "request", id, "Request", begun_us, ended_us, args)

    def _end_replica(self, name: str, at_us: int) -> Iterator[Event]:
        """What of it has not ended ends here."""
        for batch in [batch for batch in self._batches.values() if batch.replica == name]:
            if batch.started_s is None:
                del self._batches[batch.id]
            else:
                yield self._end_batch(batch, at_us)
        for request in [request for request in self._requests.values() if request.replica == name]:
            yield from self._end_request(request, at_us)

    def _end_service(self, at_us: int) -> Iterator[Event]:
        for name in list(self._replicas):
            yield from self._end_replica(name, at_us)
        self._forget()

    # -- what the load generator reports ------------------------------------------------------------------------------

    def _of_load(self, load: LoadFrame) -> Iterator[Event]:
        yield {
            "ph": "C",
            "name": "Outstanding",
            "pid": LOAD,
            "tid": 0,
            "ts": self._us(load.at_s),
            "args": {"outstanding": load.totals.outstanding},
        }
        for request in load.requests:
            if request.finished_s is None:
                self._sent[request.id] = request
            else:
                self._sent.pop(request.id, None)
                yield from self._of_client(request, self._us(request.finished_s))

    def _of_client(self, request: ClientRequest, ended_us: int) -> Iterator[Event]:
        begun_s = {"Load lag": request.intended_s, "First token": request.sent_s, "Stream": request.first_token_s}
        begun_us = {title: None if at_s is None else self._us(at_s) for title, at_s in begun_s.items()}
        args = {name: getattr(request, name) for name in ("id", "source", "outcome", "tokens", "max_tokens", "error")}
        yield from _slices(LOAD, "client", request.id, "Request", begun_us, ended_us, args)

    def _mark(self, text: str, at_us: int, args: Mapping[str, Any]) -> Event:
        return {"ph": "i", "s": "g", "name": text, "cat": "mark", "pid": MARKS, "tid": 0, "ts": at_us, "args": args}


def _slices(
    process: int,
    category: str,
    id: str,
    name: str,
    begun_us: Mapping[str, int | None],
    ended_us: int,
    args: Mapping[str, Any],
) -> Iterator[Event]:
    """A nestable slice, and within it one of each stage that was reached; each lasts until the next one or the end."""
    common = {"cat": category, "id": id, "pid": process, "tid": 0}
    reached = {title: at_us for title, at_us in begun_us.items() if at_us is not None}
    # A timer of the sender may go off a little early, and a recording may be forged: no stage begins before the last.
    times_us = list(accumulate([*reached.values(), ended_us], max))
    ended_us = times_us[-1]
    yield {"ph": "b", "name": name, "ts": times_us[0], "args": args, **common}
    for title, (at_us, end_us) in zip(reached, pairwise(times_us), strict=True):
        yield {"ph": "b", "name": title, "ts": at_us, **common}
        yield {"ph": "e", "name": title, "ts": end_us, **common}
    yield {"ph": "e", "name": name, "ts": ended_us, **common}
