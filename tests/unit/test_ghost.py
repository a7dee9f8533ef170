"""The levels that are predicted, as the plots show them."""

from __future__ import annotations

import pytest

from gui.look.tokens import GHOST_REACH
from gui.series.prediction import GhostLevel, GhostPoint, ghost_levels, with_ghost
from tests.unit.test_predict import OBSERVED, predicted
from tests.unit.test_predict_backlog import LARGE, predictor_behind_a_backlog


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
    assert not levels["queue-depth"], "nothing has to be worked off"
    assert not any(level.course for each in levels.values() for level in each)


def test_that_a_backlog_is_drawn_on_its_way() -> None:
    prediction = predictor_behind_a_backlog().predict(LARGE)
    assert prediction is not None
    levels = ghost_levels(prediction)
    for name in ("latency", "throughput", "queue-depth"):
        course = levels[name][0].course
        assert [course[0].share, course[-1].share] == [0.0, 1.0]
    assert not levels["batch-size"], "the mean size is that of the steady state, after the backlog"
    assert not any(point.value == 0.0 for level in levels["throughput"] for point in level.course), "batch by batch"
    queue = levels["queue-depth"][0].course
    assert queue[0].value > 5 * queue[-1].value
    assert levels["queue-depth"][0].peak == max(point.value for point in queue)


def test_that_the_plot_of_latencies_says_what_p95_comes_to_be_and_its_band() -> None:
    prediction = predictor_behind_a_backlog().predict(LARGE)
    assert prediction is not None
    assert prediction.p95_s is not None
    words = {name: [each.words for each in level] for name, level in ghost_levels(prediction).items()}
    p95 = prediction.p95_s
    assert words.pop("latency") == [(f"p95 {p95.value:.2f} s", f"{p95.low:.2f} to {p95.high:.2f}"), None]
    assert not any(any(each) for each in words.values()), "when the queue is worked off is said above the plots"


def test_that_a_scale_grows_for_a_ghost_that_is_a_little_higher() -> None:
    assert with_ghost([2.0, 10.0], [level(3.0)]) == (3.0, 10.0)


def test_that_a_scale_grows_for_the_upper_end_of_a_band() -> None:
    """It was cut off above, and a band looked more certain than it was."""
    assert with_ghost([1.0], [GhostLevel(0, 0.9, 0.7, 1.4, "p95")]) == (1.4,)
    course = (GhostPoint(0.0, 1.2, 1.0, 1.6), GhostPoint(1.0, 0.9, 0.7, 1.1))
    assert with_ghost([1.0], [GhostLevel(0, 0.9, 0.7, 1.1, "p95", course)]) == (1.6,)


def test_that_a_band_out_of_all_proportion_is_cut_rather_than_the_data_pressed_flat() -> None:
    assert with_ghost([1.0], [GhostLevel(0, 1.2, 0.7, 9.0, "p95")]) == (1.2,)


def test_that_a_ghost_out_of_all_proportion_does_not_press_the_data_flat() -> None:
    assert with_ghost([2.0], [level(70.0)]) == (GHOST_REACH * 2.0,)


@pytest.mark.parametrize("pane", [0, 1])
def test_that_a_ghost_concerns_its_own_pane(pane: int) -> None:
    peaks = with_ghost([1.0, 1.0], [level(1.5, pane)])
    assert peaks[pane] == 1.5
    assert peaks[1 - pane] == 1.0
