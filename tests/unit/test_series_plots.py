"""What each plot shows, computed without Qt and held against counting one by one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from gui.series import batch_size, latency, queue_depth, throughput, timeline
from gui.series.time_range import TimeRange
from gui.series.timeline import FORMED, STAGES, WAITING, Bars, Lanes
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import batch_running, batch_summary
from service.messages.settings import Settings
from tests.synthetic_run import CLOCK, FakeClock, Step, SyntheticRun, early_run, filled_history, picture_run

WINDOW_S, COLUMNS = 60.0, 372


@pytest.fixture(scope="module")
def history() -> History:
    return filled_history(picture_run())[0]


@pytest.fixture
def view(history: History) -> TimeRange:
    return TimeRange.ending_at(history.now_s(), WINDOW_S, COLUMNS)


@pytest.fixture
def empty() -> History:
    return History(CLOCK, FakeClock(100.0))


def test_that_every_series_of_an_empty_history_is_empty(empty: History) -> None:
    view = TimeRange.ending_at(100.0, WINDOW_S, COLUMNS)
    assert batch_size.batch_sizes(empty, view).peak == 0
    assert queue_depth.queue_depths(empty, view).peak == 0
    assert latency.latencies(empty, view).peak == 0
    assert throughput.throughput(empty, view).peaks == (0, 0)
    assert not Bars.in_view(empty, view).stages(view, Lanes.dealt(empty, 60)).any()
    assert latency.readout_at(empty, 100.0) == {"p50": "–", "p95": "–", "p99": "–"}
    assert throughput.readout_at(empty, 100.0) == {"tokens/s": "–", "requests/s": "–", "offered": "–"}


def test_that_each_batch_in_view_has_a_bar_by_its_reason(history: History, view: TimeRange) -> None:
    sizes = batch_size.batch_sizes(history, view)
    for reason, bars in sizes.bars.items():
        assert len(bars.left) == sizes.count[reason]
        assert (bars.right > bars.left).all()
    assert sizes.peak == 16
    assert sizes.bars["full"].size.max() == 16


def test_that_the_cap_is_a_step_at_the_batch_that_obeyed_it(history: History, view: TimeRange) -> None:
    times, caps = batch_size.batch_sizes(history, view).cap
    (mark,) = [mark for mark in history.batches.marks() if mark.version == 3]
    assert set(caps.tolist()) == {4.0, 16.0}
    assert times[np.flatnonzero(caps == 16)[0]] == pytest.approx(mark.at_s)
    assert times[-1] == view.end_s


def test_that_a_cap_far_above_the_batches_does_not_press_them_flat() -> None:
    history, _ = filled_history(SyntheticRun(20.0, (Step(0.0, 3.0, Settings(max_batch_size=256)),)))
    assert batch_size.batch_sizes(history, TimeRange.ending_at(history.now_s(), WINDOW_S, COLUMNS)).peak < 20


def test_that_many_batches_become_one_bar_a_column_with_the_largest_size() -> None:
    run = SyntheticRun(60.0, (Step(0.0, 50.0, Settings(max_batch_size=2)),), step_s=0.0005, per_request_s=0.0001)
    history, _ = filled_history(run)
    view = TimeRange.ending_at(history.now_s(), WINDOW_S, COLUMNS)
    sizes = batch_size.batch_sizes(history, view)
    assert sum(sizes.count.values()) > 2 * COLUMNS
    assert all(len(bars.left) <= COLUMNS + 1 for bars in sizes.bars.values())


def test_that_the_batch_under_the_pointer_is_read_with_its_cap(history: History) -> None:
    row = batch_running(history, history.now_s() - 10.0)
    assert row is not None
    summary = batch_summary(history, row)
    assert summary is not None
    assert batch_size.readout(history, history.now_s() - 10.0) == {summary.reason: str(summary.size), "cap": "16"}


def test_that_queue_depth_agrees_with_counting_at_any_moment(history: History, view: TimeRange) -> None:
    depths = queue_depth.queue_depths(history, view)
    for column in range(0, COLUMNS, 7):
        moments = [view.time_at(column + part / queue_depth.PER_COLUMN) for part in range(queue_depth.PER_COLUMN)]
        totals = [sum(history.depth_at(moment)) for moment in moments]
        assert depths.high.waiting[column] == max(totals)
        assert depths.low.waiting[column] == min(totals)


def test_that_the_stack_has_running_at_the_bottom_and_never_crosses(view: TimeRange) -> None:
    history, _ = filled_history(early_run())
    depths = queue_depth.queue_depths(history, TimeRange.ending_at(history.now_s(), WINDOW_S, COLUMNS))
    for stack in (depths.low, depths.high):
        assert (stack.running <= stack.formed).all()
        assert (stack.formed <= stack.waiting).all()
    assert (depths.high.formed - depths.high.running).max() > 20


def test_that_latency_lines_end_where_the_figures_stand_and_break_at_a_change(
    history: History, view: TimeRange
) -> None:
    lines = latency.latencies(history, view).lines
    assert history.last_s is not None
    assert {name: lines[name][1][-1] for name in latency.NAMES} == pytest.approx(
        latency.values_at(history, history.last_s)
    )
    for mark in history.batches.marks():
        times, values = lines["p50"]
        after = np.flatnonzero(times > mark.at_s)[0]
        assert np.isnan(values[after])


def test_that_percentiles_rise_with_their_level(history: History, view: TimeRange) -> None:
    lines = latency.latencies(history, view).lines
    p50, p95, p99 = (lines[name][1] for name in latency.NAMES)
    known = ~np.isnan(p50)
    assert (p50[known] <= p95[known]).all()
    assert (p95[known] <= p99[known]).all()


def test_that_a_percentile_is_that_of_the_ten_seconds_before(history: History) -> None:
    at_s = 1055.0
    rows = [row for row in history.requests.rows() if row.finished_s is not None and at_s - 10 < row.finished_s <= at_s]
    expected = np.percentile([row.latency_s for row in rows if row.latency_s is not None], 95)
    assert latency.values_at(history, at_s)["p95"] == pytest.approx(expected)


@pytest.mark.parametrize(("name", "per_s"), [("ttft", 1.0), ("tpot", 1000.0)])
def test_that_other_times_are_those_of_the_ten_seconds_before(history: History, name: str, per_s: float) -> None:
    at_s = 1055.0
    rows = [row for row in history.requests.rows() if row.finished_s is not None and at_s - 10 < row.finished_s <= at_s]
    times = [time_s for row in rows if (time_s := getattr(row, f"{name}_s")) is not None]
    expected = np.percentile(times, 95) * per_s
    assert latency.values_at(history, at_s, latency.MEASURES[name])["p95"] == pytest.approx(expected)


def test_that_a_time_asked_for_late_is_the_same_as_if_it_had_been_asked_for_early(view: TimeRange) -> None:
    ttft = latency.MEASURES["ttft"]
    early, late = History(CLOCK, clock=FakeClock(0.0)), History(CLOCK, clock=FakeClock(0.0))
    early.percentiles_of("ttft")
    for history in (early, late):
        picture_run().fill(history)
    for name, (_, values) in latency.latencies(late, view, ttft).lines.items():
        np.testing.assert_allclose(values, latency.latencies(early, view, ttft).lines[name][1])


def test_that_throughput_adds_up_to_all_tokens_and_requests(history: History) -> None:
    view = TimeRange(history.now_s() - 62.0, history.now_s(), 62 * 4)
    rates = throughput.throughput(history, view)
    tokens, generated = np.nansum(rates.tokens[1][:-1]) * 0.25, history.batches.columns["tokens"].sum()
    assert tokens == pytest.approx(generated, rel=0.02)
    finished = history.requests.samples["finished"]
    settled = np.count_nonzero(finished < history.now_s() - 2 * throughput.REQUESTS_WINDOW_S)
    assert settled <= np.nansum(rates.requests[1][:-1]) * 0.25 <= len(finished)


def test_that_offered_is_the_rate_of_an_open_loop(history: History, view: TimeRange) -> None:
    _, rates = throughput.throughput(history, view).offered
    assert set(rates.tolist()) == {2.6, 6.4}


@pytest.mark.parametrize("end", [History.mark_failure, History.mark_stop], ids=["failed", "stopped"])
@pytest.mark.parametrize("later_s", [0.7, 8.0])
def test_that_nothing_is_drawn_on_after_the_end_of_the_service(end: Callable[[History], None], later_s: float) -> None:
    history, clock = filled_history(picture_run(), until_s=50.0)
    end(history)
    ended_s = history.now_s()
    clock.now_s += later_s
    view = TimeRange.ending_at(history.now_s(), WINDOW_S, COLUMNS)
    after = int(view.position(ended_s)) + 1
    assert not queue_depth.queue_depths(history, view).high.waiting[after:].any()
    assert not Bars.in_view(history, view).stages(view, Lanes.dealt(history, 60))[:, after:].any()
    assert throughput.throughput(history, view).tokens[0][-1] <= ended_s + 0.25
    assert throughput.throughput(history, view).offered[0][-1] == ended_s
    assert batch_size.batch_sizes(history, view).cap[0][-1] == ended_s


@pytest.mark.parametrize("later_s", [59.0, 60.3, 65.0, 400.0, 5000.0])
def test_that_a_view_that_comes_after_all_that_was_heard_is_empty(later_s: float) -> None:
    history, clock = filled_history(picture_run(), until_s=50.0)
    history.mark_stop()
    clock.now_s += later_s
    view = TimeRange.ending_at(history.now_s(), 30.0, COLUMNS)
    assert all(len(times) == 0 for times, _ in latency.latencies(history, view).lines.values())
    rates = throughput.throughput(history, view)
    assert rates.peaks[0] == 0
    assert len(rates.tokens[0]) == len(rates.requests[0]) == 0
    assert not Bars.in_view(history, view).stages(view, Lanes.dealt(history, 60)).any()
    assert sum(batch_size.batch_sizes(history, view).count.values()) == 0


def test_that_each_pixel_of_the_timeline_is_what_its_request_did(history: History) -> None:
    view = TimeRange.ending_at(history.now_s(), WINDOW_S, 800)
    lanes = Lanes.dealt(history, 90)
    stages = Bars.in_view(history, view).stages(view, lanes)
    columns = history.requests.columns
    for index in range(0, len(columns), 11):
        started, finished = columns["started"][index], columns["finished"][index]
        lane = int(lanes.of(columns["slot"][index : index + 1], columns["arrival"][index : index + 1])[0])
        middle = int(view.position((started + finished) / 2)) if finished < view.end_s else -1
        if 0 <= middle < 800:
            reason = history.batches.columns["reason"][int(columns["batch"][index])]
            assert STAGES[stages[lane, middle]] == STAGES[timeline.FIRST_RUNNING + reason]
        waiting = int(view.position((columns["queued"][index] + started) / 2)) if started < view.end_s else -1
        if 0 <= waiting < 800 and started - columns["queued"][index] > 3 * view.column_s:
            assert stages[lane, waiting] == WAITING


def test_that_sealed_requests_are_seen_as_formed() -> None:
    history, _ = filled_history(early_run())
    view = TimeRange.ending_at(history.now_s(), WINDOW_S, 800)
    stages = Bars.in_view(history, view).stages(view, Lanes.dealt(history, 90))
    assert np.count_nonzero(stages[:, -40:] == FORMED) > np.count_nonzero(stages[:, -40:] == WAITING)


def test_that_no_two_requests_are_in_a_lane_at_once(history: History) -> None:
    view = TimeRange.ending_at(history.now_s(), WINDOW_S, 800)
    needed = Bars.in_view(history, view).lanes_needed
    columns = history.requests.columns
    lane = columns["arrival"] % needed
    for number in range(needed):
        rows = np.flatnonzero(lane == number)
        begun, ended = columns["received"][rows], columns["finished"][rows]
        assert (begun[1:] >= ended[:-1]).all()


def test_that_a_batch_is_found_where_it_stands(history: History) -> None:
    lanes = Lanes.dealt(history, 90)
    columns = history.batches.columns
    middle_s = (columns["started"][-20] + columns["finished"][-20]) / 2
    row = batch_running(history, middle_s)
    assert row == columns.first + len(columns) - 20
    block = timeline.block_of(history, row, lanes)
    assert block is not None
    middle_s = (block.start_s + block.end_s) / 2
    assert {timeline.batch_at(history, middle_s, lane, lanes) for lane in block.lanes} == {row}
    assert sum(last - first + 1 for first, last in block.spans()) == batch_summary(history, row).size  # type: ignore[union-attr]


def test_that_keys_go_from_batch_to_batch_in_order_of_time(history: History) -> None:
    view = TimeRange.ending_at(history.now_s(), WINDOW_S, 800)
    newest = timeline.neighbour(history, None, 1, view)
    assert newest is not None
    before = timeline.neighbour(history, newest, -1, view)
    assert before is not None
    started = [batch_summary(history, row).started_s for row in (before, newest)]  # type: ignore[union-attr]
    assert started == sorted(started)  # type: ignore[type-var]
    assert timeline.neighbour(history, before, 1, view) == newest


def test_that_what_is_computed_for_the_plots_imports_no_qt() -> None:
    analysis = "service.analysis.observed.statistics, service.analysis.findings.ranking"
    modules = f"{analysis}, gui.series.timeline, gui.series.time_range"
    program = f"import sys, {modules}; sys.exit(any(m.startswith(('PySide6', 'pyqtgraph')) for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_that_no_curve_goes_on_once_the_service_has_failed() -> None:
    failing, _ = filled_history(picture_run())
    failed_s = failing.now_s() - 5.0  # less than the ten seconds that a percentile is of
    failing.outages.open(failed_s, "failed")
    view = TimeRange.ending_at(failing.now_s(), WINDOW_S, COLUMNS)
    times, values = latency.latencies(failing, view).lines["p95"]
    after = values[times > failed_s]
    assert len(after)
    assert np.isnan(after).all()
    assert not np.isnan(values[times < failed_s]).all()
