"""Arrival processes, judged by their statistics."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest

from service.load.patterns import BurstArrivals, PoissonArrivals, PromptDeck, open_arrivals
from service.messages import Burst, Poisson


def intervals(arrivals: PoissonArrivals, count: int) -> list[float]:
    drawn = [arrivals.next_interval_s() for _ in range(count)]
    assert all(interval is not None for interval in drawn)
    return [interval for interval in drawn if interval is not None]


@pytest.mark.parametrize("rate_per_s", [0.5, 4.0, 200.0])
def test_that_poisson_intervals_have_the_mean_and_the_spread_of_an_exponential(rate_per_s: float) -> None:
    drawn = intervals(PoissonArrivals(rate_per_s, seed=1), 20_000)
    assert statistics.fmean(drawn) == pytest.approx(1 / rate_per_s, rel=0.03)
    assert statistics.pstdev(drawn) == pytest.approx(1 / rate_per_s, rel=0.03)
    median = statistics.median(drawn)
    assert median == pytest.approx(0.693 / rate_per_s, rel=0.03)


def test_that_poisson_intervals_do_not_remember_each_other() -> None:
    drawn = intervals(PoissonArrivals(1.0, seed=2), 20_000)
    assert statistics.correlation(drawn[:-1], drawn[1:]) == pytest.approx(0, abs=0.03)


def test_that_a_seed_gives_one_sequence_and_another_seed_another() -> None:
    assert intervals(PoissonArrivals(4.0, 7), 50) == intervals(PoissonArrivals(4.0, 7), 50)
    assert intervals(PoissonArrivals(4.0, 7), 50) != intervals(PoissonArrivals(4.0, 8), 50)


def test_that_a_seed_gives_the_same_sequence_at_every_rate_but_for_the_scale() -> None:
    slow, fast = intervals(PoissonArrivals(1.0, 7), 50), intervals(PoissonArrivals(10.0, 7), 50)
    assert [interval * 10 for interval in fast] == pytest.approx(slow)


def test_that_poisson_takes_a_new_rate_and_says_how_the_time_left_stretches() -> None:
    arrivals = PoissonArrivals(4.0, 0)
    assert arrivals.retune(Poisson(rate_per_s=8.0)) == 0.5
    assert statistics.fmean(intervals(arrivals, 10_000)) == pytest.approx(1 / 8, rel=0.05)
    assert arrivals.retune(Burst(count=1)) is None


def test_that_a_burst_is_all_at_once_and_then_over() -> None:
    arrivals = BurstArrivals(3)
    assert [arrivals.next_interval_s() for _ in range(5)] == [0.0, 0.0, 0.0, None, None]


def test_that_patterns_declare_their_arrivals() -> None:
    assert isinstance(open_arrivals(Burst(count=2), 0), BurstArrivals)
    assert isinstance(open_arrivals(Poisson(rate_per_s=2.0), 0), PoissonArrivals)


def test_that_each_prompt_comes_once_a_round_in_an_order_that_the_seed_decides() -> None:
    prompts = tuple("abcdefgh")
    deck, again, other = PromptDeck(prompts, 1), PromptDeck(prompts, 1), PromptDeck(prompts, 2)
    drawn = [deck.draw() for _ in range(24)]
    assert Counter(drawn) == dict.fromkeys(prompts, 3)
    assert drawn == [again.draw() for _ in range(24)]
    assert drawn != [other.draw() for _ in range(24)]
