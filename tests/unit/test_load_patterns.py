"""Arrival processes, judged by their statistics."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.load.arrivals import BurstArrivals, OpenArrivals, RatedArrivals, ReplayArrivals, rate_of
from service.messages.load import Burst, ConstantRate, GammaArrivals, OnOff, Pattern, Poisson, Ramp, Steps, Trace

RATED: tuple[Pattern, ...] = (
    ConstantRate(rate_per_s=4.0),
    Poisson(rate_per_s=4.0),
    GammaArrivals(rate_per_s=4.0, shape=0.25),
    OnOff(rate_per_s=8.0, on_s=3.0, off_s=3.0),
    Ramp(rate_per_s=2.0, rate_to_per_s=6.0, over_s=30.0),
    Ramp(rate_per_s=6.0, rate_to_per_s=2.0, over_s=30.0),
    Steps(rates_per_s=(2.0, 6.0, 1.0, 4.0), step_s=10.0),
)
NAMES = [type(pattern).__name__ for pattern in RATED]


def due(arrivals: OpenArrivals, count: int) -> list[float]:
    """When the next `count` arrive, or as many as there are."""
    times_s = []
    for _ in range(count):
        if arrivals.due_s is None:
            break
        times_s.append(arrivals.due_s)
        arrivals.advance()
    return times_s


def intervals(pattern: Pattern, count: int = 20_000, seed: int = 1) -> list[float]:
    return [b - a for a, b in pairwise([0.0, *due(RatedArrivals(pattern, seed), count)])]


def arrived(times_s: list[float], start_s: float, end_s: float) -> int:
    return sum(start_s <= at_s < end_s for at_s in times_s)


class TestIntervals:
    @pytest.mark.parametrize("rate_per_s", [0.5, 4.0, 200.0])
    def test_that_poisson_intervals_have_the_mean_and_the_spread_of_an_exponential(self, rate_per_s: float) -> None:
        drawn = intervals(Poisson(rate_per_s=rate_per_s))
        assert statistics.fmean(drawn) == pytest.approx(1 / rate_per_s, rel=0.03)
        assert statistics.pstdev(drawn) == pytest.approx(1 / rate_per_s, rel=0.03)
        assert statistics.median(drawn) == pytest.approx(0.693 / rate_per_s, rel=0.03)

    def test_that_poisson_intervals_do_not_remember_each_other(self) -> None:
        drawn = intervals(Poisson(rate_per_s=1.0), seed=2)
        assert statistics.correlation(drawn[:-1], drawn[1:]) == pytest.approx(0, abs=0.03)

    @pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
    def test_that_the_variation_of_gamma_intervals_is_one_over_the_root_of_the_shape(self, shape: float) -> None:
        drawn = intervals(GammaArrivals(rate_per_s=4.0, shape=shape))
        assert statistics.fmean(drawn) == pytest.approx(0.25, rel=0.03)
        assert statistics.pstdev(drawn) / statistics.fmean(drawn) == pytest.approx(shape**-0.5, rel=0.03)

    def test_that_constant_arrivals_are_all_as_far_apart(self) -> None:
        assert intervals(ConstantRate(rate_per_s=5.0), 100) == pytest.approx([0.2] * 100)


class TestSeed:
    @pytest.mark.parametrize("pattern", RATED, ids=NAMES)
    def test_that_a_seed_gives_one_sequence(self, pattern: Pattern) -> None:
        assert intervals(pattern, 50, seed=7) == intervals(pattern, 50, seed=7)

    @pytest.mark.parametrize("pattern", RATED[1:], ids=NAMES[1:])
    def test_that_another_seed_gives_another_sequence(self, pattern: Pattern) -> None:
        assert intervals(pattern, 50, seed=7) != intervals(pattern, 50, seed=8)

    def test_that_a_seed_gives_the_same_sequence_at_every_rate_but_for_the_scale(self) -> None:
        slow, fast = intervals(Poisson(rate_per_s=1.0), 50), intervals(Poisson(rate_per_s=10.0), 50)
        assert [interval * 10 for interval in fast] == pytest.approx(slow)


class TestRates:
    @pytest.mark.parametrize("pattern", RATED, ids=NAMES)
    def test_that_as_many_arrive_as_the_rate_says(self, pattern: Pattern) -> None:
        counts = [arrived(due(RatedArrivals(pattern, seed), 1000), 0, 30) for seed in range(40)]
        assert statistics.fmean(counts) == pytest.approx(rate_of(pattern).expected(30), rel=0.08)

    @pytest.mark.parametrize("pattern", RATED, ids=NAMES)
    @given(count=st.floats(0, 10_000))
    def test_that_the_time_of_a_count_has_that_count(self, pattern: Pattern, count: float) -> None:
        rate = rate_of(pattern)
        assert rate.expected(rate.when(count)) == pytest.approx(count, abs=1e-6)

    def test_that_nothing_arrives_while_it_is_off(self) -> None:
        times_s = due(RatedArrivals(OnOff(rate_per_s=20.0, on_s=2.0, off_s=3.0), 1), 1000)
        assert {int(at_s % 5.0) for at_s in times_s} == {0, 1}
        assert arrived(times_s, 100, 102) == pytest.approx(40, abs=15)

    def test_that_a_ramp_goes_evenly_and_stays(self) -> None:
        expected = rate_of(Ramp(rate_per_s=2.0, rate_to_per_s=10.0, over_s=8.0)).expected
        assert [expected(at_s) for at_s in (0, 4, 8, 18)] == [0, 16, 48, 148]

    def test_that_steps_follow_each_other_and_the_last_stays(self) -> None:
        expected = rate_of(Steps(rates_per_s=(2.0, 8.0), step_s=10.0)).expected
        assert [expected(at_s) for at_s in (0, 10, 15, 100)] == [0, 20, 60, 740]


class TestRetuning:
    @pytest.mark.parametrize("pattern", RATED, ids=NAMES)
    def test_that_the_same_pattern_again_changes_nothing(self, pattern: Pattern) -> None:
        arrivals, undisturbed = RatedArrivals(pattern, 3), RatedArrivals(pattern, 3)
        times_s = []
        for _ in range(100):
            assert arrivals.retune(pattern, arrivals.due_s - 0.001)
            times_s += due(arrivals, 1)
        assert times_s == pytest.approx(due(undisturbed, 100))

    def test_that_a_change_of_rate_rescales_what_is_left_of_the_interval(self) -> None:
        arrivals = RatedArrivals(ConstantRate(rate_per_s=0.1), 0)
        assert arrivals.retune(ConstantRate(rate_per_s=1.0), 4.0)
        assert due(arrivals, 3) == pytest.approx([4.6, 5.6, 6.6])

    def test_that_an_arrival_that_is_overdue_keeps_its_time(self) -> None:
        arrivals = RatedArrivals(ConstantRate(rate_per_s=1.0), 0)
        assert arrivals.retune(ConstantRate(rate_per_s=10.0), 2.5)
        assert due(arrivals, 2) == pytest.approx([1.0, 1.1])

    def test_that_a_shape_changes_without_a_new_sequence(self) -> None:
        arrivals = RatedArrivals(GammaArrivals(rate_per_s=1.0, shape=1.0), 0)
        assert arrivals.retune(GammaArrivals(rate_per_s=1.0, shape=1000.0), 0.0)
        arrivals.advance()
        assert [b - a for a, b in pairwise(due(arrivals, 100))] == pytest.approx([1.0] * 99, rel=0.2)

    def test_that_another_kind_takes_other_arrivals(self) -> None:
        for pattern in RATED:
            for other in (Burst(count=1), *RATED):
                arrivals = RatedArrivals(pattern, 0)
                assert arrivals.retune(other, 0.0) == (type(other) is type(pattern))


class TestBurst:
    def test_that_a_burst_is_all_at_once_and_then_over(self) -> None:
        arrivals = BurstArrivals(3)
        assert due(arrivals, 5) == [0.0, 0.0, 0.0]
        assert arrivals.due_s is None

    def test_that_another_adds_to_it(self) -> None:
        arrivals = BurstArrivals(3)
        assert arrivals.retune(Burst(count=2), 1.0)
        assert len(due(arrivals, 10)) == 5
        assert not arrivals.retune(Poisson(rate_per_s=1.0), 1.0)


class TestReplay:
    def test_that_arrivals_come_at_the_times_of_the_trace_at_its_scale(self) -> None:
        trace = Trace(path="t", time_scale=0.5)
        assert due(ReplayArrivals(trace, [1.0, 1.0, 4.0]), 9) == [0.5, 0.5, 2.0]

    def test_that_another_scale_holds_from_now_on(self) -> None:
        arrivals = ReplayArrivals(Trace(path="t"), [0.0, 4.0, 8.0])
        arrivals.advance()
        assert arrivals.retune(Trace(path="t", time_scale=2.0), 1.0)
        assert due(arrivals, 9) == [7.0, 15.0]

    def test_that_another_trace_takes_other_arrivals(self) -> None:
        assert not ReplayArrivals(Trace(path="t"), [0.0]).retune(Trace(path="other"), 0.0)
