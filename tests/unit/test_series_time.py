"""The time axis: columns of pixels, ticks, and what part of the history is in view."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gui.look.tokens import PLOT_HEADROOM, RESCALE_INTERVAL_S
from gui.series.scale import StepScale, axis_for
from gui.series.time_axis import chip_text, clock_ticks, relative_ticks
from gui.series.time_range import TimeRange, Viewport, one_per_cell, step_line
from gui.series.timeline import SETTLE_S, LaneChoice, grid_for
from service.analysis.observed.history import KEPT_S


@given(st.floats(0, 1e6), st.floats(1, 600), st.integers(50, 1500))
def test_that_the_edges_of_a_range_are_whole_columns(end_s: float, span_s: float, columns: int) -> None:
    view = TimeRange.ending_at(end_s, span_s, columns)
    edge = view.end_s / (span_s / columns)
    assert edge == pytest.approx(round(edge), abs=1e-5)
    assert view.span_s == pytest.approx(span_s)
    assert 0 <= view.end_s - end_s <= span_s / columns * (1 + 1e-6) + 1e-9


def test_that_a_moment_keeps_its_place_in_its_column_as_time_runs_on() -> None:
    views = [TimeRange.ending_at(1000 + n * 0.033, 60.0, 372) for n in range(200)]
    places = [view.position(990.123) % 1 for view in views]
    assert max(places) - min(places) < 1e-6


@pytest.mark.parametrize(
    ("span_s", "texts"),
    [
        (30, ["−25 s", "−20 s", "−15 s", "−10 s", "−5 s", "now"]),
        (300, ["−4 min", "−3 min", "−2 min", "−1 min", "now"]),
        (600, ["−8 min", "−6 min", "−4 min", "−2 min", "now"]),
        (2, ["−1.5 s", "−1.0 s", "−0.5 s", "now"]),
    ],
)
def test_that_ticks_count_back_in_round_steps(span_s: float, texts: list[str]) -> None:
    assert [tick.text for tick in relative_ticks(TimeRange(0.0, span_s, 372))] == texts


def test_that_clock_ticks_stand_at_round_times_of_day() -> None:
    ticks = clock_ticks(TimeRange(3.0, 63.0, 600), wall_offset_s=1_780_000_000.0)
    assert all((tick.at_s + 1_780_000_000.0) % 10 == 0 for tick in ticks)
    assert all(tick.text.count(":") == 2 for tick in ticks)


def test_that_the_chip_says_how_long_ago() -> None:
    view = TimeRange(0.0, 600.0, 372)
    assert chip_text(599.9, view) == "now"
    assert chip_text(590.0, view) == "−10.0 s"
    assert chip_text(345.0, view) == "−4 min 15 s"


@given(st.floats(1e-3, 1e5), st.integers(3, 5))
def test_that_an_axis_has_round_ticks_that_suffice_and_headroom(peak: float, most: int) -> None:
    axis = axis_for(peak, most, least_step=0.01)
    assert peak <= axis.ceiling * (1 + 1e-6)
    assert len(axis.ticks) <= most + 1
    assert axis.ceiling / axis.top == pytest.approx(1 - PLOT_HEADROOM)
    mantissa = axis.step / 10 ** math.floor(math.log10(axis.step) + 1e-9)
    assert round(mantissa, 6) in (1, 2, 4, 5)


def test_that_a_scale_changes_at_most_once_a_second_and_not_for_trifles() -> None:
    scale = StepScale(most_ticks=5, least_step=1)
    assert scale.fit(16, now_s=0.0)
    assert scale.axis.ticks == (0, 4, 8, 12, 16)
    assert not scale.fit(18, now_s=RESCALE_INTERVAL_S / 2), "there is headroom for it"
    assert scale.is_due
    assert scale.fit(18, now_s=RESCALE_INTERVAL_S)
    assert scale.fit(40, now_s=1.1 * RESCALE_INTERVAL_S), "it would be cut"
    assert not scale.fit(36, now_s=5.0)
    assert scale.fit(10, now_s=6.0)
    scale.release()
    assert scale.fit(100, now_s=6.1)


def test_that_the_view_follows_now_until_it_is_frozen_or_scrolled() -> None:
    port = Viewport(window_s=60.0)
    assert port.end_s(100.0) == 100.0
    port.freeze(100.0)
    assert port.end_s(130.0) == 100.0
    port.scroll(-20.0, now_s=130.0)
    assert port.end_s(130.0) == 80.0
    port.to_live()
    assert port.end_s(130.0) == 100.0
    port.thaw()
    assert port.is_live


def test_that_scrolling_stops_at_what_is_kept_and_ends_at_now() -> None:
    port = Viewport(window_s=60.0)
    port.scroll(-math.inf, now_s=1000.0)
    assert port.end_s(1000.0) == 1000.0 - KEPT_S + 60.0
    assert port.end_s(1300.0) == 1300.0 - KEPT_S + 60.0
    port.scroll(math.inf, now_s=1300.0)
    assert port.is_live


def test_that_zooming_keeps_the_moment_under_the_pointer() -> None:
    port = Viewport(window_s=60.0)
    port.scroll(-100.0, now_s=1000.0)
    before = (port.end_s(1000.0) - 870.0) / port.window_s
    port.zoom(0.5, at_s=870.0, now_s=1000.0)
    assert (port.end_s(1000.0) - 870.0) / port.window_s == pytest.approx(before)
    live = Viewport(window_s=60.0)
    live.zoom(0.5, at_s=970.0, now_s=1000.0)
    assert live.is_live
    assert live.window_s == 30.0


def test_that_lanes_give_way_at_once_and_grow_back_late() -> None:
    choice = LaneChoice()
    assert choice.choose(40, 1, 180, now_s=0.0).height == 3
    assert choice.choose(80, 1, 180, now_s=0.1).height == 2
    assert choice.choose(40, 1, 180, now_s=0.2).height == 2
    assert choice.choose(40, 1, 180, now_s=0.3 + SETTLE_S).height == 3
    assert choice.choose(300, 1, 180, now_s=10.0).overflows


@given(st.integers(1, 2000), st.integers(1, 4), st.integers(50, 400))
def test_that_there_is_a_lane_for_every_request_at_once(needed: int, replicas: int, room: int) -> None:
    grid = grid_for(needed, replicas, room)
    assert grid.total >= needed * replicas or grid.total // replicas >= needed
    assert grid.overflows or grid.total * grid.height <= max(room, grid.height * replicas)


def test_that_points_in_the_same_cell_become_one() -> None:
    chosen = one_per_cell(np.array([0, 1, 2, 3, 3]), np.array([4, 4, 4, 4, 5]), width=3)
    assert sorted(chosen.tolist()) == [2, 3, 4]
    assert len(one_per_cell(np.zeros(0, np.int64), np.zeros(0, np.int64), width=3)) == 0


def test_that_a_step_line_of_nothing_is_nothing() -> None:
    xs, ys = step_line(np.zeros(0), np.zeros(0), end=3.0)
    assert (len(xs), len(ys)) == (0, 0)
