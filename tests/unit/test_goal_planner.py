"""How many replicas a rate needs: the formula, the simulation, and both in a sentence."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import msgspec
import pytest

from service.analysis.goal.planner import MOST_REPLICAS, ReplicaPlan, plan_of
from service.analysis.goal.search import Goal, GoalSearch, choices_of, search
from service.messages.load import ClosedLoop, Poisson
from service.messages.objectives import Objectives
from service.messages.settings import Settings
from tests.unit.goal_cases import Case

BASE = Settings()
USUAL = Case(pattern=Poisson(rate_per_s=30.0), objectives=Objectives(latency_s=0.6))
"""A request alone takes 0.27 s, and a replica answers 18 a second in batches of 8."""


def found(case: Case, goal: Goal | None = None) -> GoalSearch:
    goal = goal or Goal(objectives=case.objectives, max_batch_size_up_to=8)
    return search(case.predictor, goal, choices_of(case.predictor, goal, BASE))


@cache
def plan(case: Case) -> ReplicaPlan:
    planned = plan_of(case.predictor, found(case), BASE)
    assert planned is not None
    return planned


def test_that_the_fewest_replicas_that_hold_are_found() -> None:
    planned = plan(USUAL)

    assert planned.needed is not None
    assert planned.needed.holds
    assert planned.needed.replicas >= planned.by_formula
    held = {each.replicas: each.holds for each in planned.tried}
    fewer = planned.needed.replicas - 1
    assert held.get(fewer) is False or planned.busy(fewer) >= 1
    assert all(holds == (replicas >= planned.needed.replicas) for replicas, holds in held.items())


def test_that_a_search_of_all_settings_needs_as_many() -> None:
    needed = plan(USUAL).needed
    assert needed is not None
    goal = Goal(objectives=USUAL.objectives, max_batch_size_up_to=8, replicas_up_to=needed.replicas)
    searched = found(USUAL, goal).cheapest
    assert searched is not None
    assert searched.replicas == needed.replicas


def test_that_the_formula_divides_the_rate_by_what_full_batches_carry() -> None:
    planned = plan(USUAL)
    assert planned.needed is not None
    size = planned.needed.settings.max_batch_size
    carried = USUAL.predictor.cost.capacity(size).requests_per_s

    assert planned.by_formula == math.ceil(30.0 / carried)
    assert f"One replica carries {carried:.1f} requests/s in batches of {size}" in planned.sentence
    assert msgspec.structs.replace(planned, by_formula=1).sentence.count("1 replica carries ") == 1
    assert f"simulated, it takes {planned.needed.replicas}" in planned.sentence


def test_that_of_many_replicas_each_is_as_busy_as_of_a_few() -> None:
    few, many = plan(USUAL), plan(replace(USUAL, pattern=Poisson(rate_per_s=1000.0)))
    assert few.needed is not None
    assert many.needed is not None
    assert 30 < many.needed.replicas < MOST_REPLICAS
    assert many.busy(many.needed.replicas) >= 0.75 * few.busy(few.needed.replicas)


def test_that_it_says_where_no_number_of_replicas_helps() -> None:
    planned = plan(replace(USUAL, objectives=Objectives(latency_s=0.2)))
    assert planned.needed is None
    assert planned.sentence == "More replicas do not help: 1000 replicas do not keep it either."


@pytest.mark.parametrize(
    "case",
    [replace(USUAL, pattern=Poisson(rate_per_s=2.0)), replace(USUAL, pattern=ClosedLoop(users=30))],
    ids=["where one holds", "for users"],
)
def test_that_nothing_is_planned(case: Case) -> None:
    assert plan_of(case.predictor, found(case), BASE) is None
