"""How a slider's travel maps to a range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gui.widgets.scale import TRAVEL, Scale

BATCH = Scale(1, 256, integral=True)
TIMEOUT = Scale(0, 5)
SMALL = Scale(0, 50, integral=True)


def test_that_a_range_over_more_than_two_powers_of_ten_is_logarithmic() -> None:
    assert (BATCH.is_logarithmic, TIMEOUT.is_logarithmic, SMALL.is_logarithmic) == (True, True, False)


def test_that_sixteen_stands_half_way_to_256() -> None:
    assert BATCH.position_of(16) == TRAVEL // 2
    assert BATCH.value_at(TRAVEL // 2) == 16


def test_that_zero_is_the_first_step_of_its_own() -> None:
    assert TIMEOUT.value_at(0) == 0
    assert TIMEOUT.position_of(0) == 0
    assert TIMEOUT.stepped(TIMEOUT.finest, -1) == 0
    assert TIMEOUT.doubled(0, 1) == TIMEOUT.finest
    assert TIMEOUT.doubled(TIMEOUT.finest, -1) == 0


@pytest.mark.parametrize("scale", [BATCH, TIMEOUT, SMALL])
def test_that_the_ends_of_the_travel_are_the_ends_of_the_range(scale: Scale) -> None:
    assert (scale.value_at(0), scale.value_at(TRAVEL)) == (scale.low, scale.high)


@given(st.integers(0, TRAVEL))
def test_that_every_position_gives_a_value_that_comes_back_close_by(position: int) -> None:
    for scale in (BATCH, TIMEOUT, SMALL):
        value = scale.value_at(position)
        assert scale.low <= value <= scale.high
        assert scale.value_at(scale.position_of(value)) == pytest.approx(value, rel=0.06, abs=scale.finest)


@given(st.integers(1, 256), st.integers(-3, 3))
def test_that_whole_numbers_stay_whole(value: int, steps: int) -> None:
    assert BATCH.stepped(value, steps) == min(256, max(1, value + steps))
    assert BATCH.doubled(value, steps) == int(BATCH.doubled(value, steps))


def test_that_a_step_is_one_of_the_second_digit() -> None:
    assert TIMEOUT.stepped(0.05, 1) == pytest.approx(0.051)
    assert TIMEOUT.stepped(0.5, -1) == pytest.approx(0.49)
    assert TIMEOUT.stepped(5.0, 1) == 5.0
