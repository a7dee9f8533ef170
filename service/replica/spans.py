"""Requests as spans of OpenTelemetry, made when they have ended, and sent by OTLP.

    chat SmolLM2                 the request, from its arrival to its end; child of the client's span, if it named one
    ├── waiting                  in the queue
    └── batch                    in its batch, whose size, members and release reason are attributes
        ├── sealed               until the engine took it
        ├── prefill              to the first token
        └── decode               the further tokens

Where spans go, which do, under which name and how they are gathered, the standard variables say, which the SDK reads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service.messages.telemetry import BatchRecord, ReplicaStatus, RequestRecord
from service.messages.workload import TEXT
from service.replica.changes import Changes, TraceContext

logger = logging.getLogger(__name__)

LAST_SPANS_S: Final = 1.0
MOST_PENDING: Final = 100
"""Reports of which no spans have been made yet; of a further one none are."""

PROPAGATOR: Final = TraceContextTextMapPropagator()


class SpanSender:
    """A listener of a replica's changes that makes the spans in a thread of its own; the SDK sends them in another."""

    def __init__(self, replica: str) -> None:
        ours = Resource.create({"service.name": "batchscope", "service.instance.id": replica})
        resource = ours.merge(OTELResourceDetector().detect())  # what the environment names goes first
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("batchscope")
        self._thread = ThreadPoolExecutor(1, "spans")
        self._pending = threading.Semaphore(MOST_PENDING)
        self._batches: dict[str, BatchRecord] = {}  # of requests that have not ended, as each was formed

    def __call__(self, changes: Changes, status: ReplicaStatus) -> None:
        if not changes.requests:
            return
        if not self._pending.acquire(blocking=False):
            logger.warning("Spans are left out: more requests end than spans can be made of")
            return
        maker = SpanMaker(self._tracer, status, time.time_ns() - time.monotonic_ns())
        self._thread.submit(self._make, changes, maker).add_done_callback(self._on_made)

    async def flush(self) -> None:
        """The replica ends: send what has not been sent, within `LAST_SPANS_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SPANS_S):
                await asyncio.wrap_future(self._thread.submit(self._provider.force_flush))

    def close(self) -> None:
        """Send what has not been sent, and end the threads; blocks for as long as the receiver takes."""
        self._thread.shutdown()
        self._provider.shutdown()

    def _make(self, changes: Changes, maker: SpanMaker) -> None:
        formed = {batch.id: batch for batch in changes.batches}
        for request in changes.requests:
            if request.batch in formed:
                self._batches.setdefault(request.id, formed[request.batch])
        for request in changes.ended_requests:
            maker.make(request, self._batches.pop(request.id, None), changes.contexts.get(request.id, TraceContext()))

    def _on_made(self, made: Future[None]) -> None:
        self._pending.release()
        if error := made.exception():
            logger.error("Of some requests no spans were made", exc_info=error)


class SpanMaker:
    """Makes the spans of requests that have ended in one replica."""

    def __init__(self, tracer: Tracer, status: ReplicaStatus, ahead_ns: int) -> None:
        """`ahead_ns` is what the time of day is ahead of the replica's clock."""
        self._tracer = tracer
        self._status = status
        self._ahead_ns = ahead_ns

    def make(self, request: RequestRecord, batch: BatchRecord | None, context: TraceContext) -> None:
        """The spans of a request, in its batch if it had one, as a child of the span that the client has named."""
        assert request.finished_s is not None
        ended_s = request.finished_s
        of_text = "chat" if context.is_chat else "text_completion"
        operation = of_text if self._status.unit == TEXT.unit else "call"
        headers = {"traceparent": context.traceparent, "tracestate": context.tracestate}
        whole = self._tracer.start_span(
            f"{operation} {self._status.model}",
            PROPAGATOR.extract(headers, Context()),
            SpanKind.SERVER,
            {"gen_ai.operation.name": operation, "gen_ai.request.model": self._status.model, **_of_request(request)},
            start_time=self._ns(request.received_s),
        )
        within = set_span_in_context(whole, Context())
        self._stage("waiting", within, request.enqueued_s, request.formed_s, ended_s)
        if batch is not None:
            in_batch = self._stage("batch", within, request.formed_s, ended_s, ended_s, _of_batch(batch))
            self._stage("sealed", in_batch, request.formed_s, request.started_s, ended_s)
            self._stage("prefill", in_batch, request.started_s, request.first_token_s, ended_s)
            self._stage("decode", in_batch, request.first_token_s, ended_s, ended_s)
        if request.error is not None:
            whole.set_status(Status(StatusCode.ERROR, request.error))
        whole.end(self._ns(ended_s))

    def _stage(
        self,
        name: str,
        within: Context,
        begin_s: float | None,
        end_s: float | None,
        ended_s: float,
        attributes: Mapping[str, Any] | None = None,
    ) -> Context:
        """A span, if the request has come so far; it ends with the request at the latest. Returns its context."""
        if begin_s is None:
            return within
        span = self._tracer.start_span(name, within, attributes=attributes, start_time=self._ns(begin_s))
        span.end(self._ns(ended_s if end_s is None else end_s))
        return set_span_in_context(span, Context())

    def _ns(self, at_s: float) -> int:
        """Nanoseconds since 1970."""
        return round(at_s * 1e9) + self._ahead_ns


def _of_request(request: RequestRecord) -> dict[str, Any]:
    """Attributes by OpenTelemetry's conventions for generative models, and our own."""
    known = {
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.usage.input_tokens": request.prompt_tokens,
        "gen_ai.usage.output_tokens": request.completion_tokens,
        "batchscope.request.id": request.id,
        "batchscope.request.client_id": request.client_id,
        "batchscope.request.state": request.state,
        "batchscope.request.longest_gap_s": request.longest_gap_s,
        "batchscope.replica": request.replica,
    }
    return {name: value for name, value in known.items() if value is not None}


def _of_batch(batch: BatchRecord) -> dict[str, Any]:
    """What was known of the batch when the request entered it."""
    names = ("id", "size", "cap", "release_reason", "formation", "settings_version", "members")
    return {f"batchscope.batch.{name}": getattr(batch, name) for name in names}
