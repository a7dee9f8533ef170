"""What is measured, in which order, and how long that takes."""

from __future__ import annotations

import msgspec
import pytest

from service.analysis.compare.progress import Backlog, Duration, RemainingTime
from service.analysis.compare.run_plan import ComparePlan, PlanError, Side, SweepPlan, grid
from service.messages.load import Poisson, RunLoad
from service.messages.objectives import Objectives
from service.messages.settings import SettingError, Settings

LOAD = RunLoad(pattern=Poisson(rate_per_s=4), prompts=("Once",))
LATE, EARLY = Settings(formation="late"), Settings(formation="early")


def compare_plan(**fields: object) -> ComparePlan:
    return ComparePlan(a=Side(settings=LATE, load=LOAD), b=Side(settings=EARLY, load=LOAD), **fields)  # type: ignore[arg-type]


def test_that_the_order_of_the_sides_turns_round_from_round_to_round() -> None:
    order = [run.key for run in compare_plan(rounds=4).runs()]

    assert order == ["A", "B", "B", "A", "A", "B", "B", "A"]


def test_that_both_sides_of_a_round_have_one_seed_and_each_round_another() -> None:
    seeds = [(run.round, run.load.seed) for run in compare_plan(rounds=3, seed=7).runs()]

    assert seeds == [(0, 7), (0, 7), (1, 8), (1, 8), (2, 9), (2, 9)]


def test_that_each_side_runs_under_its_own_settings() -> None:
    assert {(run.key, run.settings) for run in compare_plan(rounds=2).runs()} == {("A", LATE), ("B", EARLY)}


def test_that_a_plan_with_one_round_is_refused_as_it_could_tell_nothing() -> None:
    encoded = msgspec.json.encode(compare_plan(rounds=1))

    with pytest.raises(msgspec.ValidationError, match="rounds"):
        msgspec.json.decode(encoded, type=ComparePlan)


def test_that_a_sweep_goes_there_and_back_with_one_seed_a_round() -> None:
    plan = SweepPlan(points=(LATE, EARLY), load=LOAD, rounds=2, seed=3)

    assert [(run.key, run.load.seed) for run in plan.runs()] == [(0, 3), (1, 3), (1, 4), (0, 4)]


def test_that_a_grid_is_every_combination_and_none_twice() -> None:
    points = grid(LATE, {"max_batch_size": [1, 4, 4], "batch_wait_timeout_s": [0, 0.05]})

    assert [(each.max_batch_size, each.batch_wait_timeout_s) for each in points] == [
        (1, 0),
        (1, 0.05),
        (4, 0),
        (4, 0.05),
    ]


def test_that_a_grid_with_a_value_that_a_setting_refuses_is_refused() -> None:
    with pytest.raises(SettingError, match="max_batch_size"):
        grid(LATE, {"max_batch_size": [4, 0]})


def test_that_a_grid_that_nobody_would_wait_for_is_refused() -> None:
    with pytest.raises(PlanError, match="too many"):
        grid(LATE, {"max_batch_size": range(1, 200), "max_queued_requests": range(1, 200)})


def test_that_goodput_is_compared_where_there_are_objectives() -> None:
    compare_plan(figure="goodput_per_s", objectives=Objectives(latency_s=1.0)).check()
    with pytest.raises(PlanError, match="needs objectives"):
        compare_plan(figure="goodput_per_s").check()


def test_that_how_long_it_takes_is_said_beforehand_with_what_it_consists_of() -> None:
    sweep = SweepPlan(points=grid(LATE, {"max_batch_size": [1, 2, 4, 8, 16, 32]}), load=LOAD, duration_s=30.0)
    again = msgspec.structs.replace(sweep, rounds=2)

    assert Duration.of(sweep, answer_s=6.5).text == "about 4 min: 6 settings × 30 s + 8.0 s each, after 10 s of warm-up"
    assert Duration.of(again).text.startswith("about 6 min: 12 runs × 30 s + 1.5 s each")
    assert Duration.of(sweep, to_come=2).text.startswith("about 66 s: 2 runs × 30 s")
    assert Duration.of(compare_plan(rounds=4)).text == "about 99 s: 8 runs × 10 s + 1.5 s each, after 7 s of warm-up"


def test_that_a_run_to_match_the_throughput_takes_its_time_too() -> None:
    assert Duration.of(compare_plan(rounds=4, matches_throughput=True)).runs == 9


def test_that_a_sweep_that_is_done_takes_no_time() -> None:
    assert Duration.of(SweepPlan(points=(LATE, EARLY), load=LOAD), to_come=0).total_s == 0.0


def test_that_a_backlog_that_grows_has_no_end_that_is_said() -> None:
    backlog = Backlog()
    backlog.text(0.0, 5)

    assert backlog.text(10.0, 9).endswith("starts when they are answered")
    assert backlog.text(11.0, 1).startswith("1 request of other load is under way: the next run starts when it is")


def test_that_time_left_is_told_from_the_plan_until_something_has_been_measured() -> None:
    to_come = list(compare_plan(rounds=2, duration_s=10.0).runs())

    assert 40 < RemainingTime(10.0).left_s(to_come) < 50


def test_that_time_left_is_told_from_each_sides_own_runs() -> None:
    to_come = list(compare_plan(rounds=2).runs())
    pace = RemainingTime(10.0)
    pace.note("A", 11.0)
    pace.note("B", 31.0)

    assert pace.left_s(to_come[2:]) == 42.0
    assert pace.left_s(to_come[2:], present_s=5.0) == 37.0


def test_that_a_run_that_takes_longer_than_expected_leaves_the_others_their_time() -> None:
    to_come = list(compare_plan(rounds=2).runs())
    pace = RemainingTime(10.0)
    pace.note("A", 11.0)

    assert pace.left_s(to_come[2:], present_s=100.0) == 11.0


def test_that_a_run_that_takes_longer_than_expected_is_expected_to_do_so_again() -> None:
    to_come = list(compare_plan(rounds=2).runs())
    pace = RemainingTime(10.0)
    pace.note("A", 11.0)

    assert pace.left_s(to_come[1:], present_s=40.0) == 40.0 + 11.0


def test_that_nothing_to_come_takes_no_time() -> None:
    assert RemainingTime(10.0).left_s([]) == 0.0
