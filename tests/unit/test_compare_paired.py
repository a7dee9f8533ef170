"""Whether a difference is real: what the interval covers, and how often it errs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.analysis.compare.comparison import differences, paired_difference, sentence
from service.analysis.compare.run import MeasuredRun

COMPARISONS = 2000
REQUESTS = 40


def simulated_errors(rounds: int, latencies: Callable[[np.random.Generator], np.ndarray]) -> float:
    """The share of comparisons of a thing with itself that find a difference in its p95."""
    random = np.random.default_rng(rounds)
    found = 0
    for _ in range(COMPARISONS):
        burstiness = np.exp(random.normal(0, 0.5, rounds))  # of its own to a round, and the same for both sides
        a, b = ([float(np.percentile(own * latencies(random), 95)) for own in burstiness] for _ in "ab")
        found += paired_difference("p95_s", a, b).is_real
    return found / COMPARISONS


@pytest.mark.parametrize("rounds", [3, 4, 8])
@pytest.mark.parametrize("tail", ["light", "heavy"])
def test_that_a_thing_compared_with_itself_seldom_differs(rounds: int, tail: str) -> None:
    sigma = 0.2 if tail == "light" else 1.0
    share = simulated_errors(rounds, lambda random: random.lognormal(0.0, sigma, REQUESTS))

    assert 0.03 < share < 0.065  # 5 % is promised; three standard errors are 1.5 %


@pytest.mark.parametrize("rounds", [3, 4, 8])
def test_that_the_interval_covers_the_true_ratio_as_often_as_it_says(rounds: int) -> None:
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(COMPARISONS):
        log_a = random.normal(0.0, 1.0, rounds)
        log_b = log_a + np.log(1.3) + random.normal(0.0, 0.2, rounds)
        found = paired_difference("mean_s", list(np.exp(log_a)), list(np.exp(log_b)))
        covered += found.low <= 1.3 <= found.high

    assert 0.935 < covered / COMPARISONS < 0.965


def test_that_what_both_sides_of_a_round_share_does_not_hide_a_difference() -> None:
    a = [1.0, 9.0, 3.0, 27.0]
    b = [1.2, 11.0, 3.5, 33.0]

    assert paired_difference("p95_s", a, b).is_real


def test_that_two_rounds_claim_little() -> None:
    found = paired_difference("p95_s", [1.0, 1.0], [2.0, 4.0])

    assert not found.is_real
    assert found.low < 1 < found.high


def test_that_the_ratio_is_that_of_the_values_beside_it() -> None:
    found = paired_difference("p95_s", [1.0, 4.0, 2.0], [2.0, 2.0, 9.0])

    assert found.ratio == pytest.approx(found.b / found.a)


def test_that_swapping_the_sides_turns_the_ratio_round() -> None:
    a, b = [1.0, 2.0, 1.5], [2.5, 4.0, 3.3]
    there, back = paired_difference("p95_s", a, b), paired_difference("p95_s", b, a)

    assert (there.ratio, there.low, there.high) == pytest.approx((1 / back.ratio, 1 / back.high, 1 / back.low))


def test_that_a_real_difference_is_said_with_its_size_and_interval() -> None:
    said = sentence(paired_difference("p95_s", [1.0, 1.1, 0.9, 1.0], [4.1, 4.3, 3.9, 4.0]))

    assert said == "B's p95 is 4.08 times A's (95 % CI 3.81 to 4.38, 4 rounds): a real difference."


def test_that_a_difference_that_cannot_be_told_is_said_with_what_more_rounds_would_tell() -> None:
    said = sentence(paired_difference("p50_s", [1.0, 1.1, 0.9, 1.0], [1.02, 1.06, 0.97, 1.01]))

    assert said == (
        "No difference is certain: B's p50 is 1.7 % higher than A's (95 % CI −5 % to +9 %, 4 rounds). "
        "These rounds would have shown one of 8 % or more; 16 rounds would show one of 2 %."
    )


def test_that_it_says_how_many_rounds_would_settle_it_where_they_are_few() -> None:
    said = sentence(paired_difference("p95_s", [1.0, 1.0, 1.0], [1.1, 1.3, 1.0]))

    assert "about 8 rounds would show whether this one is real" in said


def test_that_figures_that_a_run_lacks_are_left_out() -> None:
    answered = MeasuredRun(seed=1, ran_s=2.0, latencies_s=(0.5, 0.7), tokens=48, mean_batch=1.5)
    silent = MeasuredRun(seed=2, ran_s=2.0, latencies_s=())

    assert {each.figure for each in differences([answered, answered], [answered, answered])} >= {"p95_s", "mean_batch"}
    assert differences([answered, silent], [answered, answered]) == ()
