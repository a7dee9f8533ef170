"""`python -m service goal` against a service that tells of a run which never happened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import yaml

from service.commands import goal, runs
from service.commands.goal import GoalReport
from service.messages.settings import Settings, VersionedSettings
from tests.unit.test_predict_command import NOW, ToldService

FEW = ("--max-batch-size-up-to", "8")
HOLDS = ("--objective", "p95=1.5", "--rate", "3", *FEW)


class ChangedService(ToldService):
    """Keeps what it was changed to."""

    changed: Settings | None = None

    async def change(self, changes: Mapping[str, object]) -> VersionedSettings:
        ChangedService.changed = Settings(**changes)  # type: ignore[arg-type]
        return VersionedSettings(version=2, settings=ChangedService.changed)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goal, "RemoteService", ChangedService)
    monkeypatch.setattr(runs, "RemoteService", ChangedService)
    monkeypatch.setattr(ChangedService, "changed", None)


def run(*arguments: str) -> int:
    return goal.main(["--url", "http://127.0.0.1:8000", "--seconds", "0.5", *arguments])


def test_that_the_cheapest_that_holds_is_named_written_and_put_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {kind: tmp_path / f"goal.{kind}" for kind in ("json", "yaml")}

    assert run(*HOLDS, "--json", str(files["json"]), "--config", str(files["yaml"]), "--apply") == 0

    report = msgspec.json.decode(files["json"].read_bytes(), type=GoalReport)
    assert report.settings == NOW
    assert report.chosen == report.search.cheapest
    assert report.chosen is not None
    assert ChangedService.changed == report.chosen.settings
    shown = capsys.readouterr().out
    assert report.search.verdict in shown
    assert "cheapest that holds" in shown
    assert f"In force: {report.chosen.text}." in shown
    config = yaml.safe_load(files["yaml"].read_text())
    assert config["applications"][0]["args"]["settings"]["max_batch_size"] == report.chosen.settings.max_batch_size
    assert f"# {report.search.verdict}" in files["yaml"].read_text()
    assert "# Simulated by what was observed on" in files["yaml"].read_text()


def test_that_nothing_is_put_in_force_or_written_where_none_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "goal.yaml"
    assert run("--objective", "p95=0.1", *FEW, "--config", str(path), "--apply") == 1
    assert ChangedService.changed is None
    assert not path.exists()
    assert "In none of" in capsys.readouterr().out


def test_that_it_says_how_many_replicas_a_rate_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "goal.json"
    assert run("--objective", "p95=1.5", "--rate", "20", *FEW, "--json", str(path)) == 1

    planned = msgspec.json.decode(path.read_bytes(), type=GoalReport).replicas
    assert planned is not None
    assert planned.needed is not None
    shown = capsys.readouterr().out
    assert planned.sentence in shown
    (line,) = (line for line in shown.splitlines() if "the fewest that hold" in line)
    assert line.split()[0] == str(planned.needed.replicas)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Say what must hold, such as --objective p95=1.0"),
        (("--objective", "p95<=1.0"), "write p95=1.0, without"),
        (("--objective", "p96=1.0"), "Must be name=seconds"),
        (("--objective", "p95=1.0", "--json", "/no/such/folder/x.json"), "There is no folder /no/such/folder"),
    ],
)
def test_that_a_goal_that_cannot_be_is_refused_before_anything_is_watched(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(goal, "RemoteService")
    assert run(*arguments) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("--rate", "0"), ("--replicas-up-to", "0"), ("--max-batch-size-up-to", "257"), ("--rounds", "1")]
)
def test_that_a_number_that_cannot_be_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as refusal:
        run("--objective", "p95=1.0", *arguments)
    assert refusal.value.code == 2


def test_that_what_takes_more_replicas_is_not_measured_on_fewer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("--objective", "p95=1.2", "--rate", "7", "--replicas-up-to", "2", *FEW)
    assert run(*arguments, "--measure") == 2
    assert "What holds takes 2 replicas: redeploy the service first" in capsys.readouterr().err


def test_that_no_load_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ChangedService, "rate_per_s", 0.05)
    assert run(*HOLDS) == 2
    assert "too few to predict from" in capsys.readouterr().err
