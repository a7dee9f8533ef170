from __future__ import annotations

import json

import pytest

from gui.control.clocks import FrameTimes
from gui.demo.report import Measurements
from service.messages.life import Ready
from service.messages.load import ClientRequest, ClientTotals
from service.messages.settings import Settings, SettingsChange
from service.messages.telemetry import BatchRecord

KEYS = {
    "model": None,
    "device": None,
    "requests": {"sent", "ok", "failed"},
    "latency_s": {"p50", "p95", "p99"},
    "throughput": {"requests_per_s", "tokens_per_s"},
    "batches": {"count", "mean_size", "max_size"},
    "settings_changes": None,
    "frames": {"count", "p50_ms", "p99_ms", "max_ms"},
    "startup_s": {"window", "ready"},
}


def answered(name: str, intended_s: float, latency_s: float) -> ClientRequest:
    return ClientRequest(
        id=name,
        source="load",
        prompt="p",
        max_tokens=10,
        intended_s=intended_s,
        finished_s=intended_s + latency_s,
        tokens=10,
        outcome="ok",
    )


def batch(name: str, size: int) -> BatchRecord:
    return BatchRecord(
        id=name,
        number=1,
        replica="r1",
        settings_version=1,
        formation="late",
        size=size,
        cap=16,
        release_reason="full",
        formed_s=0.0,
        started_s=0.1,
    )


@pytest.fixture
def measured() -> Measurements:
    measured = Measurements()
    measured.ready = Ready(
        url="http://x",
        instance="i",
        model="m",
        device="cpu",
        dtype="float32",
        context_length=1,
        replicas=1,
        started_in_s=1.0,
    )
    measured.ready_after_s, measured.window_after_s = 11.0, 0.5
    measured.frames = FrameTimes(100, 4.0, 9.0, 12.0)
    measured.totals = ClientTotals(sent=4, ok=3, refused=1)
    return measured


def test_that_the_report_has_exactly_the_fields_that_were_promised(measured: Measurements) -> None:
    for measurements in (Measurements(), measured):
        report = json.loads(measurements.report().as_json())

        assert list(report) == list(KEYS)
        for key, fields in KEYS.items():
            if fields is not None:
                assert set(report[key]) == fields


def test_that_whatever_was_sent_and_not_answered_has_failed(measured: Measurements) -> None:
    requests = measured.report().requests

    assert (requests.sent, requests.ok, requests.failed) == (4, 3, 1)


def test_that_latency_and_throughput_are_those_of_the_answers(measured: Measurements) -> None:
    measured.add_requests([answered("a", 0.0, 1.0), answered("b", 1.0, 2.0), answered("c", 2.0, 3.0)])
    measured.add_requests([answered("c", 2.0, 8.0)])  # a later report of the same request

    report = measured.report()

    assert report.latency_s.p50 == 2.0
    assert report.latency_s.p99 == pytest.approx(7.88)
    assert report.throughput.requests_per_s == pytest.approx(0.3)
    assert report.throughput.tokens_per_s == pytest.approx(3.0)


def test_that_a_batch_counts_once_with_its_last_size(measured: Measurements) -> None:
    measured.add_batches([batch("a", 2)])
    measured.add_batches([batch("a", 4), batch("b", 1)])

    batches = measured.report().batches

    assert (batches.count, batches.mean_size, batches.max_size) == (2, 2.5, 4)


def test_that_a_change_of_two_settings_is_told_field_by_field(measured: Measurements) -> None:
    old = Settings()
    new = old.revised({"max_batch_size": 8, "formation": "early"})
    measured.add_changes([SettingsChange(version=2, previous=old, settings=new, requested_s=1.0, in_force_s=1.003)])

    changes = measured.report().settings_changes

    assert [(change.field, change.value) for change in changes] == [("formation", "early"), ("max_batch_size", 8)]
    assert changes[0].in_force_after_ms == pytest.approx(3.0)
