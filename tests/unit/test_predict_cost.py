"""The cost model: what it finds in batches that were made up, and how sure it says it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace as changed

from service.analysis.observed.history import History
from service.analysis.predict.cost import CostModel, Executed
from service.analysis.predict.engine import Speed
from service.messages.settings import Settings
from tests.synthetic_run import CLOCK, Step, SyntheticRun

STEP_S, ROW_S, TOKENS = 0.040, 0.0015, 24


def batches(
    sizes: Sequence[int],
    *,
    noise: float = 0.0,
    tokens: Sequence[int] | int = TOKENS,
    slower: float = 1.0,
    seed: int = 1,
) -> Executed:
    """One batch a second, each ``steps · (STEP_S + ROW_S · size)`` but for a factor of noise."""
    size = np.array(sizes, float)
    steps = np.broadcast_to(np.array(tokens, float), size.shape)
    factors = np.exp(np.random.default_rng(seed).normal(0.0, noise, len(size)))
    run_s = slower * steps * (STEP_S + ROW_S * size) * factors
    ends_s = np.arange(len(size), dtype=float)
    zeros, ones = np.zeros(len(size)), np.ones(len(size))
    return Executed(size, steps, steps * size, steps * size, 8.0 * size, run_s, zeros, ends_s, ones, size, size < 0)


def fitted(executed: Executed) -> CostModel:
    cost = CostModel.of_batches(executed)
    assert cost is not None
    return cost


def true_s(size: int, tokens: int = TOKENS) -> float:
    return tokens * (STEP_S + ROW_S * size)


def joined(*parts: Executed) -> Executed:
    """Parts that follow one another."""
    result = parts[0]
    for part in parts[1:]:
        later = replace(part, finished_s=part.finished_s + result.finished_s[-1] + 1.0)
        result = Executed(*(np.concatenate([getattr(result, n), getattr(later, n)]) for n in result.__dict__))
    return result


@pytest.mark.parametrize("size", [1, 4, 8, 16, 32])
def test_that_noisy_batches_of_several_sizes_tell_the_time_of_any(size: int) -> None:
    cost = fitted(batches([1, 2, 3, 4, 6, 8, 5, 2, 9, 12, 3, 1, 7, 4] * 3, noise=0.05))
    assert cost.batch_s(size) == pytest.approx(true_s(size), rel=0.06)


def test_that_other_lengths_than_those_seen_on_average_cost_what_they_must() -> None:
    cost = fitted(batches([1, 4, 8, 2, 6, 10, 3, 12], tokens=[8, 24, 48, 30, 12, 16, 40, 20]))
    assert cost.batch_s(8, tokens=100) == pytest.approx(true_s(8, 100), rel=0.05)


def test_that_a_batch_that_was_held_up_does_not_spoil_the_rest() -> None:
    executed = batches([1, 4, 8, 2, 6, 12, 3, 16, 5, 7] * 2, noise=0.02)
    executed.run_s[[3, 11]] *= 20.0
    assert fitted(executed).batch_s(8) == pytest.approx(true_s(8), rel=0.05)


def test_that_a_few_large_batches_say_as_much_as_many_small_ones() -> None:
    """Their rows may cost more: three batches of 48 in sight took half as long again as it was said of them."""
    small, large = batches([1, 4, 8] * 30, noise=0.02), batches([48] * 3, noise=0.02, slower=1.5)
    cost = fitted(joined(small, large))
    assert cost.batch_s(48) == pytest.approx(1.5 * true_s(48), rel=0.15)
    assert cost.batch_s(4) == pytest.approx(true_s(4), rel=0.05)


def test_that_the_marginal_cost_is_the_slope_and_its_error_covers_the_truth() -> None:
    cost = fitted(batches([1, 2, 4, 8, 12, 16, 3, 6] * 4, noise=0.03))
    assert abs(cost.marginal_s - TOKENS * ROW_S) < 3 * cost.marginal_error_s
    assert cost.marginal_error_s < 0.3 * cost.marginal_s


def test_that_the_errors_are_as_large_as_they_say() -> None:
    """Of 40 draws about 95 in 100 lie within twice the standard error; 80 in 100 must."""
    fits = [fitted(batches([1, 2, 4, 6, 8, 3] * 4, noise=0.08, seed=seed)) for seed in range(40)]
    within = [abs(cost.batch_s(16) - true_s(16)) < 2 * cost.batch_error_s(16) for cost in fits]
    assert np.mean(within) > 0.8


def test_that_batches_of_one_size_say_little_of_other_sizes() -> None:
    cost = fitted(batches([4] * 30, noise=0.03))
    assert cost.batch_s(4) == pytest.approx(true_s(4), rel=0.05)
    assert cost.is_sure_of(4)
    assert not cost.is_sure_of(32)


def test_that_a_batch_larger_than_any_that_ran_may_take_longer_than_the_line_says() -> None:
    cost = fitted(batches([1, 2, 3] * 20, noise=0.02))
    assert cost.longer_error_s(3) == cost.batch_error_s(3)
    assert cost.longer_error_s(12) == pytest.approx(0.2 * cost.batch_s(12), rel=0.2), "two doublings"


def test_that_two_batches_are_too_few() -> None:
    assert CostModel.of_batches(batches([1, 8])) is None


def test_that_capacity_grows_with_the_cap_and_follows_from_the_prices() -> None:
    cost = fitted(batches([1, 2, 4, 8, 16, 3, 5, 7]))
    line = [cost.capacity(cap) for cap in (1, 8, 32)]
    assert [c.requests_per_s for c in line] == pytest.approx([cap / true_s(cap) for cap in (1, 8, 32)], rel=0.03)
    assert line[1].tokens_per_s == pytest.approx(TOKENS * line[1].requests_per_s)


def test_that_the_spread_is_that_of_single_batches() -> None:
    assert fitted(batches([1, 2, 4, 8] * 20, noise=0.1)).spread == pytest.approx(0.1, rel=0.3)


def test_that_the_fit_follows_a_machine_that_becomes_slower() -> None:
    sizes = [1, 2, 4, 8, 3, 6]
    cost = fitted(joined(batches(sizes * 10, noise=0.02), batches(sizes * 4, noise=0.02, slower=1.5)))
    assert cost.batch_s(8) == pytest.approx(1.5 * true_s(8), rel=0.1)


def test_that_it_is_fitted_to_what_a_running_service_tells() -> None:
    run = SyntheticRun(60.0, (Step(0.0, 4.0, Settings(max_batch_size=8)),), step_s=STEP_S, per_request_s=ROW_S)
    history = History(CLOCK, lambda: run.start_s + run.duration_s)
    run.fill(history)
    cost = CostModel.of_history(history)
    assert cost is not None
    assert cost.batch_s(4) == pytest.approx(true_s(4), rel=0.05)
    assert cost.tokens == pytest.approx(TOKENS)


def test_that_tokens_that_were_not_computed_make_those_to_come_cheaper() -> None:
    """The next prompts share their beginnings as the last did, and are charged for all of their tokens."""
    run = SyntheticRun(20.0, (Step(0.0, 4.0, Settings(max_batch_size=8)),))
    history = History(CLOCK, lambda: run.start_s + run.duration_s)
    for frame, _ in run.frames():
        known = tuple(changed(b, work=b.work and changed(b.work, prompts=10, saved=30)) for b in frame.batches)
        history.add_telemetry(changed(frame, batches=known))
    executed = Executed.of_history(history)
    assert len(executed.prompt_tokens)
    assert set(executed.prompt_tokens) == {40.0}


def test_that_a_drawn_model_differs_by_its_error() -> None:
    cost = fitted(batches([1, 2, 4, 8, 3] * 4, noise=0.1))
    random = np.random.default_rng(1)
    drawn = [cost.drawn(random).batch_s(8) for _ in range(300)]
    assert np.std(drawn) == pytest.approx(cost.batch_error_s(8), rel=0.2)


@pytest.mark.parametrize("sizes", [[4] * 12, [1, 2, 4, 8, 3]])
def test_that_nothing_that_is_drawn_costs_less_than_nothing(sizes: list[int]) -> None:
    """Else a first token may come before its request."""
    cost = fitted(batches(sizes, noise=0.2))
    drawn = [cost.drawn(np.random.default_rng(seed)) for seed in range(100)]
    assert all(min(each.overhead_s, each.prompt_token_s, each.row_s) >= 0.0 < each.step_s for each in drawn)
    assert len({each.step_s for each in drawn}) > 90, "hardly any is given up"


def drifting(deviation: float, seconds: float, seed: int) -> Executed:
    """Batches one after the other, on a machine whose speed wanders about its mean within some ten seconds."""
    random, speed, at_s = np.random.default_rng(seed), 0.0, 0.0
    rows: list[tuple[float, float, float]] = []
    speed = random.normal(0.0, deviation)
    while at_s < seconds:
        size = float(random.integers(2, 9))
        run_s = true_s(int(size)) * math.exp(speed + random.normal(0.0, 0.04))
        kept = math.exp(-run_s / 10.0)
        speed = kept * speed + random.normal(0.0, deviation * math.sqrt(1.0 - kept**2))
        at_s += run_s
        rows.append((size, run_s, at_s))
    sizes, runs_s, ends_s = np.array(rows).T
    steps = np.full(len(sizes), float(TOKENS))
    tokens, zeros, ones = steps * sizes, np.zeros(len(sizes)), np.ones(len(sizes))
    return Executed(sizes, steps, tokens, tokens, 8.0 * sizes, runs_s, zeros, ends_s, ones, sizes, sizes < 0)


def part(executed: Executed, start_s: float, end_s: float) -> Executed:
    within = (executed.finished_s > start_s) & (executed.finished_s <= end_s)
    return Executed(*(column[within] for column in vars(executed).values()))


@pytest.mark.parametrize("seconds", [20.0, 60.0])
def test_that_another_time_is_as_much_slower_or_faster_as_drawn_models_are(seconds: float) -> None:
    """Also where two spans are all that was seen of how the speed changes; nine of ten should lie within."""
    inside = []
    for seed in range(60):
        executed = drifting(0.06, seconds + 35.0, seed)
        cost = fitted(part(executed, 0.0, seconds))
        later = part(executed, seconds + 20.0, seconds + 35.0)
        factors = []
        for draw in range(24):
            spells, random = Speed(cost, Random(draw)), np.random.default_rng(draw)
            simulated = np.mean([spells.factor(float(at_s)) for at_s in range(20, 35)])
            factors.append(simulated / np.mean(cost.drawn(random).drifted((draw + 0.5) / 24).ratios(later)))
        low, high = np.percentile(factors, (5, 95), method="weibull")
        inside.append(low <= 1.0 <= high)
    assert 0.8 <= np.mean(inside) <= 1.0
