"""The figures that a replica counts for other tools: what each is called, what it stands for, and the counting.

A figure that Ray Serve (2.60) has bears Ray's name, and one that vLLM (0.11 and later) has bears vLLM's, with their
units and their buckets, among finer ones. Every other name begins with `batchscope_`. A replica counts once a report,
from the records that the report is made of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from service.messages.gaps import GAP_BINS
from service.messages.objectives import Objectives
from service.messages.settings import FORMATIONS, VersionedSettings
from service.messages.telemetry import BatchRecord, BatchWork, ReplicaStatus, RequestRecord
from service.replica.changes import Changes

Subject = TypeVar("Subject")
Labels: TypeAlias = tuple[str, ...]
Amounts: TypeAlias = Iterable[tuple[Labels, float]]
"""Amounts by the values of a figure's labels."""

BATCH_SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
PERCENTS: Final = (5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 100.0)
MILLISECONDS: Final = (
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 300.0, 400.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0),
    *(60_000.0, 120_000.0, 300_000.0, 600_000.0),
)
FIRST_TOKEN_S: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
TOKEN_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
REQUEST_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0),
    *(60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


@dataclass(frozen=True)
class Histogram:
    """A figure of many values, counted in buckets.

    Attributes:
        bounds: the largest value of each bucket; a last bucket takes what is beyond.
    """

    name: str
    help: str
    bounds: tuple[float, ...]


@dataclass(frozen=True)
class Measure(Histogram, Generic[Subject]):
    """A histogram with one value a subject.

    Attributes:
        value: ``None`` where there is none.
        weight: how often the value counts; ``None``: once.
    """

    value: Callable[[Subject], float | None]
    weight: Callable[[Subject], int] | None = None


@dataclass(frozen=True)
class Figure(Generic[Subject]):
    """A figure of single values, by `labels`: what is known of a subject, or what a counter grows by with each."""

    name: str
    help: str
    amounts: Callable[[Subject], Amounts]
    labels: Labels = ()
    kind: Literal["counter", "gauge"] = "counter"


def _span(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else end - begin


def _of_answered(request: RequestRecord, begin: float | None) -> float | None:
    """From there to the end of the answer; ``None`` where there was none."""
    return _span(begin, request.finished_s) if request.state == "done" else None


def _run_ms(batch: BatchRecord) -> float | None:
    span_s = _span(batch.started_s, batch.finished_s)
    return None if span_s is None else span_s * 1e3


def _steps(batch: BatchRecord) -> int:
    return batch.work.steps if batch.work is not None else 0


def _step_s(batch: BatchRecord) -> float | None:
    span_s = _span(batch.started_s, batch.finished_s)
    return span_s / _steps(batch) if span_s is not None and _steps(batch) else None


def _per_token_s(request: RequestRecord) -> float | None:
    span_s = _of_answered(request, request.first_token_s)
    return span_s / (request.completion_tokens - 1) if span_s is not None and request.completion_tokens > 1 else None


def _work(batch: BatchRecord) -> Amounts:
    work = batch.work or BatchWork()
    return [((name,), getattr(work, name)) for name in ("computed", "padding", "vacant", "saved")]


def _outcomes(status: ReplicaStatus) -> Amounts:
    names = ("completed", "failed", "cancelled", "refused")
    return [((name,), getattr(status.ledger, name)) for name in names]


OF_BATCHES: Final[tuple[Measure[BatchRecord], ...]] = (
    Measure(
        "ray_serve_actual_batch_size",
        "Requests in a batch. In continuous formation a batch is a stretch of steps with the same requests.",
        BATCH_SIZES,
        lambda batch: batch.size,
    ),
    Measure(
        "ray_serve_batch_utilization_percent",
        "Requests in a batch, as percent of the max_batch_size that it was formed under.",
        PERCENTS,
        lambda batch: 100 * batch.size / batch.cap,
    ),
    Measure("ray_serve_batch_execution_time_ms", "Milliseconds for which a batch ran.", MILLISECONDS, _run_ms),
    Measure(
        "batchscope_step_seconds",
        "Seconds of a step: the time for which a batch ran, spread over its steps. Of a function a step is a call.",
        TOKEN_S,
        _step_s,
        _steps,
    ),
)
OF_WAITS_MS: Final = Histogram(
    "ray_serve_batch_wait_time_ms",
    "Milliseconds for which the oldest request of a batch had waited when the batch was formed.",
    MILLISECONDS,
)
OF_GAPS: Final = Histogram(
    "vllm:inter_token_latency_seconds", "Seconds between two successive tokens of a request, to 2.5 percent.", TOKEN_S
)
OF_REQUESTS: Final[tuple[Measure[RequestRecord], ...]] = (
    Measure(
        "vllm:time_to_first_token_seconds",
        "Seconds from the arrival of a request at its replica to its first token.",
        FIRST_TOKEN_S,
        lambda request: _span(request.received_s, request.first_token_s),
    ),
    Measure(
        "vllm:e2e_request_latency_seconds",
        "Seconds from the arrival of an answered request at its replica to its last token.",
        REQUEST_S,
        lambda request: _of_answered(request, request.received_s),
    ),
    Measure(
        "vllm:request_queue_time_seconds",
        "Seconds for which a request waited until it ran, in the queue and in a batch that was formed.",
        REQUEST_S,
        lambda request: _span(request.enqueued_s, request.started_s),
    ),
    Measure(
        "vllm:request_prefill_time_seconds",
        "Seconds from the start of a request to its first token.",
        REQUEST_S,
        lambda request: _span(request.started_s, request.first_token_s),
    ),
    Measure(
        "vllm:request_decode_time_seconds",
        "Seconds from the first token of an answered request to its last.",
        REQUEST_S,
        lambda request: _of_answered(request, request.first_token_s),
    ),
    Measure(
        "vllm:request_inference_time_seconds",
        "Seconds for which an answered request ran.",
        REQUEST_S,
        lambda request: _of_answered(request, request.started_s),
    ),
    Measure(
        "vllm:request_time_per_output_token_seconds",
        "Seconds a token after the first, on average over an answered request.",
        TOKEN_S,
        _per_token_s,
    ),
)
BATCH_COUNTERS: Final[tuple[Figure[BatchRecord], ...]] = (
    Figure("ray_serve_batches_processed_total", "Batches that have run.", lambda _: [((), 1)]),
    Figure(
        "batchscope_batches_total",
        "Batches that have run, by why they were released from the queue.",
        lambda batch: [((batch.formation, batch.release_reason), 1)],
        ("formation", "release_reason"),
    ),
    Figure(
        "batchscope_work_tokens_total",
        "Tokens that batches computed; of these, padding; places that stood empty; tokens of prompts that earlier "
        "prompts had begun with.",
        _work,
        ("work",),
    ),
)
REQUEST_COUNTERS: Final[tuple[Figure[RequestRecord], ...]] = (
    Figure(
        "vllm:prompt_tokens_total",
        "Tokens of the prompts of requests that have ended and ran.",
        lambda request: [((), 0 if request.started_s is None else request.prompt_tokens)],
    ),
    Figure(
        "vllm:generation_tokens_total",
        "Tokens generated for requests that have ended.",
        lambda request: [((), request.completion_tokens)],
    ),
)
GOOD: Final = "batchscope_good_requests_total"
STATUS_COUNTERS: Final[tuple[Figure[ReplicaStatus], ...]] = (
    Figure(
        "batchscope_requests_received_total",
        "Requests that have reached a replica.",
        lambda status: [((), status.ledger.received)],
    ),
    Figure(
        "batchscope_requests_total",
        "Requests that have ended, by their outcome; refused: the queue was full, or the input was refused.",
        _outcomes,
        ("outcome",),
    ),
)
GAUGES: Final[tuple[Figure[ReplicaStatus], ...]] = (
    Figure(
        "batchscope_queue_requests",
        "Requests by their stage: waiting in the queue, formed into a batch that waits for the engine, or running.",
        lambda status: [(("waiting",), status.waiting), (("formed",), status.formed), (("running",), status.running)],
        ("stage",),
        "gauge",
    ),
    Figure(
        "ray_serve_batch_queue_length",
        "Requests that wait in the queue for a batch.",
        lambda status: [((), status.waiting)],
        kind="gauge",
    ),
    Figure(
        "vllm:num_requests_waiting",
        "Requests that do not run yet: in the queue, or in a batch that waits for the engine.",
        lambda status: [((), status.waiting + status.formed)],
        kind="gauge",
    ),
    Figure(
        "vllm:num_requests_running",
        "Requests that the engine computes.",
        lambda status: [((), status.running)],
        kind="gauge",
    ),
)
SETTINGS: Final[tuple[Figure[VersionedSettings], ...]] = (
    Figure(
        "batchscope_settings_version",
        "Number of the settings in force; each change raises it.",
        lambda in_force: [((), in_force.version)],
        kind="gauge",
    ),
    Figure(
        "batchscope_setting",
        "The settings in force that are numbers or switches.",
        lambda in_force: [
            ((name,), float(value))
            for name, value in msgspec.structs.asdict(in_force.settings).items()
            if isinstance(value, int | float)
        ],
        ("setting",),
        "gauge",
    ),
    Figure(
        "batchscope_formation",
        "1 for the formation in force.",
        lambda in_force: [((each,), float(each == in_force.settings.formation)) for each in FORMATIONS],
        ("formation",),
        "gauge",
    ),
)


def good_requests(objectives: Objectives) -> Figure[RequestRecord]:
    """The requests whose answer keeps `objectives`; at the replica, latency counts from a request's arrival there."""

    def is_good(request: RequestRecord) -> bool:
        latency_s = _of_answered(request, request.received_s)
        ttft_s = _span(request.received_s, request.first_token_s)
        return latency_s is not None and objectives.are_met(latency_s, ttft_s, _per_token_s(request))

    return Figure(
        GOOD,
        "Answered requests that keep the objectives which the deployment holds.",
        lambda request: [((), float(is_good(request)))],
    )


HISTOGRAMS: Final[tuple[Histogram, ...]] = (*OF_BATCHES, OF_WAITS_MS, *OF_REQUESTS, OF_GAPS)
COUNTERS: Final[tuple[Figure[Any], ...]] = (*BATCH_COUNTERS, *REQUEST_COUNTERS, good_requests(Objectives()))
_BUCKET_OF_GAPS: Final = [bisect_left(OF_GAPS.bounds, GAP_BINS.middle_s(bin)) for bin in range(GAP_BINS.count)]


class Buckets(msgspec.Struct, frozen=True):
    """The values of a histogram: how many lie in each bucket, of which the last has no bound, and their sum."""

    counts: tuple[int, ...]
    total: float


class Counts(msgspec.Struct, frozen=True):
    """All that a replica has counted since it started, by the names of the figures."""

    histograms: Mapping[str, Buckets] = {}
    counters: Mapping[str, Mapping[Labels, float]] = {}


class Tally:
    """Counts what has happened in a replica."""

    def __init__(self, objectives: Objectives | None = None) -> None:
        """With the objectives of the deployment, where it has some."""
        self._request_counters = REQUEST_COUNTERS + ((good_requests(objectives),) if objectives else ())
        self._buckets = {each.name: [0] * (len(each.bounds) + 1) for each in HISTOGRAMS}
        self._totals = {each.name: 0.0 for each in HISTOGRAMS}
        counters: tuple[Figure[Any], ...] = (*BATCH_COUNTERS, *self._request_counters)
        self._counters: dict[str, dict[Labels, float]] = {
            each.name: {} if each.labels else {(): 0.0} for each in counters
        }

    def add(self, changes: Changes) -> None:
        for batch in changes.ended_batches:
            self._observe(OF_BATCHES, batch)
            self._count(BATCH_COUNTERS, batch)
        for waited_s in changes.waited_s:
            self._add(OF_WAITS_MS, waited_s * 1e3)
        for request in changes.ended_requests:
            self._observe(OF_REQUESTS, request)
            self._count(self._request_counters, request)
        for step in changes.gaps:
            self._totals[OF_GAPS.name] += step.gaps.total_s
            buckets = self._buckets[OF_GAPS.name]
            for bin, count in step.gaps.bins.items():
                buckets[_BUCKET_OF_GAPS[bin]] += count

    def counts(self) -> Counts:
        """All of it, as it is now."""
        return Counts(
            {name: Buckets(tuple(buckets), self._totals[name]) for name, buckets in self._buckets.items()},
            {name: dict(amounts) for name, amounts in self._counters.items()},
        )

    def _observe(self, measures: Iterable[Measure[Subject]], subject: Subject) -> None:
        for each in measures:
            value = each.value(subject)
            if value is not None:
                self._add(each, value, 1 if each.weight is None else each.weight(subject))

    def _add(self, histogram: Histogram, value: float, weight: int = 1) -> None:
        self._buckets[histogram.name][bisect_left(histogram.bounds, value)] += weight
        self._totals[histogram.name] += value * weight

    def _count(self, figures: Iterable[Figure[Subject]], subject: Subject) -> None:
        for each in figures:
            sums = self._counters[each.name]
            for labels, amount in each.amounts(subject):
                sums[labels] = sums.get(labels, 0.0) + amount
