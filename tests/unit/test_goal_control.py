"""The search and Hold as processes of the window: lines in, lines out."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from service.analysis.compare.progress import Refused
from service.analysis.goal.control import (
    NOT_PREDICTED,
    ROUNDS,
    HoldEvent,
    Searched,
    SearchEvent,
    SearchTask,
    carry_out,
)
from service.analysis.goal.hold import Said
from service.analysis.goal.planner import ReplicaPlan
from service.analysis.goal.search import Goal, SearchProgress, choices_of, search
from service.analysis.predict.observation import ENCODER, Observation, as_array
from service.analysis.predict.predict import Predictor
from service.messages.load import ClosedLoop, OnOff, Pattern, Poisson
from service.messages.objectives import Objectives
from service.messages.pipes import ExitCode
from tests.unit.test_predict import OBSERVED, observed

GOAL = Goal(objectives=Objectives(latency_s=1.5), max_batch_size_up_to=4)
PROMPTS = ("Once upon a time", "A batch is")


def task(pattern: Pattern | None = None, goal: Goal = GOAL) -> SearchTask:
    observation = Observation.of_history(observed(), over_s=60.0)
    assert observation is not None
    return SearchTask(observation=observation, goal=goal, base=OBSERVED, prompts=PROMPTS, pattern=pattern)


def events_of(searched: SearchTask) -> list[SearchEvent]:
    """What the window hears of a search whose task it has written."""
    line = ENCODER.encode(searched)
    heard = list[bytes]()
    received = msgspec.json.decode(line, type=SearchTask, dec_hook=as_array)
    carry_out(received, lambda event: heard.append(msgspec.json.encode(event)))
    return [msgspec.json.decode(each, type=SearchEvent) for each in heard]


def test_that_the_window_hears_how_far_it_is_and_what_was_found() -> None:
    *progress, last = (each for each in events_of(task()) if not isinstance(each, ReplicaPlan))
    predictor = Predictor.of(task().observation)

    assert isinstance(last, Searched)
    assert last.search == search(predictor, GOAL, choices_of(predictor, GOAL, OBSERVED))
    assert all(isinstance(each, SearchProgress) for each in progress)
    assert last.runs == max(each.runs for each in progress if isinstance(each, SearchProgress))


def test_that_the_best_can_be_measured_under_the_load_that_was_searched_for() -> None:
    last = events_of(task(Poisson(rate_per_s=2.0)))[-1]
    assert isinstance(last, Searched)
    assert last.plan is not None
    assert last.plan.points == tuple([last.search.candidates[place].settings for place in last.search.holding])
    assert last.plan.load.pattern == Poisson(rate_per_s=2.0)
    assert last.plan.load.prompts == PROMPTS
    assert (last.plan.rounds, last.plan.objectives) == (ROUNDS, GOAL.objectives)


def test_that_where_nothing_holds_it_hears_how_many_replicas_it_takes() -> None:
    *_, searched, planned = events_of(task(Poisson(rate_per_s=20.0)))
    assert isinstance(searched, Searched)
    assert not searched.search.holding
    assert isinstance(planned, ReplicaPlan)
    assert planned.needed is not None
    assert planned.needed.replicas > 1


def test_that_what_takes_more_replicas_than_there_are_is_not_measured() -> None:
    two = Goal(objectives=Objectives(latency_s=1.2), max_batch_size_up_to=8, replicas_up_to=2)
    last = events_of(task(Poisson(rate_per_s=7.0), two))[-1]
    assert isinstance(last, Searched)
    assert last.search.cheapest is not None
    assert last.search.cheapest.replicas == 2
    assert last.plan is None


def test_that_users_are_searched_for_too() -> None:
    last = events_of(task(ClosedLoop(users=3)))[-1]
    assert isinstance(last, Searched)
    assert last.search.users == 3


def test_that_a_load_that_is_not_predicted_is_refused_in_words() -> None:
    (refused,) = events_of(task(OnOff(rate_per_s=4.0, on_s=1.0, off_s=1.0)))
    assert refused == Refused(reason=NOT_PREDICTED)


def test_that_a_goal_that_says_nothing_is_refused_in_words() -> None:
    (refused,) = events_of(task(goal=Goal(objectives=Objectives())))
    assert isinstance(refused, Refused)
    assert "Say what must hold" in refused.reason


def test_that_the_process_searches_and_ends() -> None:
    command = [sys.executable, "-m", "service", "goal", "--control"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(ENCODER.encode(task()) + b"\n")
        process.stdin.flush()
        events = [msgspec.json.decode(line, type=SearchEvent) for line in process.stdout]
        assert [type(each) for each in events[-2:]] == [Searched, ReplicaPlan]
        assert process.wait() == ExitCode.DONE


def test_that_it_ends_in_the_midst_of_a_search_where_its_input_does() -> None:
    command = [sys.executable, "-m", "service", "goal", "--control"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        many = msgspec.structs.replace(GOAL, max_batch_size_up_to=256, replicas_up_to=8)
        process.stdin.write(ENCODER.encode(task(goal=many)) + b"\n")
        process.stdin.flush()
        assert isinstance(msgspec.json.decode(process.stdout.readline(), type=SearchEvent), SearchProgress)
        process.stdin.close()
        assert process.wait() == ExitCode.INTERRUPTED


def test_that_a_task_that_is_not_understood_is_refused() -> None:
    command = [sys.executable, "-m", "service", "goal", "--control"]
    run = subprocess.run(command, input=b"nonsense\n", capture_output=True, check=False)
    assert run.returncode == ExitCode.CANNOT
    refused = msgspec.json.decode(run.stdout, type=SearchEvent)
    assert isinstance(refused, Refused)
    assert "not understood" in refused.reason


@pytest.mark.parametrize("event", [Said(sentence="x", ends=True), Refused(reason="y")])
def test_that_what_hold_says_survives_its_journey(event: HoldEvent) -> None:
    assert msgspec.json.decode(msgspec.json.encode(event), type=HoldEvent) == event
