"""A prediction begins with what waits, is sealed or runs at present, and says how long that takes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from service.analysis.observed.history import History
from service.analysis.predict.load import Arrival, OpenLoop
from service.analysis.predict.observation import Backlog, Observation, ReplicaBacklog, Running
from service.analysis.predict.predict import HORIZON_S, Estimate, Prediction, Predictor
from service.analysis.predict.replicas import RunningBatch, Underway
from service.analysis.predict.simulation import Held, Start, simulate
from service.messages.settings import Settings
from tests.synthetic_run import CLOCK, Step, SyntheticRun
from tests.unit.test_predict_continuous import EngineOfSteps
from tests.unit.test_predict_simulate import EngineOfOneTime

SMALL, LARGE = Settings(max_batch_size=2), Settings(max_batch_size=16)
CHANGED_S = 30.0


def run_into(settings: Settings) -> SyntheticRun:
    """Two at a time are too few for the load; after half a minute other settings come."""
    steps = (Step(0.0, 5.0, SMALL), Step(CHANGED_S, settings=settings))
    return SyntheticRun(CHANGED_S + 2 * HORIZON_S, steps, seed=6)


@cache
def predictor_behind_a_backlog() -> Predictor:
    run = run_into(SMALL)
    history = History(CLOCK, lambda: run.start_s + CHANGED_S)
    run.fill(history, CHANGED_S)
    observation = Observation.of_history(history)
    assert observation is not None
    return Predictor.of(observation)


def predicted(settings: Settings) -> Prediction:
    prediction = predictor_behind_a_backlog().predict(settings)
    assert prediction is not None
    return prediction


def waiting(run: SyntheticRun, at_s: float) -> int:
    return sum(r.received_s <= at_s and (r.started_s is None or r.started_s > at_s) for r in run.requests)


def latencies_s(run: SyntheticRun, begin_s: float, end_s: float) -> list[float]:
    return [r.ended_s - r.received_s for r in run.requests if begin_s <= r.ended_s < end_s]


def test_that_the_time_until_the_backlog_is_worked_off_is_predicted() -> None:
    run, prediction = run_into(LARGE), predicted(LARGE)
    assert prediction.backlog == pytest.approx(waiting(run, CHANGED_S), abs=1)
    usual = np.percentile([waiting(run, at_s) for at_s in np.linspace(65.0, 90.0, 100)], 90)
    took_s = next(s for s in np.arange(0.0, 30.0, 0.5) if waiting(run, CHANGED_S + s) <= usual)
    assert not prediction.saturated
    assert prediction.worked_off_s is not None
    assert prediction.worked_off_s.value > 5
    assert prediction.worked_off_s.low - 1 <= took_s <= prediction.worked_off_s.high + 1
    assert prediction.is_after_backlog


def test_that_latency_and_queue_are_predicted_on_the_way() -> None:
    run, course = run_into(LARGE), predicted(LARGE).trajectory
    inside = []
    assert course.waiting[0] == Estimate(*3 * (waiting(run, CHANGED_S),)), "it begins at what waits now"
    for second in range(1, int(HORIZON_S) + 1):
        end_s = CHANGED_S + second
        answered = latencies_s(run, end_s - 1, end_s)
        depth, p95_s = course.waiting[second], course.p95_s[second]
        assert depth is not None
        inside.append(depth.low - 2 <= waiting(run, end_s) <= depth.high + 2)
        if answered and p95_s is not None:
            inside.append(p95_s.low * 0.95 <= np.percentile(answered, 95) <= p95_s.high * 1.05)
    assert np.mean(inside) > 0.8
    first = next(each for each in course.p95_s if each is not None)
    then = predicted(LARGE).p95_s
    assert then is not None
    assert first.value > 4 * then.value


def test_that_the_steady_state_comes_after_the_backlog() -> None:
    run, prediction = run_into(LARGE), predicted(LARGE)
    assert prediction.p50_s is not None
    assert prediction.p50_s.value == pytest.approx(np.median(latencies_s(run, 60.0, 90.0)), rel=0.15)


def test_that_where_the_queue_grows_it_grows_from_what_waits() -> None:
    run, prediction = run_into(SMALL), predicted(SMALL)
    assert prediction.saturated
    assert prediction.worked_off_s is None
    assert prediction.p50_s is not None
    reached_s = np.median(latencies_s(run, CHANGED_S + HORIZON_S - 10.0, CHANGED_S + HORIZON_S))
    assert prediction.p50_s.value == pytest.approx(reached_s, rel=0.2)


def test_that_the_course_is_known_where_batches_take_longer_than_its_steps() -> None:
    """In a second either a whole batch is answered or none; the course is no comb of these."""
    run = SyntheticRun(CHANGED_S, (Step(0.0, 2.0, SMALL),), seed=6, step_s=0.12)
    history = History(CLOCK, lambda: run.start_s + CHANGED_S)
    run.fill(history, CHANGED_S)
    observation = Observation.of_history(history)
    assert observation is not None
    prediction = Predictor.of(observation).predict(LARGE)
    assert prediction is not None
    course = prediction.trajectory
    assert all(course.p95_s)
    rates = [each.value for each in course.requests_per_s if each is not None]
    assert all(0.5 < later / earlier < 2.0 for earlier, later in pairwise(rates))


def test_that_a_latency_without_answers_is_unknown() -> None:
    nobody = predictor_behind_a_backlog().predict(LARGE.revised({"allow_small_batch": False, "max_batch_size": 200}))
    assert nobody is not None
    assert nobody.trajectory.p50_s[0] is not None, "the batch that runs is answered"
    assert nobody.trajectory.p50_s[9] is None


def arrivals(times_s: list[float], tokens: int = 1) -> tuple[Arrival, ...]:
    return tuple(Arrival(at_s, at_s, tokens) for at_s in times_s)


@pytest.mark.parametrize("formation", ["late", "early", "continuous"])
def test_that_sealed_batches_run_first_and_as_they_are(formation: str) -> None:
    """In whatever formation comes after the one that sealed them."""
    held = Held(arrivals([-0.1]), (arrivals([-3.0]), arrivals([-2.0, -1.9])), (RunningBatch((), 0.5),))
    rules = Settings(max_batch_size=8, batch_wait_timeout_s=0.0).revised({"formation": formation})
    run = simulate(rules, EngineOfBoth(), OpenLoop([]), 10, start=Start((held,)))
    assert [len(batch.members) for batch in run.batches] == [1, 2, 1]
    assert [batch.started_s for batch in run.batches] == pytest.approx([0.5, 1.5, 2.5])


class EngineOfBoth(EngineOfSteps):
    def __init__(self) -> None:
        super().__init__(0.0, 1.0)

    run = EngineOfOneTime(1.0).run


def test_that_a_running_batch_that_is_open_is_joined_and_one_that_is_not_is_waited_for() -> None:
    members = tuple(Underway(arrival, 4, 0.4) for arrival in arrivals([-1.0, -1.0], 9))
    rules = Settings(formation="continuous", max_batch_size=8, batch_wait_timeout_s=0.0)
    for is_open, starts_s in ((True, 0.1), (False, 0.4)):
        held = Held(arrivals([-0.05], 3), running=(RunningBatch(members, 0.4, is_open),))
        run = simulate(rules, EngineOfSteps(0.0, 0.1), OpenLoop([]), 10, start=Start((held,)))
        assert run.requests[-1].started_s == pytest.approx(starts_s)
        assert [request.finished_s for request in run.requests[:2]] == pytest.approx([0.4, 0.4])


def test_that_users_in_two_groups_stay_in_two_groups() -> None:
    """Half of them run and half are sealed: answered in turns, they never come together under `early`."""
    running = Running(arrivals([-0.5] * 6, 24), (8,) * 6, 0.4, is_open=False)
    sealed = arrivals([-0.3] * 6, 24)
    present = predictor_behind_a_backlog()
    backlog = Backlog((ReplicaBacklog(sealed=(sealed,), running=(running,)),))
    predictor = replace(present, load=present.load.of_users(12), backlog=backlog)
    prediction = predictor.predict(Settings(formation="early", max_batch_size=16, batch_wait_timeout_s=0.05))
    assert prediction is not None
    assert prediction.mean_batch is not None
    assert prediction.mean_batch.value == pytest.approx(6.0, rel=0.1)
    assert prediction.ttft_p50_s is not None
    assert prediction.ttft_p50_s.value > 0.5, "a user waits for the other half"


def test_that_requests_on_their_way_arrive() -> None:
    start = Start((Held(),), coming=arrivals([-0.5]))
    run = simulate(LARGE, EngineOfOneTime(1.0), OpenLoop([]), 10, start=start)
    assert [request.enqueued_s for request in run.requests] == [0.0]
