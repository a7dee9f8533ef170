"""Throughput over latency: the front, and the best that keeps the objective."""

from __future__ import annotations

import msgspec
import pytest

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.run import MeasuredRun
from service.analysis.compare.run_plan import SweepPlan
from service.analysis.compare.sweep import Sweep
from service.messages.load import ClosedLoop, RunLoad
from service.messages.objectives import NO_OBJECTIVES, Objectives
from service.messages.settings import Settings

LOAD = RunLoad(pattern=ClosedLoop(users=8), prompts=("Once",))


IN_A_SECOND = Objectives(latency_s=1.0)


def run(requests_per_s: float, latency_s: float, good: int | None = None, **counts: int) -> MeasuredRun:
    """100 requests, of which `good` met the objective; all or none by their latency, where that is not said."""
    known = (100 if latency_s <= 1.0 else 0) if good is None else good
    return MeasuredRun(seed=0, ran_s=100 / requests_per_s, latencies_s=(latency_s,) * 100, good=known, **counts)


def sweep(*runs: MeasuredRun | None, objectives: Objectives = NO_OBJECTIVES) -> Sweep:
    """One point a run, with `max_batch_size` 1, 2, 3, …; ``None``: not measured yet."""
    points = tuple(Settings(max_batch_size=size + 1) for size in range(len(runs)))
    begun = Sweep.begun(ServiceFacts(url="http://s"), SweepPlan(points=points, load=LOAD, objectives=objectives))
    for place, measured in enumerate(runs):
        begun = begun if measured is None else begun.with_run(place, measured, 1.0)
    return begun


def test_that_the_front_holds_what_nothing_beats_in_both() -> None:
    swept = sweep(run(5, 0.5), run(8, 1.0), run(7, 1.2), run(12, 3.0), None)

    assert swept.front() == (0, 1, 3)


def test_that_of_two_alike_in_latency_the_front_holds_the_faster() -> None:
    assert sweep(run(5, 0.5), run(8, 0.5)).front() == (1,)


def test_that_the_best_has_the_highest_throughput_within_the_objective() -> None:
    swept = sweep(run(5, 0.5), run(8, 0.9), run(12, 3.0), objectives=IN_A_SECOND)

    assert swept.best() == 1
    assert swept.verdict() == (
        "Of 3 settings the best in which 95 % of the requests keep latency ≤ 1 s is max_batch_size 2: "
        "8.00 requests/s at a p95 of 0.900 s."
    )


def test_that_of_those_alike_in_throughput_the_one_with_the_lowest_latency_is_best() -> None:
    swept = sweep(run(7.95, 0.4), run(8, 0.9), run(5, 0.1), objectives=IN_A_SECOND)

    assert swept.best() == 0


def test_that_without_an_objective_the_highest_throughput_is_best() -> None:
    assert sweep(run(5, 0.5), run(12, 3.0)).best() == 1


def test_that_what_lost_requests_is_never_best() -> None:
    swept = sweep(run(5, 0.5), run(12, 0.4, refused=3), objectives=IN_A_SECOND)

    assert swept.best() == 0


def test_that_none_is_best_where_none_keeps_the_objective() -> None:
    swept = sweep(run(5, 2.0), run(6, 3.0), objectives=IN_A_SECOND)

    assert swept.best() is None
    assert swept.verdict() == "Of 2 settings there is none in which 95 % of the requests keep latency ≤ 1 s."


@pytest.mark.parametrize(("good", "best"), [(95, 0), (94, None)])
def test_that_the_objectives_are_held_if_as_many_requests_meet_them_as_are_to(good: int, best: int | None) -> None:
    assert sweep(run(5, 0.5, good=good), objectives=IN_A_SECOND).best() == best


@pytest.mark.parametrize(
    ("objectives", "figure", "limit_s"),
    [
        (NO_OBJECTIVES, "p95_s", None),
        (Objectives(latency_s=2.0, share=0.99), "p99_s", 2.0),
        (Objectives(latency_s=2.0, share=0.9), "p95_s", None),
        (Objectives(ttft_s=0.3), "ttft_p95_s", 0.3),
        (Objectives(ttft_s=0.3, tpot_s=0.05), "ttft_p95_s", 0.3),
    ],
)
def test_that_throughput_stands_over_the_time_that_the_objectives_are_about(
    objectives: Objectives, figure: str, limit_s: float | None
) -> None:
    swept = sweep(run(5, 0.5), objectives=objectives)

    assert (swept.latency, swept.limit_s) == (figure, limit_s)


def test_that_a_point_with_several_rounds_has_the_figures_of_all_of_them() -> None:
    swept = sweep(run(10, 1.0)).with_run(0, run(5, 3.0), 2.0)

    assert swept.points[0].figure("mean_s") == 2.0
    assert swept.points[0].figure("requests_per_s") == 200 / 30


def test_that_only_what_is_varied_names_a_point() -> None:
    assert sweep(None, None).label(1) == "max_batch_size 2"


def test_that_a_sweep_is_the_same_after_it_was_written_and_read() -> None:
    swept = sweep(run(5, 0.5), None, objectives=IN_A_SECOND)

    assert msgspec.json.decode(msgspec.json.encode(swept), type=Sweep) == swept
