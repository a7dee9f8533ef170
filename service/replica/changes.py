"""What has happened in a replica since its report before, for all that counts it or passes it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from service.messages.telemetry import FINAL_STATES, BatchRecord, ReplicaStatus, RequestRecord, TokenGaps


class TraceContext(NamedTuple):
    """What a span takes over from the HTTP request: the headers of W3C's trace context, as they came, and its kind."""

    traceparent: str = ""
    tracestate: str = ""
    is_chat: bool = False


trace_context: Final[ContextVar[TraceContext | None]] = ContextVar("trace_context", default=None)
"""Of the HTTP request under way, where requests are traced."""


@dataclass(frozen=True)
class Changes:
    """The newest record of each batch and request that has changed, which is final in one of these values alone.

    Attributes:
        gaps: times between tokens, each in one of these values alone.
        waited_s: of each batch that was formed, how long its oldest member had waited in the queue.
        contexts: of requests that have ended, by their ids, where requests are traced.
    """

    batches: tuple[BatchRecord, ...] = ()
    requests: tuple[RequestRecord, ...] = ()
    gaps: tuple[TokenGaps, ...] = ()
    waited_s: tuple[float, ...] = ()
    contexts: Mapping[str, TraceContext] = field(default_factory=dict)

    @property
    def ended_batches(self) -> list[BatchRecord]:
        return [batch for batch in self.batches if batch.finished_s is not None]

    @property
    def ended_requests(self) -> list[RequestRecord]:
        return [request for request in self.requests if request.state in FINAL_STATES]


Listener: TypeAlias = Callable[[Changes, ReplicaStatus], None]
"""Is called with each report in the replica's event loop, and so returns at once."""
