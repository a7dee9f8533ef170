"""`python -m service explain`: what a recording shows, when it held, as text and as a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.__main__ import main
from service.analysis.findings.ranking import findings, findings_over_time
from service.analysis.observed.annotations import ClockJump
from service.analysis.observed.register import written
from service.analysis.observed.scores import PredictionScores, ScoredFigure, ScoredPrediction
from service.analysis.observed.statistics import figures
from service.analysis.recording.format import ClockJumped, Entry, PredictionsScored
from service.analysis.recording.reader import open_recording
from service.commands.explain import FIGURES
from service.messages.load import LoadFrame
from service.messages.settings import Settings
from tests.recorded import entries_of, write_recording
from tests.synthetic_run import Step, SyntheticRun, filled_history

STORY = SyntheticRun(
    70.0,
    (
        Step(0.0, 4.0, Settings(max_batch_size=2)),
        Step(25.0, settings=Settings(max_batch_size=16)),
        Step(45.0, settings=Settings(formation="early")),
    ),
)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("story") / "story.bsr", entries_of(STORY))


def explained(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, str]:
    assert main(["explain", *map(str, arguments)]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_that_each_finding_is_told_with_the_time_in_which_it_held(
    story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = explained(capsys, story, "--json", tmp_path / "out.json")
    told = json.loads((tmp_path / "out.json").read_text())
    found = {finding["rule"]: finding for finding in told["findings"]}
    assert {"recording", "model", "duration_s", "requests", "damage"} < told.keys()
    ((begin_s, end_s),) = found["sealed_early"]["spans_s"]
    assert 45 <= begin_s <= 52
    assert end_s == pytest.approx(70, abs=0.1)
    assert found["saturated"]["spans_s"][0][0] < 25
    assert all(
        {"severity", "evidence", "advice", "data", "control", "title"} < finding.keys() for finding in told["findings"]
    )
    assert f"! Batches are sealed too early ({begin_s:.0f} to {end_s:.0f} s)" in out
    assert "→ Set formation to late" in out


def test_that_a_jump_of_the_clock_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = entries_of(SyntheticRun(20.0))
    jumped = Entry(at_s=entries[-1].at_s, event=ClockJumped(jump=ClockJump(1014.9, 1015.1, -60.0)))
    out, _ = explained(capsys, write_recording(tmp_path / "a.bsr", [*entries, jumped]))
    assert "From 15 s to 15 s the time of day jumped back by 60 s: the machine slept, or its clock was set." in out


def test_that_the_score_of_predictions_is_that_of_the_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = entries_of(SyntheticRun(20.0))
    scored = ScoredPrediction(figures={"p95_s": ScoredFigure(0.9, 0.8, 1.1, 1.0)})
    known = PredictionsScored(scores=PredictionScores(at_s=1010.0, predictions=(scored,)))
    path = write_recording(tmp_path / "a.bsr", [*entries, Entry(at_s=entries[-1].at_s, event=known)])
    said = "Predictions of p95, the last: error 10 %, inside its band."
    assert said in explained(capsys, path)[0]
    assert said in explained(capsys, path, "--at", "11")[0]
    assert said not in explained(capsys, path, "--at", "9")[0]


def test_that_the_figures_are_those_that_the_window_shows_at_the_end(
    story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = explained(capsys, story, "--json", tmp_path / "out.json")
    shown = json.loads((tmp_path / "out.json").read_text())["figures"]
    recording = open_recording(story)
    assert shown == written(figures(recording.history, recording.history.now_s()), FIGURES)
    assert f"The figures that the window shows then: requests/s {shown['requests/s']}, " in out


def test_that_a_moment_is_explained_as_it_was_then(
    story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = explained(capsys, story, "--json", tmp_path / "out.json", "--at", "20")
    told = json.loads((tmp_path / "out.json").read_text())
    history, _ = filled_history(STORY, 20.0)
    assert [f["rule"] for f in told["findings"]] == [f.rule for f in findings(history)]
    assert told["at_s"] == 20.0
    assert f"At 20 s: {told['verdict']}" in out
    assert told["verdict"].startswith("More arrives than can be answered: ")
    assert "sealed too early" not in out


def test_that_a_moment_outside_is_refused_with_what_there_is(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(story), "--at", "71"]) == 2
    assert capsys.readouterr().err == "--at must be from 0 to 70.0, the seconds that were recorded.\n"


def test_that_the_verdict_comes_before_the_findings(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = explained(capsys, story)
    [stated] = [line for line in out.splitlines() if line.startswith("At the end: ")]
    assert stated.startswith("At the end: Batches are sealed too early: p95 ")
    assert out.index(stated) < out.index("! ")


def test_that_a_foreign_file_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "foreign").write_bytes(b"PK\x03\x04")
    assert main(["explain", str(tmp_path / "foreign")]) == 2
    assert "is not a recording of Batchscope" in capsys.readouterr().err


def test_that_nothing_is_remarked_where_nothing_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    idle = SyntheticRun(5.0, (Step(0.0, 0.0, Settings()),))
    out, _ = explained(capsys, write_recording(tmp_path / "idle.bsr", entries_of(idle)))
    assert "Nothing to remark: no batch ran." in out


def test_that_a_recording_without_the_load_says_that_it_is_unknown(
    story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = "The load was not recorded: its pattern, and whether its sender kept up, are unknown."
    heard = [entry for entry in entries_of(STORY) if not isinstance(entry.event, LoadFrame)]
    out, _ = explained(capsys, write_recording(tmp_path / "service.bsr", heard))
    assert unknown in out
    assert unknown not in explained(capsys, story)[0]


def test_that_where_nothing_is_found_it_is_told_on_what_that_rests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    brief = SyntheticRun(1.5, (Step(0.0, 4.0, Settings()),))
    out, _ = explained(capsys, write_recording(tmp_path / "brief.bsr", entries_of(brief)))
    assert "Too few to judge: " in out


def test_that_an_advice_is_printed_with_what_it_is_expected_to_give(
    story: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Expected: " in explained(capsys, story)[0]


def test_that_a_finding_that_flickers_is_passed_over() -> None:
    history, clock = filled_history(STORY)
    held = findings_over_time(history, clock.now_s - 70.0, clock.now_s)
    assert held
    assert all(until_s - since_s >= 2.0 for found in held for since_s, until_s in found.spans_s)
