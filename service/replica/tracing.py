"""Whether requests are traced, as OpenTelemetry's variables say, and what their spans take over from HTTP."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from service.replica.changes import TraceContext, trace_context

if TYPE_CHECKING:
    from service.replica.spans import SpanSender

logger = logging.getLogger(__name__)

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL: Final = "http/protobuf"
CHAT: Final = "/chat/completions"
LONGEST_HEADER: Final = 512  # characters, as W3C's specification asks for


def is_traced(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the standard variables name a receiver of spans.

    >>> is_traced({}), is_traced({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"})
    (False, True)
    """
    exporters = environment.get("OTEL_TRACES_EXPORTER", "otlp").split(",")
    is_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or "otlp" not in exporters
    return not is_off and any(environment.get(name) for name in ENDPOINTS)


def spans_from_environment(replica: str, environment: Mapping[str, str] = os.environ) -> SpanSender | None:
    """What sends the spans of this replica; ``None`` where nothing is traced, or where that cannot be, which is logged.

    A service does not fail for want of its observer.
    """
    if not is_traced(environment):
        return None
    protocol = next((environment[name] for name in PROTOCOLS if environment.get(name)), PROTOCOL)
    if protocol != PROTOCOL:
        logger.warning("No spans are sent: the environment asks for %s, and they go by %s alone", protocol, PROTOCOL)
        return None
    try:
        from service.replica.spans import SpanSender
    except ImportError as error:
        logger.warning("No spans are sent, for want of a library (%s): pip install 'batchscope[tracing]'", error)
        return None
    return SpanSender(replica)


def contexts_from_environment(app: ASGIApp) -> ASGIApp:
    """`app`, whose requests know their `TraceContext`; `app` itself where nothing is traced."""
    return TraceContexts(app) if is_traced() else app


class TraceContexts:
    """Notes the `TraceContext` of each HTTP request, as pure ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {
            name: value.decode("latin-1") for name, value in scope.get("headers", ()) if len(value) <= LONGEST_HEADER
        }
        parent, state = (headers.get(name, "") for name in (b"traceparent", b"tracestate"))
        trace_context.set(TraceContext(parent, state, is_chat=scope.get("path", "").endswith(CHAT)))
        await self._app(scope, receive, send)
