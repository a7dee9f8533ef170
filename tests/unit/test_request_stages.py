"""The stages of a request add up to its latency."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.observed.stages import MARKS, STAGES, durations, marks
from tests.synthetic_run import SyntheticRun, filled_history

NEVER = np.inf
gaps = st.lists(st.floats(0, 30), min_size=len(STAGES), max_size=len(STAGES))


def named(line: np.ndarray) -> dict[str, float]:
    return {stage.name: round(float(span), 3) for stage, span in zip(STAGES, line, strict=True)}


def test_that_each_stage_lasts_from_its_mark_to_the_next() -> None:
    (line,) = durations(np.array([[0.0, 0.1, 0.3, 0.4, 1.0, 1.5, 2.5, 4.0, 4.2]]))
    assert named(line) == {
        "load_lag": 0.1,
        "network_in": 0.2,
        "admission": 0.1,
        "waiting": 0.6,
        "sealed": 0.5,
        "prefill": 1.0,
        "decode": 1.5,
        "delivery": 0.2,
    }


def test_that_an_unknown_mark_leaves_its_time_to_the_stage_before_it() -> None:
    (refused,) = durations(np.array([[0.0, 0.1, 0.2, NEVER, NEVER, NEVER, NEVER, 0.5, 0.6]]))
    assert named(refused)["admission"] == 0.3
    assert refused.sum() == pytest.approx(0.6)


def test_that_a_request_under_way_has_no_durations_unless_it_is_told_until_when() -> None:
    running = np.array([[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, NEVER, NEVER, NEVER]])
    assert np.isnan(durations(running)).all()
    assert named(durations(running, until_s=2.0)[0])["prefill"] == 1.5


@given(gaps, st.sets(st.integers(1, len(MARKS) - 2)))
def test_that_they_are_never_negative_and_add_up_whatever_is_unknown(spans: list[float], unknown: set[int]) -> None:
    times = np.cumsum([5.0, *spans])
    times[list(unknown)] = NEVER
    (line,) = durations(times[None, :])
    assert (line >= 0).all()
    assert line.sum() == pytest.approx(sum(spans))


def test_that_those_of_every_answered_request_add_up_to_its_latency() -> None:
    history, _ = filled_history(SyntheticRun(30.0, outside_share=0.3))
    rows = [row for row in history.requests.rows() if row.latency_s is not None]
    lines = durations(marks(history.requests.columns, np.array([row.key for row in rows])))
    assert len(rows) > 80
    np.testing.assert_allclose(lines.sum(axis=1), [row.latency_s for row in rows], rtol=1e-9)
