"""Stretches in which the engine was slowed: found where they are, said in words, and nowhere in a healthy run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.__main__ import main
from service.analysis.findings.facts import Facts, Finding
from service.analysis.findings.ranking import UNDISTURBED, findings
from service.analysis.observed.contention import LEAST_SHARE, Contention, contentions
from service.analysis.observed.history import History
from service.analysis.predict.cost import CostModel
from service.analysis.predict.observation import Observation
from service.analysis.predict.speed import Withheld
from service.analysis.recording.reader import open_recording
from service.messages.settings import Settings
from tests.recorded import entries_of, write_recording
from tests.synthetic_run import (
    CLOCK,
    HEALTHY,
    FakeClock,
    Slowed,
    Step,
    SyntheticRun,
    continuous_run,
    early_run,
    filled_history,
    picture_run,
)

RECORDINGS = Path(__file__).parents[1] / "recordings"
DISTURBED = "early.bsr"  # the machine had other work while it was made: batches of one took 3.3 and 2.5 s, not 0.85 s
BUSY = (Step(0.0, 8.0, Settings(max_batch_size=4)),)
BEGIN_S, END_S = 30.0, 40.0
SLOWED = (Slowed(BEGIN_S, END_S, 3.0),)
LATE = SyntheticRun(70.0, BUSY, slowed=SLOWED)
MEASURED = replace(LATE, measures_processor=True)
OPEN = SyntheticRun(
    70.0, (Step(0.0, 5.0, Settings(max_batch_size=8, formation="continuous")),), slowed=SLOWED, tokens_spread=12
)


def slowed_in(run: SyntheticRun, until_s: float | None = None) -> Sequence[Contention]:
    """The stretches, in seconds from the run's begin."""
    history, clock = filled_history(run, until_s)
    return [
        replace(each, start_s=each.start_s - run.start_s, end_s=each.end_s and each.end_s - run.start_s)
        for each in contentions(history, clock.now_s)
    ]


@pytest.mark.parametrize("run", [LATE, MEASURED, OPEN], ids=["late", "measured", "continuous"])
def test_that_a_stretch_in_which_steps_take_three_times_as_long_is_found_from_its_begin_to_its_end(
    run: SyntheticRun,
) -> None:
    (found,) = slowed_in(run)
    assert found.start_s == pytest.approx(BEGIN_S, abs=2.5)
    assert found.end_s == pytest.approx(END_S, abs=3.5), "a batch that began in it may end later"
    assert found.factor == pytest.approx(3.0, rel=0.25)
    assert found.text.startswith(f"slowed {found.factor:.1f} ×, ")


def test_that_its_cause_is_said_where_telemetry_shows_it_and_only_there() -> None:
    (unmeasured,), (measured,) = slowed_in(LATE), slowed_in(MEASURED)
    assert unmeasured.words == f"a step took {unmeasured.factor:.1f} times as long"
    assert measured.share == pytest.approx(HEALTHY / 3, abs=0.05)
    assert f": the engine got {100 * (measured.share or 0.0):.0f} % of the processor time that" in measured.words


def test_that_a_stretch_without_like_batches_is_found_by_the_processor_time_and_its_factor_is_unknown() -> None:
    """The engine is slowed from the first request on, so that nobody knows what a step takes otherwise."""
    (found,) = slowed_in(replace(MEASURED, slowed=(Slowed(0.0, 70.0, 3.0),)))
    assert (found.factor, found.end_s) == (None, None)
    assert found.words == "the engine gets 30 % of the processor time that it asks for"
    assert found.text.startswith("processor got 30 %, ")


def test_that_a_stretch_that_lasts_has_no_end_yet() -> None:
    (found,) = slowed_in(MEASURED, END_S - 1.0)
    assert (found.end_s, found.is_over) == (None, False)
    assert found.words.startswith("a step takes ")


@pytest.mark.parametrize("factor", [1.3, 1.6])
def test_that_one_busy_program_is_no_contention(factor: float) -> None:
    assert HEALTHY / factor > LEAST_SHARE
    assert slowed_in(replace(MEASURED, slowed=(Slowed(BEGIN_S, END_S, factor),))) == []


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("make", [picture_run, early_run, continuous_run])
def test_that_a_healthy_run_has_none(make: type[SyntheticRun], seed: int) -> None:
    run = replace(make(seed=seed), measures_processor=True)  # type: ignore[call-arg]
    assert slowed_in(run) == []


def test_that_longer_requests_and_larger_batches_are_no_contention() -> None:
    small, large = Settings(max_batch_size=2), Settings(max_batch_size=32)
    run = SyntheticRun(60.0, (Step(0.0, 2.0, small), Step(20.0, 12.0), Step(40.0, settings=large)), per_request_s=0.02)
    assert slowed_in(run) == []


@pytest.mark.parametrize("path", sorted(RECORDINGS.rglob("*.bsr")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_that_recordings_of_the_real_service_have_none_but_where_a_step_did_take_longer(path: Path) -> None:
    history = open_recording(path).history
    found = contentions(history, history.now_s())
    if path.parent == RECORDINGS and path.name == DISTURBED:
        table = history.batches.columns
        single = (table["size"] == 1) & np.isfinite(table["finished"])
        started, run_s = table["started"][single], table["finished"][single] - table["started"][single]
        slow = started[run_s > 2 * np.median(run_s)]
        assert len(found) == len(slow) == 2
        assert all(each.overlaps(at_s, at_s + 1.0) for each, at_s in zip(found, slow, strict=True))
    else:
        assert found == ()


def seen_by(ahead_s: Callable[[float], float]) -> History:
    """A run of ten seconds, seen by a machine whose time of day is so far ahead."""
    clock = FakeClock()
    history = History(CLOCK, clock, wall_clock=lambda: clock.wall_time() + ahead_s(clock.now_s))
    for frame, _ in SyntheticRun(10.0, BUSY).frames():
        clock.now_s = frame.at_s
        history.add_telemetry(frame)
    return history


@pytest.mark.parametrize(
    ("ahead_s", "text", "words"),
    [
        (60.0, "clock +60 s", "forward by 60 s"),
        (3600.0, "clock +3600 s", "forward by 3600 s"),
        (-3600.0, "clock −3600 s", "back by 3600 s"),
    ],
)
@pytest.mark.promise("T21")
def test_that_a_clock_that_jumps_is_a_stretch_too(ahead_s: float, text: str, words: str) -> None:
    history = seen_by(lambda now_s: ahead_s if now_s > 1005.0 else 0.0)
    (found,) = contentions(history, 1010.0)
    assert (found.text, found.jump_s) == (text, ahead_s)
    assert found.start_s == pytest.approx(1005.0, abs=0.1)
    (said,) = (each for each in findings(history) if each.rule == "engine_slowed")
    assert said.title == "The clock jumped"
    assert f"the time of day jumped {words}: the machine slept, or its clock was set." in said.evidence


@pytest.mark.promise("T21")
def test_that_a_clock_that_is_corrected_by_milliseconds_does_not_jump() -> None:
    """By 5 ms to and fro ten times a second, as a bad source of time does."""
    history = seen_by(lambda now_s: 0.005 if int(now_s * 10) % 2 else -0.005)
    assert contentions(history, 1010.0) == ()


# ------------------------------------------------------------------------------------------- findings and predictions


def said_at(run: SyntheticRun, at_s: float) -> dict[str, Finding]:
    return {finding.rule: finding for finding in findings(filled_history(run, at_s)[0])}


def test_that_the_window_says_that_the_engine_is_slowed_and_withholds_what_that_falsifies() -> None:
    before, meanwhile = said_at(MEASURED, BEGIN_S), said_at(MEASURED, END_S - 1.0)
    assert "engine_slowed" not in before
    assert before.keys() - UNDISTURBED, "there was something to say"
    assert meanwhile.keys() <= UNDISTURBED
    said = meanwhile["engine_slowed"]
    assert (said.severity, said.title) == ("warning", "The engine is slowed")
    assert said.evidence.startswith("Since ")
    assert "Findings and predictions of that stretch are withheld." in said.evidence
    assert said.advice.startswith("End other programs on this machine")


def test_that_no_cause_is_advised_upon_that_telemetry_does_not_show() -> None:
    said = said_at(LATE, END_S + 4.0)["engine_slowed"]
    assert (said.title, said.advice) == ("The engine was slowed", "")
    assert "processor" not in said.evidence


def test_that_findings_return_ten_seconds_after_and_judge_by_what_came_since() -> None:
    history, clock = filled_history(MEASURED, END_S + 15.0)
    facts = Facts.at(history, clock.now_s)
    assert facts is not None
    (found,) = facts.contentions
    assert found.end_s is not None
    assert min(facts.since_s, facts.steady_since_s) >= found.end_s
    said = {finding.rule: finding for finding in findings(history)}
    assert said["engine_slowed"].severity == "info"
    assert said.keys() - UNDISTURBED


def test_that_a_lost_replica_is_said_all_the_same() -> None:
    history, clock = filled_history(MEASURED, END_S - 1.0)
    history.outages.open(clock.now_s - 2.0, "r1 lost")
    assert [finding.rule for finding in findings(history)][:2] == ["replica_lost", "engine_slowed"]


def test_that_nothing_is_predicted_from_the_stretch_and_the_reason_is_said() -> None:
    history, _ = filled_history(MEASURED, END_S - 1.0)
    assert Observation.of_history(history) is None
    withheld = Withheld.at(history)
    assert withheld is not None
    assert withheld.sentence.startswith(
        "Predictions are withheld until 10 s after the engine was slowed: a step takes "
    )
    assert Withheld.at(filled_history(MEASURED, BEGIN_S)[0]) is None
    assert Withheld.at(History(CLOCK, lambda: 0.0)) is None


def test_that_predictions_return_and_are_built_on_what_was_not_slowed() -> None:
    history, _ = filled_history(MEASURED, 65.0)
    observation = Observation.of_history(history)
    assert (Withheld.at(history), observation is None) == (None, False)
    slowed, calm = (CostModel.of_history(filled_history(run, 65.0)[0]) for run in (MEASURED, replace(LATE, slowed=())))
    assert slowed is not None
    assert calm is not None
    assert slowed.batch_s(4) == pytest.approx(calm.batch_s(4), rel=0.05)


def test_that_explain_says_when_the_engine_was_slowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_recording(tmp_path / "slowed.bsr", entries_of(MEASURED))
    (found,) = slowed_in(MEASURED)
    assert main(["explain", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"From {found.start_s:.0f} s to {found.end_s:.0f} s {found.words}." in out
    assert "The engine was slowed" in out
