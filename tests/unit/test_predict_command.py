"""`python -m service predict` against a service that tells of a run which never happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from service.analysis.predict.prediction_report import PredictionReport
from service.commands import predict
from service.messages.settings import Settings, VersionedSettings
from service.messages.telemetry import TelemetryEvent
from tests.synthetic_parts import SyntheticBatch
from tests.synthetic_run import Step, SyntheticRun

NOW = Settings(max_batch_size=8)


class ToldService:
    """Stands in for `RemoteService`: everything it has to tell comes at once."""

    run = SyntheticRun
    rate_per_s = 4.0

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url

    async def __aenter__(self) -> ToldService:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def settings(self) -> VersionedSettings:
        return VersionedSettings(version=1, settings=NOW)

    async def telemetry(self) -> AsyncIterator[TelemetryEvent]:
        for frame, _ in self.run(40.0, (Step(0.0, self.rate_per_s, NOW),)).frames():
            yield frame
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "RemoteService", ToldService)


def run(*arguments: str) -> int:
    return predict.main(["--url", "http://127.0.0.1:8000", "--seconds", "0.5", *arguments])


def test_that_it_says_what_the_settings_would_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    assert run("--set", "max_batch_size=16", "--set", "batch_wait_timeout_s=0.2", "--json", str(path)) == 0
    report = msgspec.json.decode(path.read_bytes(), type=PredictionReport)
    assert report.prediction.settings == NOW.revised({"max_batch_size": 16, "batch_wait_timeout_s": 0.2})
    assert report.expected.settings == NOW
    assert report.measured.p50_s == pytest.approx(report.expected.p50_s.value, rel=0.15)
    shown = capsys.readouterr().out
    assert "max_batch_size=16, batch_wait_timeout_s=0.2" in shown
    assert f"{report.prediction.p95_s.value:.3f}" in shown


def test_that_settings_are_spelled_as_in_every_command(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert run("--set", "allow_small_batch=off,max_batch_size=8", "--json", str(path)) == 0
    report = msgspec.json.decode(path.read_bytes(), type=PredictionReport)
    assert report.prediction.settings == NOW.revised({"allow_small_batch": False, "max_batch_size": 8})


def test_that_another_load_can_be_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    assert run("--users", "16", "--json", str(path)) == 0
    of_users = msgspec.json.decode(path.read_bytes(), type=PredictionReport)
    assert (of_users.prediction.load, of_users.prediction.users) == ("closed", 16)
    assert of_users.prediction.requests_per_s.value > of_users.expected.requests_per_s.value
    assert "closed loop of 16 users" in capsys.readouterr().out
    assert run("--rate", "0.5", "--json", str(path)) == 0
    of_rate = msgspec.json.decode(path.read_bytes(), type=PredictionReport)
    assert of_rate.prediction.requests_per_s.value == pytest.approx(0.5, rel=0.1)
    assert of_rate.prediction.p50_s is not None
    assert of_rate.expected.p50_s is not None
    assert of_rate.prediction.p50_s.value < of_rate.expected.p50_s.value


@pytest.mark.parametrize("load", [("--rate", "0"), ("--users", "1.5"), ("--users", "4", "--rate", "2")])
def test_that_a_load_that_cannot_be_is_refused(load: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as refusal:
        run(*load)
    assert refusal.value.code == 2


def test_that_saturation_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--set", "max_batch_size=1") == 0
    assert "Saturated: requests come faster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("max_batch_size=0", "max_batch_size: Must be a whole number from 1 to 256."),
        ("max_batch_size=2.5", "max_batch_size: Must be a whole number"),
        ("batch_wait_timeout_s=nan", "batch_wait_timeout_s: Must be a number"),
        ("formation=sideways", "formation: Must be one of late, early, continuous."),
        ("max_batch=8", "max_batch: Unknown setting."),
    ],
)
def test_that_a_refused_value_names_its_field(change: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--set", change) == 2
    assert sentence in capsys.readouterr().err


def test_that_no_load_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ToldService, "rate_per_s", 0.05)
    assert run("--set", "max_batch_size=16") == 2
    assert "too few to predict from" in capsys.readouterr().err


class SlowerAtLast(SyntheticRun):
    times: ClassVar[float]

    def _batch_s(self, batch: SyntheticBatch) -> float:
        return super()._batch_s(batch) * (self.times if batch.formed_s > self.duration_s - 10.0 else 1.0)


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (1.6, "The engine takes 1.6 times as long as when it was observed; no prediction"),
        (3.0, "Predictions are withheld until 10 s after the engine was slowed: a step takes 3."),
    ],
)
def test_that_an_engine_that_has_just_become_slower_is_said_instead(
    times: float, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SlowerAtLast, "times", times, raising=False)
    monkeypatch.setattr(ToldService, "run", SlowerAtLast)
    assert run("--set", "max_batch_size=16") == 2
    assert sentence in capsys.readouterr().err
