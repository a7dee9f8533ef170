"""What `GET /metrics` says: counted once, under the names of Ray and vLLM, and never less than before."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.batching.queue import Batch
from service.messages.objectives import Objectives
from service.messages.settings import Settings, VersionedSettings
from service.messages.telemetry import BatchWork, Ledger, RequestRecord, RequestState
from service.replica import metrics as declared
from service.replica.exposition import KEPT_ENDED, ReplicaMetrics
from service.replica.metrics import COUNTERS, GAUGES, HISTOGRAMS, SETTINGS, STATUS_COUNTERS
from service.replica.ray_metrics import RayMetrics, ray_name
from service.replica.recorder import Recorder, ReplicaReport
from tests.unit.gated_replica import GatedReplica
from tests.unit.test_telemetry import batch, status

IN_FORCE = VersionedSettings(version=7, settings=Settings(formation="late", max_batch_size=16))
LABELS = {"model_name": "m", "replica": "r1"}


@dataclass
class Samples:
    """What a scrape holds: values by the names of samples and their labels, kinds by those of figures."""

    values: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def of(self, name: str, labels: Mapping[str, str] = LABELS, **more: str) -> float:
        return self.values[name, frozenset({**labels, **more}.items())]

    def mean(self, name: str) -> float:
        return self.of(f"{name}_sum") / self.of(f"{name}_count")


def scraped(text: bytes) -> Samples:
    """As Prometheus' own parser reads it."""
    samples = Samples()
    for family in text_string_to_metric_families(text.decode()):
        samples.kinds[family.name] = family.type
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples.values, "a series is there once"
            samples.values[key] = sample.value
    return samples


def scrape(known: ReplicaMetrics) -> Samples:
    return scraped(known.scrape(IN_FORCE).text())


def told(*reports: ReplicaReport) -> ReplicaMetrics:
    known = ReplicaMetrics(clock=lambda: 100.0)
    for report in reports:
        known.note(report)
    return known


@dataclass(eq=False)
class Request:
    """A request of which all is said."""

    id: str = "r1-1"
    state: RequestState = "done"
    tokens: int = 3

    def record(self, replica: str) -> RequestRecord:
        has_run = self.state == "done"
        return RequestRecord(
            id=self.id,
            replica=replica,
            state=self.state,
            prompt_tokens=10,
            max_tokens=9,
            completion_tokens=self.tokens if has_run else 0,
            received_s=1.0,
            enqueued_s=1.1,
            formed_s=1.5 if has_run else None,
            started_s=1.6 if has_run else None,
            first_token_s=2.0 if has_run else None,
            finished_s=3.0,
        )


def formed(size: int, waited_s: float = 0.2) -> Batch[Any]:
    entries = [SimpleNamespace(enqueued_s=5.0 - waited_s), *[SimpleNamespace(enqueued_s=5.0)] * (size - 1)]
    return Batch(tuple(entries), "full", 5.0, 1, 8)  # type: ignore[arg-type]


def run_batch(recorder: Recorder, size: int = 4, **work: Any) -> None:
    """A batch that has waited 0.2 s and ran for a second."""
    id = recorder.begin_batch(formed(size), [f"r1-{n}" for n in range(size)])
    recorder.change_batch(id, started_s=6.0)
    recorder.change_batch(id, finished_s=7.0, tokens=12, work=BatchWork(**work))


# What is counted -----------------------------------------------------------------------------------------------------


async def test_that_a_batch_is_counted_by_rays_names() -> None:
    recorder = Recorder("r1")
    run_batch(recorder, size=4, steps=5, computed=100, padding=10)

    seen = scrape(told(recorder.report(status())))
    assert seen.of("ray_serve_batches_processed_total") == 1
    assert seen.of("ray_serve_actual_batch_size_bucket", le="2.0") == 0
    assert seen.of("ray_serve_actual_batch_size_bucket", le="4.0") == 1
    assert seen.mean("ray_serve_actual_batch_size") == 4
    assert seen.mean("ray_serve_batch_utilization_percent") == 50
    assert seen.mean("ray_serve_batch_wait_time_ms") == pytest.approx(200)
    assert seen.mean("ray_serve_batch_execution_time_ms") == pytest.approx(1000)
    assert (seen.of("batchscope_step_seconds_count"), seen.mean("batchscope_step_seconds")) == (5, pytest.approx(0.2))
    assert seen.of("batchscope_batches_total", formation="late", release_reason="full") == 1
    assert seen.of("batchscope_work_tokens_total", work="padding") == 10


async def test_that_a_request_is_counted_by_vllms_names() -> None:
    recorder = Recorder("r1")
    recorder.note_request(Request())

    seen = scrape(told(recorder.report(status())))
    assert seen.mean("vllm:time_to_first_token_seconds") == pytest.approx(1.0)
    assert seen.mean("vllm:e2e_request_latency_seconds") == pytest.approx(2.0)
    assert seen.mean("vllm:request_queue_time_seconds") == pytest.approx(0.5)
    assert seen.mean("vllm:request_prefill_time_seconds") == pytest.approx(0.4)
    assert seen.mean("vllm:request_decode_time_seconds") == pytest.approx(1.0)
    assert seen.mean("vllm:request_inference_time_seconds") == pytest.approx(1.4)
    assert seen.mean("vllm:request_time_per_output_token_seconds") == pytest.approx(0.5)
    assert (seen.of("vllm:prompt_tokens_total"), seen.of("vllm:generation_tokens_total")) == (10, 3)


async def test_that_a_request_that_never_ran_has_no_latency() -> None:
    recorder = Recorder("r1")
    recorder.note_request(Request(state="cancelled"))
    seen = scrape(told(recorder.report(status())))
    assert seen.of("vllm:e2e_request_latency_seconds_count") == 0
    assert seen.of("vllm:prompt_tokens_total") == 0


async def test_that_times_between_tokens_lie_in_their_buckets_and_add_up() -> None:
    recorder = Recorder("r1")
    for gap_s in (0.004, 0.004, 0.12):
        recorder.note_gap("r1-1", gap_s, 10.0)
    seen = scrape(told(recorder.report(status(at_s=11.0))))
    name = "vllm:inter_token_latency_seconds"
    assert [seen.of(f"{name}_bucket", le=le) for le in ("0.0025", "0.005", "0.1", "0.15", "+Inf")] == [0, 2, 2, 3, 3]
    assert seen.of(f"{name}_sum") == pytest.approx(0.128)


async def test_that_what_is_reported_again_is_counted_once() -> None:
    recorder = Recorder("r1")
    run_batch(recorder)
    recorder.note_request(Request())
    recorder.report(status())  # which is lost
    again = recorder.report(status())
    assert len(again.batches) == len(again.requests) == 1
    recorder.acknowledge(again.number)
    recorder.repeat()  # for another hub
    seen = scrape(told(recorder.report(status())))
    assert seen.of("ray_serve_batches_processed_total") == seen.of("vllm:e2e_request_latency_seconds_count") == 1


async def test_that_a_hub_in_the_place_of_another_says_the_same() -> None:
    recorder = Recorder("r1")
    run_batch(recorder)
    first = told(recorder.report(status()))
    assert told(recorder.report(status())).scrape(IN_FORCE).text() == first.scrape(IN_FORCE).text()


def test_that_requests_are_told_by_their_outcome_and_the_queue_by_its_stages() -> None:
    ledger = Ledger(received=9, refused=2, admitted=7, completed=3, failed=1, cancelled=1)
    present = msgspec.structs.replace(status(), waiting=5, formed=4, running=3, ledger=ledger)
    report = msgspec.structs.replace(Recorder("r1").report(status()), status=present)
    seen = scrape(told(report))
    outcomes = ("completed", "failed", "cancelled", "refused")
    assert [seen.of("batchscope_requests_total", outcome=each) for each in outcomes] == [3, 1, 1, 2]
    assert seen.of("batchscope_requests_received_total") == 9
    stages = ("waiting", "formed", "running")
    assert [seen.of("batchscope_queue_requests", stage=each) for each in stages] == [5, 4, 3]
    assert seen.of("ray_serve_batch_queue_length") == 5
    assert (seen.of("vllm:num_requests_waiting"), seen.of("vllm:num_requests_running")) == (9, 3)


async def test_that_good_answers_are_counted_where_objectives_are_known() -> None:
    recorder = Recorder("r1", Objectives(latency_s=2.5, tpot_s=0.4))
    recorder.note_request(Request("r1-1", tokens=3))  # 0.5 s a token
    recorder.note_request(Request("r1-2", tokens=6))
    recorder.note_request(Request("r1-3", state="failed"))
    report = recorder.report(status())
    assert scrape(told(report)).of("batchscope_good_requests_total") == 1
    without = scrape(told(Recorder("r1").report(status())))
    assert ("batchscope_good_requests_total", frozenset(LABELS.items())) not in without.values


def test_that_the_settings_in_force_are_told() -> None:
    seen = scrape(told())
    assert seen.of("batchscope_settings_version", {}) == 7
    assert seen.of("batchscope_setting", {}, setting="max_batch_size") == 16
    formations = [seen.of("batchscope_formation", {}, formation=each) for each in ("late", "early", "continuous")]
    assert formations == [1, 0, 0]


async def test_that_all_that_a_replica_answers_is_counted() -> None:
    replica = GatedReplica(Settings(max_batch_size=2, batch_wait_timeout_s=0.0))
    for _ in range(3):
        await replica.submit(max_tokens=2)
    replica.allow(20)
    await replica.ended()
    recorder = replica.generation.recorder
    await replica.until(lambda: all(each.finished_s for each in recorder.batches.values()))
    seen = scrape(told(recorder.report(status(at_s=1e9))))
    await replica.close()
    assert seen.of("vllm:e2e_request_latency_seconds_count") == recorder.ledger.completed == 3
    assert seen.of("ray_serve_actual_batch_size_sum") == 3
    assert seen.of("ray_serve_batch_wait_time_ms_count") == seen.of("ray_serve_batches_processed_total")
    assert seen.of("vllm:inter_token_latency_seconds_count") == 3


# Over time -----------------------------------------------------------------------------------------------------------


async def test_that_the_counts_of_a_replica_that_has_ended_stay_and_nothing_of_it_is_present() -> None:
    known = ReplicaMetrics(clock=lambda: 0.0)
    for name in ("r1", "r2"):
        recorder = Recorder(name)
        run_batch(recorder)
        known.note(recorder.report(status(name)))
    before = scrape(known)
    known.end("r1")
    after = scrape(known)
    counted = {key for key in before.values if key[0].endswith(("_total", "_bucket", "_sum", "_count"))}
    assert len(counted) > 300
    assert all(after.values[key] == before.values[key] for key in counted)
    queues = [key for key in after.values if key[0] == "vllm:num_requests_running"]
    assert queues == [("vllm:num_requests_running", frozenset({("model_name", "m"), ("replica", "r2")}))]


def test_that_replicas_that_have_ended_are_bounded() -> None:
    known = ReplicaMetrics()
    for number in range(KEPT_ENDED + 3):
        known.note(Recorder(f"r{number}").report(status(f"r{number}")))
        known.end(f"r{number}")
    counts = [key for key in scrape(known).values if key[0] == "ray_serve_batches_processed_total"]
    assert len(counts) == KEPT_ENDED


def test_that_it_is_told_how_old_the_figures_of_a_silent_replica_are() -> None:
    now_s = [10.0]
    known = ReplicaMetrics(clock=lambda: now_s[0])
    known.note(Recorder("r1").report(status()))
    now_s[0] = 14.5
    assert scrape(known).of("batchscope_report_age_seconds") == 4.5


def test_that_a_name_of_a_model_may_hold_any_sign() -> None:
    name = 'C:\\models\\"tiny"\nnew'
    report = msgspec.structs.replace(
        Recorder("r1").report(status()), status=msgspec.structs.replace(status(), model=name)
    )
    assert scrape(told(report)).of("vllm:num_requests_running", {"model_name": name, "replica": "r1"}) == 0


# Names ---------------------------------------------------------------------------------------------------------------


def test_that_every_figure_is_there_from_the_beginning_with_its_kind_and_its_meaning() -> None:
    seen = scrape(told(Recorder("r1").report(status())))
    assert all(seen.kinds[each.name] == "histogram" for each in HISTOGRAMS)
    for each in (*COUNTERS, *STATUS_COUNTERS):
        assert seen.kinds[each.name.removesuffix("_total")] == "counter"
    assert all(seen.kinds[each.name] == "gauge" for each in (*GAUGES, *SETTINGS))
    assert all(each.help.endswith(".") for each in (*HISTOGRAMS, *COUNTERS, *STATUS_COUNTERS, *GAUGES, *SETTINGS))


def test_that_figures_with_rays_names_are_rays_with_its_buckets() -> None:
    """A canary for ray 2.60: where it fails, Ray's own metrics of `@serve.batch` have others."""
    from ray.serve import batching
    from ray.serve._private import constants

    source = inspect.getsource(batching)
    of_ray = [each for each in (*HISTOGRAMS, *COUNTERS, *GAUGES) if each.name.startswith("ray_")]
    assert len(of_ray) == 6
    assert all(f'"{ray_name(each.name)}"' in source for each in of_ray)
    assert tuple(constants.DEFAULT_BATCH_SIZE_BUCKETS) == declared.BATCH_SIZES
    assert tuple(constants.DEFAULT_BATCH_UTILIZATION_BUCKETS_PERCENT) == declared.PERCENTS
    assert tuple(constants.DEFAULT_LATENCY_BUCKET_MS) == declared.MILLISECONDS


# As Ray's metrics ----------------------------------------------------------------------------------------------------


class OfRay:
    """In the place of a metric of Ray: keeps what it is told."""

    told: defaultdict[str, list[tuple[float, Mapping[str, str]]]]

    def __init__(self, name: str, _help: str, *arguments: Any) -> None:
        self._name = name
        self._tags = arguments[-1]

    def observe(self, value: float, tags: Mapping[str, str]) -> None:
        assert set(tags) == set(self._tags)
        OfRay.told[self._name].append((value, tags))

    inc = set = observe


@pytest.fixture
def of_ray(monkeypatch: pytest.MonkeyPatch) -> defaultdict[str, list[tuple[float, Mapping[str, str]]]]:
    from ray.serve import metrics

    OfRay.told = defaultdict(list)
    for kind in ("Histogram", "Counter", "Gauge"):
        monkeypatch.setattr(metrics, kind, OfRay)
    return OfRay.told


async def test_that_a_cluster_gets_the_figures_of_batches_as_rays_metrics(
    of_ray: defaultdict[str, list[tuple[float, Mapping[str, str]]]],
) -> None:
    recorder = Recorder("r1")
    recorder.listeners.append(RayMetrics())
    run_batch(recorder, size=4, computed=100)
    recorder.report(msgspec.structs.replace(status(), waiting=5))
    recorder.report(msgspec.structs.replace(status(), waiting=2))

    values = {name: [value for value, _ in told] for name, told in of_ray.items()}
    assert values["serve_actual_batch_size"] == [4]
    assert values["serve_batch_utilization_percent"] == [50]
    assert values["serve_batch_wait_time_ms"] == [pytest.approx(200)]
    assert values["serve_batch_execution_time_ms"] == [pytest.approx(1000)]
    assert values["serve_batches_processed"] == [1]
    assert values["serve_batch_queue_length"] == [5, 2]
    ((_, tags),) = of_ray["batchscope_batches"]
    assert tags == {"function_name": "handle_batch", "formation": "late", "release_reason": "full"}
    assert not any(":" in name for name in of_ray), "Ray takes no such names"


async def test_that_what_looks_on_and_fails_ends_no_report(caplog: pytest.LogCaptureFixture) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("the exporter is gone")

    recorder = Recorder("r1")
    recorder.listeners.append(failing)
    recorder.note_batch(batch(1))
    assert [each.id for each in recorder.report(status()).batches] == ["r1-b1"]
    assert "the exporter is gone" in caplog.text
    assert recorder.listeners == []
