"""The levels that are predicted, as the plots show them."""

from __future__ import annotations

import pytest

from gui.look.tokens import GHOST_REACH
from gui.series.prediction import GhostLevel, ghost_levels, with_ghost
from tests.unit.test_predict import OBSERVED, predicted


def level(value: float, pane: int = 0) -> GhostLevel:
    return GhostLevel(pane, value, value, value, "t1")


def test_that_each_plot_gets_what_it_shows() -> None:
    prediction = predicted(OBSERVED)
    levels = ghost_levels(prediction)
    assert {level.value for level in levels["latency"]} == {prediction.p50_s.value, prediction.p95_s.value}
    assert [level.value for level in levels["throughput"]] == [
        prediction.tokens_per_s.value,
        prediction.requests_per_s.value,
    ]
    assert [level.value for level in levels["batch-size"]] == [prediction.mean_batch.value]
    assert "queue-depth" not in levels


def test_that_a_scale_grows_for_a_ghost_that_is_a_little_higher() -> None:
    assert with_ghost([2.0, 10.0], [level(3.0)]) == (3.0, 10.0)


def test_that_a_ghost_out_of_all_proportion_does_not_press_the_data_flat() -> None:
    assert with_ghost([2.0], [level(70.0)]) == (GHOST_REACH * 2.0,)


@pytest.mark.parametrize("pane", [0, 1])
def test_that_a_ghost_concerns_its_own_pane(pane: int) -> None:
    peaks = with_ghost([1.0, 1.0], [level(1.5, pane)])
    assert peaks[pane] == 1.5
    assert peaks[1 - pane] == 1.0
