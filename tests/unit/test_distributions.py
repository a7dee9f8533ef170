"""What the distributions count: scopes that never mix two settings, and what is derived from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from gui.series import wasted_work
from gui.series.batch_distribution import batch_distribution, largest_in_view, readout
from gui.series.latency import Sample, histogram
from gui.series.scale import ValueAxis, value_axis
from gui.series.scope import Scope, latencies_in, present_scope, scope_before
from gui.series.stage_breakdown import stage_breakdown
from gui.series.time_range import TimeRange
from gui.series.wasted_work import wasted, wasted_over_time
from service.analysis.observed.history import History
from service.messages.settings import Settings
from tests.synthetic_run import CLOCK, FakeClock, Step, SyntheticRun, filled_history, picture_run

SMALL = Settings(formation="early", max_batch_size=2)
LARGE = Settings(formation="early", max_batch_size=16, batch_wait_timeout_s=1.0)
CHANGED_S = 30.0


@pytest.fixture(scope="module")
def changed() -> History:
    """Half a minute of sealed batches of 2, then half a minute of up to 16, with answers of various lengths."""
    run = SyntheticRun(60.0, (Step(0.0, 2.0, SMALL), Step(CHANGED_S, settings=LARGE)), tokens=20, tokens_spread=12)
    return filled_history(run)[0]


def scopes(history: History, window_s: float = 60.0) -> tuple[Scope, Scope]:
    present = present_scope(history, history.now_s(), window_s)
    assert present is not None
    before = scope_before(history, present, window_s)
    assert before is not None
    return present, before


# Scopes ---------------------------------------------------------------------------------------------------------------


def test_that_a_scope_begins_where_its_settings_came_in_force(changed: History) -> None:
    present, before = scopes(changed)
    mark = changed.batches.marks()[0]
    assert (present.start_s, present.version) == (mark.at_s, 2)
    assert (before.end_s, before.version) == (mark.at_s, 1)


def test_that_a_scope_is_never_longer_than_the_window(changed: History) -> None:
    present, before = scopes(changed, window_s=10.0)
    assert present.span_s == pytest.approx(10.0)
    assert before.span_s == pytest.approx(10.0)


def test_that_the_two_sides_of_a_change_share_no_request(changed: History) -> None:
    present, before = scopes(changed)
    both = len(latencies_in(changed, present)) + len(latencies_in(changed, before))
    samples = changed.requests.samples
    of_old_settings_after = (samples["finished"] > present.start_s) & (samples["regime"] == before.regime)
    assert of_old_settings_after.any()  # they drained after the change and belong to neither side's window
    assert both == len(samples) - np.count_nonzero(of_old_settings_after)


def test_that_before_the_first_change_there_is_nothing_to_compare_with() -> None:
    history, _ = filled_history(SyntheticRun(5.0))
    present = present_scope(history, history.now_s(), 60.0)
    assert present is not None
    assert scope_before(history, present, 60.0) is None


def test_that_a_history_without_frames_has_no_scope() -> None:
    assert present_scope(History("clock", clock=FakeClock()), 0.0, 60.0) is None


# Latencies ------------------------------------------------------------------------------------------------------------


def test_that_a_histogram_counts_every_request_once() -> None:
    sample = Sample("v1", np.array([0.1, 0.2, 0.2, 0.9]))
    bins = histogram(sample, value_axis(sample.values), pixels=400)
    assert bins.shares.sum() == pytest.approx(100.0)
    assert bins.share_at(0.2) == pytest.approx(50.0)


def test_that_percentiles_are_unknown_without_requests() -> None:
    assert Sample("v1", np.zeros(0)).percentiles() == {}


def test_that_half_of_the_requests_are_answered_within_the_median() -> None:
    sample = Sample("v1", np.sort(np.random.default_rng(1).exponential(1.0, 1001)))
    within = sample.share_within(np.array([sample.percentiles()["p50"]]))
    assert within[0] == pytest.approx(50.0, abs=0.1)


@pytest.mark.parametrize(
    ("values", "is_log"), [([0.8, 1.0, 1.4], False), ([0.05, 0.2, 30.0], True), ([], False), ([0.0, 0.0], False)]
)
def test_that_the_axis_is_logarithmic_where_latencies_spread_far(values: list[float], is_log: bool) -> None:
    assert value_axis(np.array(values)).is_log == is_log


@pytest.mark.parametrize("values", [[0.8, 1.4], [0.004, 0.004, 93.0], [0.02]])
def test_that_the_axis_reaches_from_the_smallest_to_the_largest_value(values: list[float]) -> None:
    axis = value_axis(np.array(values))
    assert axis.low <= min(values)
    assert max(values) <= axis.high
    assert axis.shares(np.array([axis.low, axis.high])).tolist() == [0.0, 1.0]


def test_that_a_place_on_the_axis_leads_back_to_its_value() -> None:
    for axis in (ValueAxis(0.0, 4.0, ()), ValueAxis(0.1, 100.0, (), is_log=True)):
        assert axis.value_at(float(axis.shares(np.array([3.0]))[0])) == pytest.approx(3.0)


# Batches --------------------------------------------------------------------------------------------------------------


def test_that_batches_are_told_apart_by_size_and_reason(changed: History) -> None:
    present, before = scopes(changed)
    largest = largest_in_view(changed, present, before)
    small = batch_distribution(changed, before, largest)
    assert small.outline[2:].sum() == 0
    assert small.outline.sum() == pytest.approx(100.0)
    assert small.by_reason["full"][0] == 0
    assert (small.cap, readout(small)["full"]) == (2, str(small.count["full"]))


def test_that_a_cap_far_beyond_the_batches_does_not_press_them_flat() -> None:
    history, _ = filled_history(SyntheticRun(20.0, (Step(0.0, 1.0, Settings(max_batch_size=256)),)))
    scope = present_scope(history, history.now_s(), 60.0)
    assert largest_in_view(history, scope) < 256


def test_that_more_sizes_than_bars_share_them() -> None:
    run = SyntheticRun(30.0, (Step(0.0, 200.0, Settings(max_batch_size=128)),))
    history, _ = filled_history(run)
    scope = present_scope(history, history.now_s(), 60.0)
    assert scope is not None
    sizes = batch_distribution(history, scope, largest_in_view(history, scope))
    assert (len(sizes.outline), sizes.sizes_of(63)) == (64, "127–128")
    assert sizes.outline[63] == pytest.approx(100.0 * sizes.count["full"] / sizes.total)


# Work -----------------------------------------------------------------------------------------------------------------


def test_that_wasted_work_is_a_share_of_all_places(changed: History) -> None:
    present, _ = scopes(changed)
    found = wasted(changed, present)
    columns = changed.batches.columns
    rows = (columns["regime"] == present.regime) & np.isfinite(columns["finished"])
    places = columns["computed"][rows].sum() + columns["vacant"][rows].sum()
    assert found is not None
    assert found.vacant == pytest.approx(100 * columns["vacant"][rows].sum() / places)
    assert found.total == pytest.approx(found.vacant + 100 * columns["padding"][rows].sum() / places)


def test_that_batches_of_one_waste_nothing() -> None:
    history, _ = filled_history(SyntheticRun(20.0, (Step(0.0, 1.0, Settings(max_batch_size=1)),), tokens_spread=5))
    scope = present_scope(history, history.now_s(), 60.0)
    assert scope is not None
    found = wasted(history, scope)
    assert found is not None
    assert found.total == 0.0


def test_that_tokens_of_prompts_that_were_not_computed_are_shown_as_saved() -> None:
    run = SyntheticRun(20.0, (Step(0.0, 4.0, Settings(max_batch_size=4)),))
    clock = FakeClock(run.start_s)
    history = History(CLOCK, clock, clock.wall_time)
    for frame, _ in run.frames():
        clock.now_s = frame.at_s
        known = tuple(replace(b, work=b.work and replace(b.work, prompts=10, saved=30)) for b in frame.batches)
        history.add_telemetry(replace(frame, batches=known))
    scope = present_scope(history, history.now_s(), 60.0)
    assert scope is not None
    found = wasted(history, scope)
    assert found is not None
    assert (found.saved, wasted_work.readout(found)["saved"]) == (pytest.approx(75.0), "75.0 %")
    over_time = wasted_over_time(history, TimeRange.ending_at(history.now_s(), 60.0, 100))
    assert [entry.name for entry in wasted_work.declared(over_time).entries] == ["ended rows", "padding", "saved"]


def test_that_nothing_is_known_of_work_before_a_batch_ended() -> None:
    history, _ = filled_history(SyntheticRun(0.1))
    assert wasted(history, Scope(0.0, 1e9, 1, 1)) is None
    over_time = wasted_over_time(history, TimeRange(990.0, 1010.0, 100))
    assert np.isnan(over_time.vacant).all()
    assert wasted_work.declared(over_time) == wasted_work.PLOT


def test_that_wasted_work_over_time_never_mixes_two_settings(changed: History) -> None:
    mark_s = changed.batches.marks()[0].at_s
    view = TimeRange(mark_s - 20, mark_s + 20, 400)
    found = wasted_over_time(changed, view)
    columns = changed.batches.columns
    step = math.floor(mark_s)
    in_step = np.floor(columns["finished"]) == step
    after = in_step & (columns["regime"] == columns["regime"][in_step].max())
    vacant, computed = columns["vacant"][after].sum(), columns["computed"][after].sum()
    at = int(view.position(step + 0.5))
    assert found.vacant[at] == pytest.approx(100 * vacant / (vacant + computed))


# Stages ---------------------------------------------------------------------------------------------------------------


def test_that_mean_stages_add_up_to_the_mean_latency(changed: History) -> None:
    present, _ = scopes(changed)
    stages = stage_breakdown(changed, present)
    assert stages is not None
    latencies = latencies_in(changed, present)
    assert stages.count == len(latencies)
    assert stages.mean.sum() == pytest.approx(latencies.mean(), rel=0.01)


def test_that_the_stages_at_p95_add_up_to_about_p95() -> None:
    history, _ = filled_history(picture_run())
    scope = present_scope(history, history.now_s(), 60.0)
    assert scope is not None
    stages = stage_breakdown(history, scope)
    assert stages is not None
    assert stages.at_p95.sum() == pytest.approx(np.percentile(latencies_in(history, scope), 95), rel=0.05)


def test_that_there_are_no_stages_before_anything_was_answered() -> None:
    history, _ = filled_history(SyntheticRun(0.1))
    assert stage_breakdown(history, Scope(0.0, 1e9, 1, 1)) is None
