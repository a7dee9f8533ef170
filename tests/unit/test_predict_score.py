"""What was predicted is held against what came, unless something else came between."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import msgspec
import pytest

from service.analysis.observed.scores import PredictionScores, Score
from service.analysis.predict.observation import Observation
from service.analysis.predict.predict import Estimate, Prediction, Predictor
from service.analysis.predict.score import KEPT, LATE_S, Outcome, Scores
from service.messages.settings import Settings
from service.messages.telemetry import FramesMissed
from tests.synthetic_run import Step, SyntheticRun, filled_history

BEFORE, AFTER = Settings(max_batch_size=4), Settings(max_batch_size=16, batch_wait_timeout_s=0.2)
CHANGED_S = 30.0
CHANGE = Step(CHANGED_S, settings=AFTER)


def run_of(*steps: Step, rate_per_s: float = 4.0) -> SyntheticRun:
    return SyntheticRun(75.0, (Step(0.0, rate_per_s, BEFORE), *steps), seed=5)


@cache
def predicted(settings: Settings = AFTER, rate_per_s: float = 4.0) -> Prediction:
    history, _ = filled_history(run_of(rate_per_s=rate_per_s), CHANGED_S)
    observation = Observation.of_history(history)
    assert observation is not None
    prediction = Predictor.of(observation).predict(settings)
    assert prediction is not None
    return prediction


def follow(run: SyntheticRun, prediction: Prediction, is_steady: bool = True) -> Scores:
    """The scores once the run is over, where the prediction was for its second version."""
    scores, (history, clock) = Scores(), filled_history(run, CHANGED_S)
    scores.expect(prediction, 2, history)
    for number, (telemetry, load) in enumerate(run.frames()):
        if telemetry.at_s > run.start_s + CHANGED_S:
            clock.now_s = telemetry.at_s
            history.add_telemetry(telemetry)
            history.add_load(load)
            if not number % 20:
                scores.follow(history, is_steady)
    return scores


def known(scores: Scores) -> PredictionScores:
    """As a recording holds them."""
    return msgspec.json.decode(msgspec.json.encode(scores.known_at(1075.0)), type=PredictionScores)


@cache
def followed() -> Scores:
    return follow(run_of(CHANGE), predicted())


def test_that_a_prediction_is_scored_against_what_came() -> None:
    run, prediction = run_of(CHANGE), predicted()
    scores = followed()
    [outcome] = scores.outcomes
    begin_s = next(batch.formed_s for batch in run.batches if batch.settings == AFTER)
    assert prediction.p95_s is not None
    assert prediction.worked_off_s is not None
    begin_s += prediction.worked_off_s.high + prediction.p95_s.high
    ended = [r for r in run.requests if begin_s < r.ended_s <= begin_s + prediction.window_s]
    assert outcome.measured.requests == len(ended)
    assert abs(outcome.error("p95_s") or 1.0) < 0.2
    assert outcome.is_inside("p95_s")
    assert known(scores).words.startswith("Predictions of p95, the last: error ")
    assert [line.split(",")[0] for line in known(scores).details.splitlines()] == ["p95", "p50", "TTFT p50", "TPOT p50"]
    assert not scores.unscored


def test_that_it_takes_as_long_as_the_prediction_is_for() -> None:
    prediction = predicted()
    assert prediction.p95_s is not None
    assert prediction.worked_off_s is not None
    due_s = CHANGED_S + prediction.worked_off_s.high + prediction.p95_s.high + prediction.window_s + LATE_S
    scores = Scores()
    history, _ = filled_history(run_of(CHANGE), due_s - 1.0)
    scores.expect(prediction, 2, history)
    scores.follow(history)
    assert (scores.is_waiting, scores.outcomes) == (True, [])
    history, _ = filled_history(run_of(CHANGE), due_s + 1.0)
    scores.follow(history)
    assert (scores.is_waiting, len(scores.outcomes)) == (False, 1)


def test_that_a_queue_that_grows_is_scored_where_it_stands_at_the_horizon() -> None:
    alone = Settings(max_batch_size=1)
    prediction = predicted(alone)
    assert prediction.saturated
    run = run_of(Step(CHANGED_S, settings=alone))
    scores = follow(run, prediction)
    [outcome] = scores.outcomes
    assert outcome.measured.p95_s is not None
    assert outcome.measured.p95_s > 10.0
    assert abs(outcome.error("p95_s") or 1.0) < 0.2


def test_that_a_steady_state_is_scored_once_the_backlog_is_worked_off() -> None:
    prediction = predicted(AFTER, rate_per_s=6.4)
    assert prediction.worked_off_s is not None
    assert prediction.worked_off_s.value > 3
    scores = follow(run_of(CHANGE, rate_per_s=6.4), prediction)
    [outcome] = scores.outcomes
    assert abs(outcome.error("p50_s") or 1.0) < 0.2


def test_that_requests_that_waited_before_do_not_count_although_few_wait_any_more() -> None:
    """The new settings take all of them at once; they are answered long after they came, and after that."""
    early, wide = (
        Settings(formation="early", max_batch_size=4, batch_wait_timeout_s=0.2),
        Settings(formation="continuous", max_batch_size=16, batch_wait_timeout_s=0.0),
    )
    steps = (Step(0.0, 2.6, early), Step(CHANGED_S, settings=wide))
    run = SyntheticRun(75.0, steps, seed=7)
    history, _ = filled_history(run, CHANGED_S)
    observation = Observation.of_history(history)
    assert observation is not None
    prediction = Predictor.of(observation).predict(wide)
    assert prediction is not None
    [outcome] = follow(run, prediction).outcomes
    before = [r.ended_s - r.received_s for r in run.requests if r.received_s < CHANGED_S < r.ended_s]
    assert max(before) > 3.0
    assert outcome.measured.p95_s is not None
    assert outcome.measured.p95_s < 2.0


@pytest.mark.parametrize(
    "other",
    [Step(CHANGED_S + 6.0, settings=BEFORE), Step(CHANGED_S + 6.0, rate_per_s=1.0)],
    ids=["settings", "load"],
)
def test_that_it_is_not_scored_where_its_conditions_changed_first(other: Step) -> None:
    scores = follow(run_of(CHANGE, other), predicted())
    assert (scores.is_waiting, scores.outcomes, scores.unscored) == (False, [], 1)
    assert "1 more prediction not scored" in known(scores).details


def test_that_it_is_not_scored_where_more_requests_came_than_it_assumes() -> None:
    """Of clients that do not tell of their load."""
    scores = follow(run_of(CHANGE), replace_rate(predicted(), 2.0))
    assert (scores.outcomes, scores.unscored) == ([], 1)


def test_that_it_is_not_scored_where_the_engine_became_slower() -> None:
    scores = follow(run_of(CHANGE), predicted(), is_steady=False)
    assert (scores.outcomes, scores.unscored) == ([], 1)


def test_that_it_is_not_scored_where_telemetry_was_missed() -> None:
    run, scores = run_of(CHANGE), Scores()
    history, clock = filled_history(run, CHANGED_S + 8.0)
    scores.expect(predicted(), 2, history)
    history.add_missed(FramesMissed(first=161, last=165))
    for telemetry, load in run.frames():
        if telemetry.at_s > run.start_s + CHANGED_S + 9.0:
            clock.now_s = telemetry.at_s
            history.add_telemetry(telemetry)
            history.add_load(load)
    scores.follow(history)
    assert (scores.outcomes, scores.unscored) == ([], 1)


def test_that_a_prediction_that_does_not_say_when_it_holds_is_not_scored() -> None:
    scores, (history, _) = Scores(), filled_history(run_of(CHANGE), CHANGED_S)
    scores.expect(msgspec.structs.replace(predicted(), worked_off_s=None), 2, history)
    assert (scores.is_waiting, scores.unscored) == (False, 1)


def test_that_the_next_prediction_takes_the_place_of_one_that_is_waited_for() -> None:
    scores, (history, _) = Scores(), filled_history(run_of(CHANGE), CHANGED_S)
    scores.expect(predicted(), 2, history)
    scores.expect(predicted(), 3, history)
    assert scores.unscored == 1


def test_that_a_score_is_of_the_sizes_of_the_errors() -> None:
    [outcome] = followed().outcomes
    measured = outcome.measured.p95_s
    assert measured is not None
    outcomes = [with_p95(outcome, share * measured) for share in (0.9, 1.02, 1.3)]
    score = Score.of(outcomes)
    assert score is not None
    assert (score.count, score.inside) == (3, 2)
    assert score.median_error == pytest.approx(0.1)


def test_that_only_the_last_ones_are_kept() -> None:
    scores, (history, _) = Scores(), filled_history(run_of(CHANGE))
    for _ in range(KEPT + 3):
        scores.expect(predicted(), 2, history)
        scores.follow(history)
    assert len(scores.outcomes) == KEPT
    assert known(scores).words.startswith(f"Predictions of p95, last {KEPT}: median error ")


def with_p95(outcome: Outcome, value_s: float) -> Outcome:
    """With a prediction of this value and a band of a tenth to either side."""
    estimate = Estimate(value_s, 0.89 * value_s, 1.12 * value_s)
    return replace(outcome, prediction=msgspec.structs.replace(outcome.prediction, p95_s=estimate))


def replace_rate(prediction: Prediction, rate_per_s: float) -> Prediction:
    return msgspec.structs.replace(prediction, rate_per_s=rate_per_s)
