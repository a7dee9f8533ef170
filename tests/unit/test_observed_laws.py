"""What holds of the tables, grids and percentiles behind all figures, whatever they are fed with."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.analysis.observed.columns import Columns
from service.analysis.observed.rolling import (
    LATE_S,
    LEVELS,
    STEP_S,
    WINDOW_S,
    Grid,
    RollingPercentiles,
    percentiles,
    step_of,
)
from service.analysis.observed.stages import MARKS, durations
from service.analysis.observed.statistics import LEAST_SINGLES, RanBatches, speedup

MOST_ROWS = 1500
"""More than the table has room for at first, so that it grows and moves."""


class TableMachine(RuleBasedStateMachine):
    """A table beside a plain dictionary of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Columns(floats=["at"], integers=["size"], max_rows=MOST_ROWS)
        self.rows: dict[int, tuple[int, float]] = {}
        self.first = 0

    @rule(count=st.integers(1, 700), size=st.integers(0, 99), has_time=st.booleans())
    def append(self, count: int, size: int, has_time: bool) -> None:
        for _ in range(count):
            number = self.table.append({"size": size, "at": 0.5} if has_time else {"size": size})
            assert number == self.first + len(self.rows)
            self.rows[number] = (size, 0.5 if has_time else math.inf)
            if len(self.rows) > MOST_ROWS:
                self.forget_before(self.first + 1)

    @rule(rows=st.integers(-5, 2000))
    def drop(self, rows: int) -> None:
        self.table.drop_before(self.first + rows)
        self.forget_before(self.first + rows)

    def forget_before(self, row: int) -> None:
        row = min(max(row, self.first), self.first + len(self.rows))
        for number in range(self.first, row):
            del self.rows[number]
        self.first = row

    @precondition(lambda self: self.rows)
    @rule(share=st.floats(0, 1), size=st.integers(100, 199))
    def set(self, share: float, size: int) -> None:
        number = self.first + round(share * (len(self.rows) - 1))
        self.table.set(number, "size", size)
        self.rows[number] = (size, self.rows[number][1])

    @precondition(lambda self: self.rows)
    @rule(shares=st.lists(st.floats(0, 1), max_size=9), at_s=st.one_of(st.none(), st.floats(0, 9)))
    def put(self, shares: list[float], at_s: float | None) -> None:
        numbers = [self.first + round(share * (len(self.rows) - 1)) for share in shares]
        self.table.put(numbers, "at", [at_s] * len(numbers))
        for number in numbers:
            self.rows[number] = (self.rows[number][0], math.inf if at_s is None else at_s)

    @rule(row=st.integers(-3, 9000))
    def ask(self, row: int) -> None:
        assert self.table.has(row) == (row in self.rows)
        if row in self.rows:
            assert (self.table.get(row, "size"), self.table.get(row, "at")) == self.rows[row]
        else:
            with pytest.raises(IndexError):
                self.table.get(row, "size")

    @invariant()
    def it_holds_the_rows(self) -> None:
        assert (self.table.first, len(self.table)) == (self.first, len(self.rows))
        assert self.table["size"].tolist() == [size for size, _ in self.rows.values()]
        assert self.table["at"].tolist() == [at_s for _, at_s in self.rows.values()]


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


@given(
    written=st.lists(st.tuples(st.integers(0, 60), st.floats(0, 100), st.booleans()), max_size=40),
    read=st.tuples(st.integers(-20, 80), st.integers(0, 40)),
)
def test_that_a_grid_reads_what_was_written_to_the_steps_that_it_keeps(
    written: list[tuple[int, float, bool]], read: tuple[int, int]
) -> None:
    grid, newest, values = Grid(5.0, blank=0.0), -1, dict[int, float]()
    for step, value, is_added in written:
        newest = max(newest, step)
        if step > newest - len(grid):
            (grid.add if is_added else grid.put)(step, value)
            values[step] = value + (values.get(step, 0.0) if is_added else 0.0)
        else:
            grid.put(step, value)  # too old
    first, last = read[0], read[0] + read[1]
    kept = [values.get(step, 0.0) if step > newest - len(grid) else 0.0 for step in range(first, last + 1)]
    assert grid.read(first, last).tolist() == pytest.approx(kept)


@given(start_s=st.floats(0, 1000), span_s=st.floats(0, 30), amount=st.floats(0, 1e6))
def test_that_what_is_spread_over_a_time_is_all_there_and_nowhere_else(
    start_s: float, span_s: float, amount: float
) -> None:
    grid = Grid(40.0, blank=0.0)
    grid.add_over(start_s, start_s + span_s, amount)
    first, last = step_of(start_s), step_of(start_s + span_s)
    assert grid.read(first, last).sum() == pytest.approx(amount)
    assert not grid.read(first - 9, first - 1).any()
    assert not grid.read(last + 1, last + 9).any()


@given(start_s=st.floats(0, 100), seconds=st.integers(6, 60))
def test_that_of_what_lasted_longer_than_a_grid_keeps_the_rest_is_as_dense_as_it_was(
    start_s: float, seconds: int
) -> None:
    grid, end_s = Grid(5.0, blank=0.0), start_s + seconds
    grid.add_over(start_s, end_s, amount=7.0 * seconds)
    last = step_of(end_s)
    assert grid.read(last - 10, last - 1) / STEP_S == pytest.approx(7.0)


ENDS = st.lists(st.tuples(st.floats(0, 0.4), st.floats(0.001, 5), st.floats(0, LATE_S * 0.99)), max_size=120)
"""How long after the one before each request ended, its latency, and how much later it was reported."""


def reported(ends: list[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """When each was reported, when it ended, and its latency; in the order of the reports."""
    ended_s = np.cumsum([gap_s for gap_s, *_ in ends])
    return sorted((at_s + late_s, at_s, latency_s) for at_s, (_, latency_s, late_s) in zip(ended_s, ends, strict=True))


def empty_samples() -> Columns:
    return Columns(floats=["finished", "latency"], integers=["regime"], max_rows=10_000)


def add(samples: Columns, finished_s: float, latency_s: float, change_s: float) -> None:
    samples.append({"finished": finished_s, "latency": latency_s, "regime": int(finished_s >= change_s)})


@given(ends=ENDS, change_s=st.floats(0, 30), start_s=st.floats(-5, 30), span_s=st.floats(0, 12))
def test_that_percentiles_are_those_of_all_that_ended_in_the_span_under_the_settings(
    ends: list[tuple[float, float, float]], change_s: float, start_s: float, span_s: float
) -> None:
    samples = empty_samples()
    for _, at_s, latency_s in reported(ends):
        add(samples, at_s, latency_s, change_s)
    chosen = [
        latency_s for _, at_s, latency_s in reported(ends) if start_s < at_s <= start_s + span_s and at_s >= change_s
    ]
    expected = np.percentile(chosen, LEVELS) if chosen else np.full(len(LEVELS), np.nan)
    found = percentiles(samples, start_s, start_s + span_s, regime=1)
    assert found == pytest.approx(expected, nan_ok=True)
    assert not chosen or (np.diff(found) >= 0).all()


@settings(deadline=None)
@given(ends=ENDS, change_s=st.floats(0, 30), pauses_s=st.lists(st.floats(0.01, 3), min_size=1, max_size=30))
def test_that_percentiles_kept_up_to_date_are_those_computed_in_the_end(
    ends: list[tuple[float, float, float]], change_s: float, pauses_s: list[float]
) -> None:
    samples, rolling, coming = empty_samples(), RollingPercentiles(60.0), reported(ends)
    looks_s = [float(at_s) for at_s in np.cumsum(pauses_s)]
    for look_s in looks_s:
        while coming and coming[0][0] <= look_s:
            _, at_s, latency_s = coming.pop(0)
            add(samples, at_s, latency_s, change_s)
        rolling.advance(
            look_s,
            lambda at_s: (1, change_s) if at_s >= change_s else (0, -math.inf),
            partial(percentiles, samples),
        )

    first, last = step_of(looks_s[0]), step_of(looks_s[-1])
    for step in range(first, last + 1):
        at_s = step * STEP_S
        regime, since_s = (1, change_s) if at_s >= change_s else (0, -math.inf)
        whole = percentiles(samples, max(at_s - WINDOW_S, since_s), at_s, regime)
        kept = [float(grid.read(step, step)[0]) for grid in rolling.grids]
        assert kept == pytest.approx(whole.tolist(), nan_ok=True)


@given(
    gaps_s=st.lists(st.floats(0, 30), min_size=len(MARKS) - 1, max_size=len(MARKS) - 1),
    reached=st.integers(1, len(MARKS) - 1),
    looks_s=st.tuples(st.floats(0, 300), st.floats(0, 300)),
)
def test_that_the_stages_of_a_request_under_way_only_grow_until_it_ends(
    gaps_s: list[float], reached: int, looks_s: tuple[float, float]
) -> None:
    times = np.cumsum([5.0, *gaps_s])
    times[reached:] = np.inf
    earlier, later = (
        durations(times[None, :], until_s=float(times[reached - 1]) + look_s)[0] for look_s in sorted(looks_s)
    )
    assert (later - earlier >= -1e-9).all()
    assert np.count_nonzero(later - earlier > 1e-9) <= 1, "only the stage that it is in"
    assert earlier.sum() == pytest.approx(times[reached - 1] + min(looks_s) - 5.0)


RUNS_S = st.lists(st.floats(0.01, 9), min_size=LEAST_SINGLES, max_size=12)


def ran(size: int, runs_s: list[float]) -> RanBatches:
    sizes = np.full(len(runs_s), float(size))
    return RanBatches(sizes, 24 * sizes, 7 * sizes, np.array(runs_s), np.zeros(len(sizes), np.bool_))


@given(size=st.integers(1, 16), runs_s=RUNS_S, alone_s=RUNS_S, factor=st.floats(0.1, 10))
def test_that_a_speed_up_is_the_same_on_a_machine_that_is_as_much_slower_in_everything(
    size: int, runs_s: list[float], alone_s: list[float], factor: float
) -> None:
    here, _ = speedup(ran(size, runs_s), ran(1, alone_s))
    there, _ = speedup(ran(size, [run_s * factor for run_s in runs_s]), ran(1, [run_s * factor for run_s in alone_s]))
    assert here == pytest.approx(there, rel=1e-6)


@given(runs_s=RUNS_S)
def test_that_batches_of_one_are_as_fast_as_themselves(runs_s: list[float]) -> None:
    alone = ran(1, runs_s)
    assert speedup(alone, alone) == (pytest.approx(1.0), len(runs_s))
