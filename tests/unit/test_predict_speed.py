"""An engine whose speed has just changed is noticed, and nothing else is taken for it."""

from __future__ import annotations

import numpy as np
import pytest

from service.analysis.predict.cost import Executed
from service.analysis.predict.speed import BEFORE_S, SpeedChange
from tests.unit.test_predict_cost import batches, joined

SIZES = [1, 2, 4, 8, 3, 6, 5, 2, 7, 4]


def then(count: int, slower: float, *, noise: float = 0.05, sizes: list[int] = SIZES) -> Executed:
    """A minute as usual and `count` batches, one a second, that take `slower` times as long."""
    after = [sizes[n % len(sizes)] for n in range(count)]
    return joined(batches(SIZES * 6, noise=noise), batches(after, noise=noise, slower=slower, seed=2))


@pytest.mark.parametrize("slower", [1.8, 4.0, 0.6])
def test_that_the_factor_of_a_change_is_said(slower: float) -> None:
    change = SpeedChange.of_batches(then(9, slower))
    assert change is not None
    assert change.factor == pytest.approx(slower, rel=0.06)


def test_that_the_usual_noise_is_no_change() -> None:
    for seed in range(40):
        assert SpeedChange.of_batches(batches(SIZES * 6, noise=0.12, seed=seed)) is None


def test_that_a_small_change_is_none() -> None:
    assert SpeedChange.of_batches(then(9, 1.1)) is None


def test_that_a_machine_that_is_always_unsteady_has_not_changed() -> None:
    parts = [batches(SIZES, noise=0.03, slower=1.4 if n % 2 else 1.0, seed=n) for n in range(10)]
    assert SpeedChange.of_batches(joined(*parts)) is None


def test_that_a_batch_that_was_held_up_is_no_change() -> None:
    executed = batches(SIZES * 6, noise=0.03)
    executed.run_s[-2] *= 20.0
    assert SpeedChange.of_batches(executed) is None


def test_that_a_speed_that_is_kept_is_the_usual_one() -> None:
    assert SpeedChange.of_batches(then(round(BEFORE_S), 1.8)) is None


def test_that_batches_larger_than_any_before_do_not_tell() -> None:
    """What they take may be priced wrongly."""
    assert SpeedChange.of_batches(then(9, 1.8, sizes=[32])) is None


def test_that_slow_batches_are_looked_for_longer_ago() -> None:
    """Of batches that take 15 s there are never three in ten."""
    executed = then(4, 1.8)
    slow = Executed(**{**vars(executed), "finished_s": executed.finished_s * 5.0})
    change = SpeedChange.of_batches(slow)
    assert change is not None
    assert change.factor > 1.5


def test_that_nothing_is_said_of_few_batches() -> None:
    assert SpeedChange.of_batches(batches([1, 2, 4, 8])) is None
    assert SpeedChange.of_batches(Executed(*([np.zeros(0)] * 10), np.zeros(0, bool))) is None
