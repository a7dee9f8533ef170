"""What holds of time ranges, axes, lanes and thinned points, whatever is shown and wherever one has scrolled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gui.series.scale import value_axis
from gui.series.time_axis import MOST_TICKS, clock_ticks, relative_ticks
from gui.series.time_range import LONGEST_S, SHORTEST_S, TimeRange, Viewport, one_per_cell, step_line
from gui.series.timeline import SETTLE_S, LaneChoice, LaneGrid
from service.analysis.observed.history import KEPT_S

VIEWS = st.builds(
    TimeRange.ending_at,
    end_s=st.floats(0, 1e6),
    span_s=st.floats(SHORTEST_S, LONGEST_S),
    columns=st.integers(50, 3000),
    ratio=st.sampled_from([1.0, 1.5, 2.0]),
)


@given(view=VIEWS, share=st.floats(0, 1))
def test_that_a_place_leads_back_to_its_moment(view: TimeRange, share: float) -> None:
    at_s = view.start_s + share * view.span_s
    assert view.time_at(view.position(at_s)) == pytest.approx(at_s, abs=1e-6)
    assert -1e-6 <= view.position(at_s) <= view.columns + 1e-6


@given(view=VIEWS, shares=st.lists(st.floats(0, 1), min_size=1))
def test_that_columns_of_the_grid_stand_as_far_apart_as_the_places(view: TimeRange, shares: list[float]) -> None:
    times = view.start_s + np.array(shares) * view.span_s
    apart = view.grid_columns(times) - view.grid_columns(np.array([view.start_s + view.column_s / 2]))
    assert (np.abs(apart - np.floor(view.positions(times))) <= 1).all()


@given(view=VIEWS, offset_s=st.floats(0, 2e9))
def test_that_ticks_lie_in_view_in_order_and_do_not_crowd(view: TimeRange, offset_s: float) -> None:
    for ticks in (relative_ticks(view), clock_ticks(view, offset_s)):
        times = [tick.at_s for tick in ticks]
        assert times == sorted(times)
        assert len(times) <= MOST_TICKS + 1
        assert all(view.start_s - 1e-3 <= at_s <= view.end_s + 1e-3 for at_s in times)


class ViewportMachine(RuleBasedStateMachine):
    """The common time axis under a hand that scrolls, zooms, freezes and thaws as time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.viewport = Viewport()
        self.now_s = 2 * KEPT_S

    @rule(seconds=st.floats(0, 2 * KEPT_S))
    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(by_s=st.floats(-2 * KEPT_S, 2 * KEPT_S))
    def scroll(self, by_s: float) -> None:
        before_s = self.viewport.end_s(self.now_s)
        self.viewport.scroll(by_s, self.now_s)
        moved_s = self.viewport.end_s(self.now_s) - before_s
        assert moved_s * by_s >= -1e-6, "never the other way"
        assert abs(moved_s) <= abs(by_s) + 1e-6

    @rule(factor=st.floats(0.05, 20), share=st.floats(0, 1))
    def zoom(self, factor: float, share: float) -> None:
        view, now_s = self.viewport, self.now_s
        end_s, window_s = view.end_s(now_s), view.window_s
        at_s = end_s - share * window_s
        view.zoom(factor, at_s, now_s)
        new_end_s = view.end_s(now_s)
        if view.is_scrolled and now_s - view.kept_s + view.window_s < new_end_s - 1e-6:
            assert (new_end_s - at_s) / view.window_s == pytest.approx(share, abs=1e-6), "what is pointed at stays"
        assert view.window_s == pytest.approx(min(max(window_s * factor, SHORTEST_S), LONGEST_S))

    @rule()
    def freeze(self) -> None:
        before_s = self.viewport.end_s(self.now_s)
        if not self.viewport.is_frozen:
            self.viewport.freeze(self.now_s)
            assert self.viewport.end_s(self.now_s) == before_s

    @rule()
    def thaw(self) -> None:
        self.viewport.thaw()
        assert self.viewport.is_live

    @rule()
    def go_to_the_newest(self) -> None:
        self.viewport.to_live()
        assert self.viewport.end_s(self.now_s) == self.viewport.newest_s(self.now_s)

    @invariant()
    def nothing_is_shown_that_is_not_there(self) -> None:
        view = self.viewport
        end_s, newest_s = view.end_s(self.now_s), view.newest_s(self.now_s)
        assert end_s <= newest_s <= self.now_s
        oldest_end_s = self.now_s - view.kept_s + view.window_s
        assert end_s >= min(oldest_end_s, newest_s) - 1e-6
        assert SHORTEST_S <= view.window_s <= LONGEST_S
        assert view.is_live == (not view.is_frozen and not view.is_scrolled)


TestViewport = ViewportMachine.TestCase
TestViewport.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)


SAMPLES = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=60).map(lambda values: np.sort(np.array(values)))


@given(samples=st.lists(SAMPLES, min_size=1, max_size=3), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_that_an_axis_of_values_holds_them_all_in_their_order(
    samples: list[np.ndarray], shares: tuple[float, float]
) -> None:
    axis = value_axis(*samples)
    assert max(sample[-1] for sample in samples) <= axis.high * (1 + 1e-9)
    assert all(axis.low <= tick <= axis.high * (1 + 1e-9) for tick in axis.ticks)
    assert list(axis.ticks) == sorted(set(axis.ticks))
    for sample in samples:
        places = axis.shares(sample)
        assert ((places >= 0) & (places <= 1 + 1e-9)).all()
        assert (np.diff(places) >= 0).all()
    low, high = sorted(shares)
    assert axis.value_at(low) <= axis.value_at(high) * (1 + 1e-9)
    assert float(axis.shares(np.array([axis.value_at(low)]))[0]) == pytest.approx(low, abs=1e-6)


@given(points=st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 9)), max_size=80), width=st.integers(1, 7))
def test_that_thinned_points_are_one_for_each_cell_that_has_any(points: list[tuple[int, int]], width: int) -> None:
    columns, rows = (np.array([point[axis] for point in points], np.int64) for axis in (0, 1))
    chosen = one_per_cell(columns, rows, width)
    cells = [(column // width, row) for column, row in points]
    assert sorted(cells[index] for index in chosen) == sorted(set(cells))


@given(
    gaps_s=st.lists(st.floats(0.01, 10), min_size=1, max_size=20),
    values=st.data(),
    at=st.floats(0, 1),
    end=st.floats(0.01, 5),
)
def test_that_a_step_line_holds_each_value_until_the_next(
    gaps_s: list[float], values: st.DataObject, at: float, end: float
) -> None:
    starts = np.cumsum(gaps_s)
    heights = np.array(values.draw(st.lists(st.floats(-9, 9), min_size=len(starts), max_size=len(starts))))
    xs, ys = step_line(starts, heights, float(starts[-1]) + end)
    assert len(xs) == len(ys) == 2 * len(starts)
    at_s = starts[0] + at * (xs[-1] - starts[0])
    assume(np.abs(starts - at_s).min() > 1e-6)
    assert np.interp(at_s, xs, ys) == pytest.approx(heights[np.searchsorted(starts, at_s) - 1])


@given(
    looks=st.lists(
        st.tuples(st.integers(0, 400), st.integers(1, 4), st.integers(30, 500), st.floats(0, 9)),
        min_size=1,
        max_size=30,
    )
)
def test_that_lanes_always_suffice_and_become_fewer_only_after_a_while(
    looks: list[tuple[int, int, int, float]],
) -> None:
    choice, now_s, dealt_s, before = LaneChoice(), 0.0, 0.0, (LaneGrid(1, 1, 1), 0, 0)
    for needed, replicas, room, pause_s in looks:
        now_s += pause_s
        grid = choice.choose(needed, replicas, room, now_s)
        assert grid.total // replicas >= needed
        assert choice.choose(needed, replicas, room, now_s) == grid, "asked again, the same"
        if before[1:] == (replicas, room) and grid.total < before[0].total:
            assert now_s - dealt_s >= SETTLE_S
        if grid != before[0]:
            dealt_s = now_s
        before = (grid, replicas, room)
