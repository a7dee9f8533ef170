"""A controller that keeps objectives, on the clock of a service in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

import pytest

from service.analysis.goal.hold import (
    CALM_S,
    LEAST_ASKED,
    RECENT_S,
    TRIED_S,
    URGENT_S,
    Hold,
    Move,
    Recent,
    Said,
    Seen,
)
from service.analysis.predict.load import Arrival
from service.messages.load import Poisson
from service.messages.objectives import Objectives
from service.messages.settings import Settings
from tests.simulated_service import Done, SimulatedService, hold_through
from tests.synthetic_run import Step, SyntheticRun, filled_history
from tests.unit.goal_cases import Case

STRETCH_S = 30.0
IN_A_SECOND = Objectives(latency_s=1.0)
SMALL = Settings(max_batch_size=2)
COST = Case().predictor.cost


def arriving(rates_per_s: Sequence[float], seed: int = 1) -> list[Arrival]:
    """Poisson arrivals at one rate after the other, each for `STRETCH_S`."""
    random, at_s, arrivals = Random(seed), 0.0, list[Arrival]()
    while at_s < STRETCH_S * len(rates_per_s):
        at_s += random.expovariate(rates_per_s[min(int(at_s / STRETCH_S), len(rates_per_s) - 1)])
        arrivals.append(Arrival(at_s, at_s, 12, 6))
    return arrivals


def service_of(rates_per_s: Sequence[float], settings: Settings) -> SimulatedService:
    return SimulatedService(arriving(rates_per_s), STRETCH_S * len(rates_per_s), COST, COST, settings)


def good(service: SimulatedService, objectives: Objectives = IN_A_SECOND) -> float:
    """The share of all requests."""
    requests = service.requests()
    return sum(each.is_good(objectives) for each in requests) / len(requests)


@cache
def held(
    rates_per_s: tuple[float, ...], settings: Settings, objectives: Objectives = IN_A_SECOND, sheds: bool = True
) -> tuple[SimulatedService, list[Done]]:
    service = service_of(rates_per_s, settings)
    return service, hold_through(service, Hold(objectives, sheds=sheds), service.until_s)


def moves_of(done: Sequence[Done]) -> list[tuple[float, Move]]:
    return [(each.at_s, each.step) for each in done if isinstance(each.step, Move)]


def test_that_settings_that_bear_the_load_are_left_alone() -> None:
    assert held((4.0, 4.0), Settings(max_batch_size=16))[1] == []


def test_that_it_keeps_the_objective_where_the_load_grows_beyond_the_settings() -> None:
    rates = (4.0, 12.0)
    service, done = held(rates, SMALL)
    assert good(service_of(rates, SMALL)) < 0.5
    assert good(service) > 0.9
    (_, first), *_ = moves_of(done)
    assert first.reason.startswith("rate ")
    assert "max_batch_size 2 → 4, p95 would be " in first.reason
    assert first.unmoved is not None
    assert first.moved is not None
    assert first.moved.share > first.unmoved.share


def test_that_it_finds_the_way_out_of_early_formation() -> None:
    early = Settings(formation="early", max_batch_size=16)
    service, done = held((10.0,), early)
    assert good(service_of((10.0,), early)) < 0.1
    assert good(service) > 0.8
    assert moves_of(done)[0][1].settings.formation != "early"


@pytest.mark.parametrize("start", [SMALL, Settings(formation="early"), Settings(formation="continuous")], ids=str)
def test_that_numbers_are_at_most_doubled_or_halved_and_moves_are_apart(start: Settings) -> None:
    _, done = held((4.0, 20.0), start)
    moves = moves_of(done)
    before, before_s = start, -CALM_S
    for at_s, move in moves:
        assert at_s - before_s >= URGENT_S
        assert move.settings != before
        if move.settings != start:
            assert before.max_batch_size / 2 - 1 <= move.settings.max_batch_size <= 2 * before.max_batch_size
            assert move.settings.max_queued_requests <= start.max_queued_requests
            assert move.settings.batch_wait_timeout_s <= 2 * before.batch_wait_timeout_s
        before, before_s = move.settings, at_s


def test_that_requests_that_could_only_be_late_are_shed_unless_that_is_forbidden() -> None:
    start = Settings(formation="continuous", max_batch_size=16)
    rates = (30.0,)
    service, _ = held(rates, start)
    kept, done = held(rates, start, sheds=False)
    assert good(service) > 2 * good(service_of(rates, start))
    assert good(service) > good(kept)
    assert {move.settings.max_queued_requests for _, move in moves_of(done)} <= {start.max_queued_requests}


def test_that_it_says_once_that_nothing_holds() -> None:
    _, done = held((4.0, 4.0), Settings(formation="continuous"), Objectives(latency_s=0.1))
    said = [each.step.sentence for each in done if isinstance(each.step, Said)]
    assert len(said) == 1
    assert said[0].startswith("Nothing holds latency ≤ 0.1 s at ")


def test_that_it_lets_go_of_settings_that_somebody_else_has_changed() -> None:
    service, hold = service_of((12.0, 12.0), SMALL), Hold(IN_A_SECOND)
    hold_through(service, hold, 20.0)
    theirs = service.settings.revised({"max_batch_size": 3})
    service.change(theirs)
    (let_go,) = hold_through(service, hold, service.until_s)
    assert isinstance(let_go.step, Said)
    assert let_go.step.ends
    assert "→ 3" in let_go.step.sentence
    assert service.settings == theirs


def seen(at_s: float, settings: Settings, asked: int, share: float, rate_per_s: float = 8.0) -> Seen:
    predictor = Case(pattern=Poisson(rate_per_s=rate_per_s)).predictor
    return Seen(at_s, settings, Recent(asked, round(share * asked)), predictor)


def moved_from(start: Settings, share: float) -> tuple[Hold, Settings]:
    """A controller that has just made its first move, where that share of the requests was good before."""
    hold = Hold(IN_A_SECOND)
    move = hold.step(seen(0.0, start, 40, share))
    assert isinstance(move, Move)
    return hold, move.settings


def test_that_it_goes_back_where_fewer_requests_are_good_than_before() -> None:
    hold, moved = moved_from(SMALL, share=0.8)
    sooner = hold.step(seen(URGENT_S - 1.0, moved, 40, 0.1))
    assert sooner is None
    back = hold.step(seen(TRIED_S, moved, 40, 0.1))
    assert isinstance(back, Move)
    assert back.settings == SMALL
    assert back.reason == "worse than before, 10 % of the requests were good: back to what it started from"
    assert hold.step(seen(TRIED_S + URGENT_S, SMALL, 40, 0.1)) is None, "for a while it stays there"


@pytest.mark.parametrize(
    ("asked", "share", "rate_per_s"), [(40, 0.75, 8.0), (LEAST_ASKED - 1, 0.1, 8.0), (40, 0.1, 14.0)]
)
def test_that_it_does_not_go_back_for_chance_few_requests_or_more_load(
    asked: int, share: float, rate_per_s: float
) -> None:
    hold, moved = moved_from(SMALL, share=0.8)
    step = hold.step(seen(TRIED_S, moved, asked, share, rate_per_s))
    assert not (isinstance(step, Move) and step.settings == SMALL)


def test_that_where_too_little_was_seen_nothing_is_moved() -> None:
    assert Hold(IN_A_SECOND).step(Seen(0.0, SMALL, Recent(40, 0), None)) is None


def test_that_the_same_is_seen_of_a_real_history() -> None:
    run = SyntheticRun(40.0, (Step(0.0, 8.0, Settings(max_batch_size=4)),), seed=2)
    history, _ = filled_history(run, 40.0)
    at_s = run.start_s + 40.0
    objectives = Objectives(latency_s=2.0)
    what = Seen.of_history(history, objectives, at_s, 0.0)
    ended = [each for each in run.requests if 40.0 - RECENT_S < each.ended_s <= 40.0]
    in_time = [each for each in ended if each.ended_s - each.received_s <= 2.0]
    late = [each for each in run.requests if each.ended_s > 40.0 and 40.0 - each.received_s > 2.0]
    assert what.recent.good == pytest.approx(len(in_time), abs=2)
    assert what.recent.asked == pytest.approx(len(ended) + len(late), abs=2)
    assert what.settings == Settings(max_batch_size=4)
    assert what.predictor is not None
    assert what.predictor.load.rate_per_s == pytest.approx(8.0, rel=0.5)


def test_that_the_service_of_these_tests_is_the_simulator_also_where_settings_are_changed() -> None:
    """A change to the same settings changes nothing but chance."""
    whole, changed = service_of((8.0,), Settings()), service_of((8.0,), Settings())
    for at_s in (10.0, 11.0, 25.0):
        changed.at_s = at_s
        changed.change(Settings())
    assert len(changed.requests()) == len(whole.requests())
    assert sorted(each.intended_s for each in changed.requests()) == pytest.approx(
        sorted(each.intended_s for each in whole.requests())
    )
    latencies = [sorted(each.ended_s - each.intended_s for each in one.requests()) for one in (whole, changed)]
    assert latencies[0][len(latencies[0]) // 2] == pytest.approx(latencies[1][len(latencies[1]) // 2], rel=0.1)
