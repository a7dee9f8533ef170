"""Requests as spans of OpenTelemetry, as a receiver gets them."""

from __future__ import annotations

import builtins
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from service.messages.settings import Settings
from service.replica.changes import TraceContext, trace_context
from service.replica.spans import SpanSender
from service.replica.tracing import TraceContexts, contexts_from_environment, is_traced, spans_from_environment
from tests.otlp_receiver import Receiver, Span, receiver
from tests.unit.gated_replica import GatedReplica
from tests.unit.test_telemetry import status

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CHAT = "/v1/chat/completions"
SPANS_OF_A_REQUEST = 6


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiver() as receiving:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiving.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield receiving


@pytest.fixture
def sender(collector: Receiver) -> Iterator[SpanSender]:
    sender = spans_from_environment("r1")
    assert sender is not None
    yield sender
    sender.close()


async def answered(sender: SpanSender, *contexts: TraceContext | None, prompts: tuple[str, ...] = ("a",)) -> None:
    """Have a replica answer a batch of a request each, which came with these contexts."""
    replica = GatedReplica(Settings(max_batch_size=8, batch_wait_timeout_s=0.0))
    recorder = replica.generation.recorder
    recorder.listeners.append(sender)
    for context, prompt in zip(contexts, prompts * len(contexts), strict=False):
        trace_context.set(context)
        await replica.submit(prompt, max_tokens=2)
    trace_context.set(None)
    replica.allow(20)
    await replica.ended()
    recorder.report(status(at_s=time.monotonic()))
    await replica.close()
    await sender.flush()


def by_name(spans: list[Span]) -> Mapping[str, Span]:
    return {span.name: span for span in spans}


async def test_that_a_request_is_a_span_with_its_stages_and_its_batch_in_it(
    sender: SpanSender, collector: Receiver
) -> None:
    begun_s = time.time()
    await answered(sender, None)
    spans = collector.spans(lambda spans: len(spans) == SPANS_OF_A_REQUEST)
    named = by_name(spans)
    whole, batch = named["text_completion m"], named["batch"]
    parents = {span.name: span.parent for span in spans}
    assert parents == {
        "text_completion m": "",
        "waiting": whole.id,
        "batch": whole.id,
        "sealed": batch.id,
        "prefill": batch.id,
        "decode": batch.id,
    }
    assert len({span.trace for span in spans}) == 1
    assert named["waiting"].end_s == named["sealed"].begin_s == batch.begin_s
    assert named["sealed"].end_s == named["prefill"].begin_s
    assert named["prefill"].end_s == named["decode"].begin_s
    assert named["decode"].end_s == batch.end_s == whole.end_s
    assert begun_s - 1 < whole.end_s < time.time() + 1
    assert whole.attributes["gen_ai.usage.output_tokens"] == 2
    assert whole.attributes["batchscope.request.state"] == "done"
    assert batch.attributes["batchscope.batch.size"] == 1
    assert batch.attributes["batchscope.batch.members"] == [whole.attributes["batchscope.request.id"]]
    assert batch.attributes["batchscope.batch.release_reason"] == "drained"
    assert whole.resource["service.name"] == "batchscope"
    assert whole.resource["service.instance.id"] == "r1"


async def test_that_the_span_of_the_client_is_the_parent(sender: SpanSender, collector: Receiver) -> None:
    await answered(sender, TraceContext(f"00-{TRACE}-{CLIENT}-01"), None)
    spans = collector.spans(lambda spans: len(spans) == 2 * SPANS_OF_A_REQUEST)
    whole = [span for span in spans if span.name == "text_completion m"]
    assert [span.parent for span in whole if span.trace == TRACE] == [CLIENT]
    assert [span.parent for span in whole if span.trace != TRACE] == [""]


async def test_that_a_chat_is_named_as_one(sender: SpanSender, collector: Receiver) -> None:
    await answered(sender, TraceContext(is_chat=True))
    (whole,) = [span for span in collector.spans() if span.parent == ""]
    assert (whole.name, whole.attributes["gen_ai.operation.name"]) == ("chat m", "chat")


async def test_that_a_client_that_is_not_traced_has_no_spans_here_either(
    sender: SpanSender, collector: Receiver
) -> None:
    await answered(sender, TraceContext(f"00-{TRACE}-{CLIENT}-00"), None)
    spans = collector.spans(lambda spans: len(spans) >= SPANS_OF_A_REQUEST)
    assert TRACE not in {span.trace for span in spans}


@pytest.mark.parametrize("nonsense", ["", "00-1-2-01", f"00-{'0' * 32}-{CLIENT}-01", "x" * 500])
async def test_that_a_parent_that_cannot_be_is_none(sender: SpanSender, collector: Receiver, nonsense: str) -> None:
    await answered(sender, TraceContext(nonsense, "=,=,="))
    (whole,) = [span for span in collector.spans() if span.name == "text_completion m"]
    assert whole.parent == ""


async def test_that_the_environment_names_the_service(collector: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    sender = SpanSender("r1")
    await answered(sender, None)
    assert {span.resource["service.name"] for span in collector.spans()} == {"mine"}
    sender.close()


async def test_that_a_sampler_of_the_environment_chooses(collector: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    sender = SpanSender("r1")
    await answered(sender, TraceContext(f"00-{TRACE}-{CLIENT}-01"), None)
    assert {span.trace for span in collector.spans()} == {TRACE}
    sender.close()


async def test_that_the_headers_of_a_request_are_noted_while_it_is_served() -> None:
    seen: list[TraceContext | None] = []

    async def app(*_: Any) -> None:
        seen.append(trace_context.get())

    parent = [(b"traceparent", f"00-{TRACE}-{CLIENT}-01".encode()), (b"tracestate", b"a=b"), (b"x", b"y")]
    for path, headers in (("/v1/completions", parent), ("/", [(b"traceparent", b"0" * 10_000)]), (CHAT, [])):
        trace_context.set(None)
        await TraceContexts(app)({"type": "http", "path": path, "headers": headers}, None, None)  # type: ignore[arg-type]
    assert seen == [TraceContext(f"00-{TRACE}-{CLIENT}-01", "a=b"), TraceContext(), TraceContext(is_chat=True)]


def test_that_nothing_is_traced_unless_the_environment_says_where_to(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    for variable in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(variable, raising=False)
    assert spans_from_environment("r1") is None
    app = object()
    assert contexts_from_environment(app) is app  # type: ignore[comparison-overlap,arg-type]
    assert is_traced({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"})
    assert not is_traced(endpoint | {"OTEL_SDK_DISABLED": "true"})
    assert not is_traced(endpoint | {"OTEL_TRACES_EXPORTER": "none"})


def test_that_a_protocol_that_is_not_spoken_is_said_and_nothing_fails(caplog: pytest.LogCaptureFixture) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert spans_from_environment("r1", environment) is None
    assert "asks for grpc, and they go by http/protobuf alone" in caplog.text


def test_that_a_library_that_is_missing_is_named_and_nothing_fails(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "service.replica.spans":
            raise ImportError("No module named 'opentelemetry.exporter'")
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    assert spans_from_environment("r1", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}) is None
    assert "pip install 'batchscope[tracing]'" in caplog.text
