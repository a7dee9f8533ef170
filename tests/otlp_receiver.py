"""A receiver of spans: OTLP over HTTP, as a collector speaks it."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Span:
    """A span as it came; ids are in hexadecimal, times in seconds since 1970."""

    name: str
    trace: str
    id: str
    parent: str
    begin_s: float
    end_s: float
    attributes: dict[str, Any]
    resource: dict[str, Any]
    error: str


class Receiver:
    """Keeps the spans that come.

    Attributes:
        url: for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._spans: list[Span] = []
        self._has_come = threading.Condition()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        spans = [
            Span(
                span.name,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.start_time_unix_nano / 1e9,
                span.end_time_unix_nano / 1e9,
                _values(span.attributes),
                _values(of_resource.resource.attributes),
                span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else "",
            )
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]
        with self._has_come:
            self._spans += spans
            self._has_come.notify_all()

    def spans(self, are_enough: Callable[[list[Span]], bool] = bool, within_s: float = 60.0) -> list[Span]:
        """All that have come, once they are enough."""
        with self._has_come:
            assert self._has_come.wait_for(lambda: are_enough(self._spans), within_s), self._spans
            return list(self._spans)


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces"
            assert self.headers["content-type"] == "application/x-protobuf"
            receiving.take(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiving = Receiver(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiving
        finally:
            server.shutdown()
            thread.join()


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
