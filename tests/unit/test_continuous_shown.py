"""What is told and drawn of a run in which requests join the running batch and leave it one by one."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from gui.control.presenter import activity
from gui.series import batch_distribution, batch_size, timeline
from gui.series.batch_size import active_rows
from gui.series.scope import present_scope, scope_before
from gui.series.stage_breakdown import engine_time
from gui.series.time_range import TimeRange
from gui.series.timeline import Bars, Lanes
from gui.series.waits import request_details, wait_sentence
from service.analysis.observed.batches import CONTINUOUS, mean_size
from service.analysis.observed.budget import budget_now
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import members_of
from service.analysis.observed.statistics import figures
from service.messages.settings import Settings
from tests.synthetic_continuous import PROMPT_TOKEN_S
from tests.synthetic_run import CLOCK, FakeClock, Step, SyntheticRun, continuous_run, filled_history

COLUMNS = 400


@pytest.fixture(scope="module")
def history() -> History:
    return filled_history(continuous_run())[0]


@pytest.fixture(scope="module")
def crowded() -> History:
    """More come than find a place."""
    settings = Settings(formation="continuous", max_batch_size=4)
    return filled_history(SyntheticRun(20.0, (Step(0.0, 6.0, settings),), tokens_spread=12))[0]


def lately(history: History, span_s: float = 20.0) -> TimeRange:
    return TimeRange.ending_at(history.now_s(), span_s, COLUMNS)


def running_at(history: History, at_s: float) -> set[int]:
    columns = history.requests.columns
    return set((np.flatnonzero((columns["started"] <= at_s) & (columns["finished"] > at_s)) + columns.first).tolist())


def segments(history: History) -> list[int]:
    columns = history.batches.columns
    places = np.flatnonzero((columns["formation"] == CONTINUOUS) & np.isfinite(columns["finished"]))
    return (places + columns.first).tolist()


def middle_s(history: History, batch: int) -> float:
    return sum(history.batches.columns.get(batch, name) for name in ("started", "finished")) / 2


# -------------------------------------------------------------------------------------------------------- what is known


def test_that_the_members_of_a_segment_are_all_requests_that_run_in_it_whenever_they_joined(history: History) -> None:
    for row in segments(history):
        members = members_of(history, row)
        assert set(members) == running_at(history, middle_s(history, row))
        assert len(members) == history.batches.columns.get(row, "size")


def test_that_requests_ran_beside_another_if_their_times_overlap(history: History) -> None:
    row = min(running_at(history, history.now_s() - 25.0))
    details = request_details(history, row)
    assert details is not None
    assert details.batch is not None
    begin_s, end_s = (history.requests.columns.get(row, name) for name in ("started", "finished"))
    beside = set().union(*(running_at(history, at_s) for at_s in np.linspace(begin_s, end_s, 400)[1:-1])) - {row}
    assert {mate.key for mate in details.mates} == beside
    assert len(beside) > details.batch.size, "more than ran when it joined"


def test_that_the_mean_batch_is_that_of_the_time_not_of_the_stretches(history: History) -> None:
    columns = history.batches.columns
    ended = (columns["finished"] > history.now_s() - 10.0) & np.isfinite(columns["finished"])
    size, run_s = columns["size"][ended], columns["finished"][ended] - columns["started"][ended]
    assert figures(history).mean_batch == pytest.approx(np.average(size, weights=run_s))
    assert mean_size(size[:0], run_s[:0], np.zeros(0, np.bool_)) is None


def test_that_a_request_that_found_no_place_says_so_and_one_that_did_waited_for_a_step(crowded: History) -> None:
    columns = crowded.requests.columns
    waited = np.where(np.isfinite(columns["started"]), columns["started"] - columns["queued"], 0.0)
    longest = int(np.argmax(waited)) + columns.first
    assert " s for one of the 4 places" in wait_sentence(crowded, longest)
    sentences = {wait_sentence(crowded, row) for row in crowded.requests.columns.numbers()}
    assert any("for the steps under way" in sentence for sentence in sentences)
    assert not any("to end" in sentence for sentence in sentences), "there are no batches to wait for"


ROWS_HELD = 3


def short_of_tokens(source: str) -> History:
    """A run of as many requests at a time as the tokens hold, of which its frames say that 16 have places."""
    settings = Settings(formation="continuous", max_batch_size=ROWS_HELD)
    run = SyntheticRun(20.0, (Step(0.0, 6.0, settings),))
    tokens = int((ROWS_HELD + 0.5) * (run.requests[0].prompt_tokens + run.requests[0].tokens))
    told = {"max_batch_size": 16} | ({"max_batch_tokens": tokens} if source == "max_batch_tokens" else {})
    memory_tokens = tokens if source == "memory" else 100 * tokens
    clock = FakeClock(run.start_s)
    history = History(CLOCK, clock, clock.wall_time)
    for frame, load in run.frames():
        clock.now_s = frame.at_s
        history.add_telemetry(
            replace(
                frame,
                in_force=replace(frame.in_force, settings=settings.revised(told)),
                batches=tuple(replace(batch, cap=16) for batch in frame.batches),
                replicas=tuple(replace(status, memory_tokens=memory_tokens) for status in frame.replicas),
            )
        )
        history.add_load(load)
    return history


@pytest.mark.parametrize("source", ["memory", "max_batch_tokens"])
def test_that_what_waits_for_tokens_says_so_and_the_plot_has_a_line_for_it(source: str) -> None:
    history = short_of_tokens(source)
    budget = budget_now(history)
    assert budget is not None
    columns = history.requests.columns
    waited = np.where(np.isfinite(columns["started"]), columns["started"] - columns["queued"], 0.0)
    sentence = wait_sentence(history, int(np.argmax(waited)) + columns.first)
    assert f" s for room in {source}, which holds {budget.tokens} tokens" in sentence

    sizes = batch_size.batch_sizes(history, lately(history))
    times, held = sizes.budget
    is_busy = np.isfinite(held)
    assert set(held[is_busy]) == {ROWS_HELD}
    assert times[-1] == sizes.cap[0][-1], "it ends where the line of the cap does"
    assert batch_size.declared(sizes).entries[-1].name == source
    assert batch_size.summary(history, sizes)[source] == str(ROWS_HELD)


def test_that_there_is_no_line_where_tokens_hold_as_many_as_the_cap(crowded: History) -> None:
    sizes = batch_size.batch_sizes(crowded, lately(crowded))
    assert (sizes.budget_source, len(sizes.budget[0])) == (None, 0)


def test_that_the_status_bar_counts_places(crowded: History) -> None:
    words = activity(crowded, figures(crowded))
    assert words.startswith("4 of 4 places taken, ")
    assert words.endswith(" waiting")


# -------------------------------------------------------------------------------------------------------- what is drawn


def test_that_a_bar_runs_from_its_start_to_its_end_through_all_stretches(history: History) -> None:
    view, lanes = lately(history), Lanes.dealt(history, 64)
    stages = Bars.in_view(history, view).stages(view, lanes)
    columns = history.requests.columns
    for row in running_at(history, history.now_s() - 10.0):
        place = row - columns.first
        lane = int(lanes.of(columns["slot"][[place]], columns["arrival"][[place]])[0])
        begin, end = (int(view.position(columns[name][place])) for name in ("started", "finished"))
        drawn = set(stages[lane, begin + 1 : end].tolist())
        assert len(drawn) == 1
        assert timeline.STAGES[drawn.pop()] in ("joined", "timeout")


def test_that_the_batch_under_the_pointer_is_the_segment_that_ran_then(history: History) -> None:
    lanes = Lanes.dealt(history, 64)
    row = segments(history)[-20]
    block = timeline.block_of(history, row, lanes)
    assert block is not None
    assert len(block.lanes) == history.batches.columns.get(row, "size")
    assert {timeline.batch_at(history, middle_s(history, row), lane, lanes) for lane in block.lanes} == {row}


def test_that_active_rows_are_averaged_over_a_column_and_the_most_is_kept() -> None:
    view = TimeRange(0.0, 4.0, 4)
    rows = active_rows(np.array([0.0, 0.5, 2.25]), np.array([0.5, 2.0, 2.75]), np.array([2.0, 6.0, 3.0]), view)
    assert rows.mean.tolist() == [4.0, 6.0, 3.0, 0.0]
    assert rows.most.tolist() == [6.0, 6.0, 3.0, 0.0]


def test_that_many_changes_a_column_are_averaged_over_some_columns() -> None:
    starts = np.arange(0.0, 40.0, 0.1)
    size = np.where(np.arange(len(starts)) % 20 < 10, 2.0, 10.0)  # a second of 2, a second of 10
    rows = active_rows(starts, starts + 0.1, size, TimeRange(0.0, 40.0, 40))
    assert np.ptp(rows.mean[5:-5]) < 2.0
    assert set(rows.most.tolist()) == {2.0, 10.0}


def test_that_segments_are_an_area_and_only_wide_ones_have_a_mark(history: History) -> None:
    far, near = (batch_size.batch_sizes(history, lately(history, span_s)) for span_s in (20.0, 1.0))
    assert not any(len(bars.left) for bars in far.bars.values()), "these are of whole batches"
    assert far.active is not None
    assert 0 < far.active.most.max() <= far.peak
    assert sum(len(near.marked[reason].marks) for reason in ("joined", "left")) > 0
    assert len(far.marked["left"].marks) < far.count["left"]


def test_that_legends_name_the_reasons_that_there_are(history: History) -> None:
    names = [entry.name for entry in batch_size.declared(batch_size.batch_sizes(history, lately(history))).entries]
    assert names[-3:] == ["joined", "left", "cap"]
    assert "drained" not in names
    before = TimeRange.ending_at(history.now_s() - 45.0, 15.0, COLUMNS)
    whole = [entry.name for entry in batch_size.declared(batch_size.batch_sizes(history, before)).entries]
    assert whole == ["full", "timeout", "drained", "cap"]
    seen = Bars.in_view(history, lately(history)).reasons_seen
    assert [entry.name for entry in timeline.declared(seen).entries][-1] == "joined"


def test_that_the_distribution_is_of_the_time_that_so_many_ran(history: History) -> None:
    scope = present_scope(history, history.now_s(), 30.0)
    assert scope is not None
    shares = batch_distribution.batch_distribution(history, scope, 16)
    assert shares.is_by_time
    assert sum(each.sum() for each in shares.by_reason.values()) == pytest.approx(100.0)
    columns = history.batches.columns
    of_six = scope.contains(columns["finished"], columns["regime"]) & (columns["size"] == 6)
    run_s = columns["finished"] - columns["started"]
    ran_s = run_s[scope.contains(columns["finished"], columns["regime"])].sum()
    assert shares.outline[5] == pytest.approx(100 * run_s[of_six].sum() / ran_s)
    before = scope_before(history, scope, 30.0)
    assert before is not None
    assert not batch_distribution.batch_distribution(history, before, 16).is_by_time


def test_that_the_engines_time_is_told_as_prefill_decode_and_idle(history: History) -> None:
    scope = present_scope(history, history.now_s(), 30.0)
    assert scope is not None
    shares = engine_time(history, scope)
    assert shares is not None
    assert shares.prefill + shares.decode + shares.idle == pytest.approx(1.0, abs=0.01)
    columns = history.batches.columns
    prompts = columns["prompts"][scope.contains(columns["finished"], columns["regime"])].sum()
    assert shares.prefill == pytest.approx(PROMPT_TOKEN_S * prompts / 30.0, rel=0.02)


def test_that_an_engine_with_a_queue_is_not_called_idle_right_after_a_change_or_amid_a_long_batch() -> None:
    """Its batch under way has not ended, and was formed under the settings before."""
    steps = (
        Step(0.0, 2.0, Settings(formation="continuous", max_batch_size=4)),
        Step(20.0, settings=Settings(formation="continuous", max_batch_size=2)),
    )
    run = SyntheticRun(60.0, steps, step_s=0.5)
    for until_s in (19.9, 20.4, 21.5, 40.0):
        history, _ = filled_history(run, until_s=until_s)
        scope = present_scope(history, history.now_s(), 10.0)
        assert scope is not None
        shares = engine_time(history, scope)
        assert shares is not None
        assert shares.idle < 0.1


def test_that_nothing_is_said_of_an_engine_that_does_not_tell_what_it_did(crowded: History) -> None:
    scope = present_scope(crowded, crowded.now_s(), 30.0)
    crowded.batches.columns["prefill_s"][:] = 0.0
    assert scope is not None
    assert engine_time(crowded, scope) is None
