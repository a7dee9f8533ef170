"""Settings side by side: the same arrivals for each, their timelines above each other, on the scripted service."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PySide6.QtCore import QPointF, Qt
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.comparing.side_by_side import NOTHING_YET, RECORDED
from gui.comparing.view import SIDE_BY_SIDE, CompareView
from gui.look.tokens import HEIGHT_RUN_CURVES, PANEL_PADDING
from gui.panels.views import COMPARE
from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.run import recorded_run
from service.analysis.compare.run_plan import SweepPlan
from service.analysis.compare.sweep import Sweep
from service.analysis.lesson.file import shipped
from service.analysis.recording.reader import open_recording
from service.messages.load import Poisson, RunLoad
from service.messages.settings import FORMATIONS, Settings
from tests.window.seen import settings_in_force

RECORDINGS = sorted(next(iter(shipped().values())).parent.glob("*.bsr"))[:2]


def side_by_side(batchscope: Batchscope) -> CompareView:
    """The view, with runs as short as they can be."""
    window = batchscope.window
    window.views.show_view(COMPARE)
    window.load.set_load(Poisson(rate_per_s=20.0), 4)
    view = window.views.pages.currentWidget()
    assert isinstance(view, CompareView)
    view.show_kind(SIDE_BY_SIDE)
    view.side_setup.duration.set_number(2)
    batchscope.composition.compare.refresh()
    return view


def test_that_at_first_the_formations_of_the_present_settings_stand_there(running: Batchscope) -> None:
    view = side_by_side(running)
    assert [each.formation for each in view.side_setup.points] == ["late", "early", "continuous"]
    assert {each.max_batch_size for each in view.side_setup.points} == {settings_in_force(running).max_batch_size}
    assert not view.side_setup.add.isEnabled(), "three at most"
    assert view.side_results.verdict.text() == NOTHING_YET
    assert not view.side_results.apply.isEnabled()


def test_that_settings_are_taken_away_and_the_present_ones_added(qtbot: QtBot, running: Batchscope) -> None:
    view = side_by_side(running)
    setup = view.side_setup
    qtbot.mouseClick(setup.rows[2].remove, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(setup.rows[1].remove, Qt.MouseButton.LeftButton)
    assert not setup.rows[0].remove.isEnabled(), "the last one stays"

    running.composition.session.change_settings({"max_batch_size": 2})
    qtbot.waitUntil(lambda: settings_in_force(running).max_batch_size == 2)
    running.composition.compare.refresh()
    qtbot.mouseClick(setup.add, Qt.MouseButton.LeftButton)
    assert [each.max_batch_size for each in setup.points] == [16, 2]
    assert not setup.add.isEnabled(), "they stand there"


def test_that_each_gets_the_same_arrivals_and_is_shown_from_its_first_request_on(
    qtbot: QtBot, running: Batchscope
) -> None:
    view = side_by_side(running)
    results, before = view.side_results, settings_in_force(running)
    qtbot.mouseClick(view.side_setup.rows[1].remove, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(view.side_setup.controls.button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(results.runs) == 1)  # as it runs
    assert results.sweep is None
    with qtbot.waitSignal(running.composition.compare.busy_changed):
        pass

    sweep = results.sweep
    assert sweep is not None
    assert [point.settings.formation for point in sweep.points] == ["late", "continuous"]
    assert len({(run.seed, run.sent) for point in sweep.points for run in point.runs}) == 1
    assert [run.place for run in results.runs] == [0, 1]
    assert sweep.verdict() == results.verdict.text()
    texts = results.figures.texts()
    assert texts[0] == ["", "late", "continuous", ""]
    qtbot.waitUntil(lambda: settings_in_force(running) == before)
    qtbot.waitUntil(lambda: all(each.layout_ is not None for each in results.timelines[:2]))
    for timeline, run in zip(results.timelines, results.runs, strict=False):
        assert timeline.layout_ is not None
        assert abs(timeline.layout_.view.start_s - run.began_s) < 0.1
    received_s = running.composition.history.requests.columns["received"]
    for run in results.runs:
        assert np.any((received_s >= run.began_s - 0.1) & (received_s < run.began_s + 1.0)), "its requests are in view"
    first, second = results.runs
    assert first.began_s < first.ends_s < second.began_s, "what comes after it is the next one's"

    qtbot.mouseClick(results.apply, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: settings_in_force(running) == results.best)
    assert running.errors == []


def test_that_recordings_stand_side_by_side_each_from_its_first_request_on(
    qtbot: QtBot, batchscope: Batchscope
) -> None:
    results, compare = side_by_side(batchscope).side_results, batchscope.composition.compare
    compare.show_recordings([*RECORDINGS, RECORDINGS[0]])
    qtbot.waitUntil(lambda: len(results.runs) == 3)
    assert results.verdict.text() == RECORDED
    head, *rows = results.figures.texts()
    assert head == ["", *(path.stem for path in (*RECORDINGS, RECORDINGS[0]))]
    assert all(row[1] == row[3] for row in rows), "the same recording twice"
    recordings = [open_recording(path) for path in RECORDINGS]
    answered = [len(each.history.requests.samples) for each in recordings]
    assert [len(run.latencies_s) for each in recordings if (run := recorded_run(each.history))] == answered
    qtbot.waitUntil(lambda: all(each.layout_ is not None for each in results.timelines))
    for timeline, run in zip(results.timelines, results.runs, strict=True):
        assert timeline.layout_ is not None
        view = timeline.layout_.view
        column_s = (view.end_s - view.start_s) / view.columns
        assert abs(view.start_s - run.began_s) <= column_s
        assert timeline.history is run.history
    assert not results.apply.isEnabled()


def test_that_a_recording_that_cannot_be_read_is_named(qtbot: QtBot, batchscope: Batchscope, tmp_path: Path) -> None:
    broken = tmp_path / "broken.bsr"
    broken.write_bytes(b"no recording")
    side_by_side(batchscope)
    with qtbot.waitSignal(batchscope.composition.compare.failed) as failed:
        batchscope.composition.compare.show_recordings([RECORDINGS[0], broken])
    assert str(broken) in failed.args[0]


def test_that_two_settings_leave_nothing_of_three(running: Batchscope) -> None:
    results = side_by_side(running).side_results
    three, two = ([Settings(formation=each) for each in FORMATIONS[:count]] for count in (3, 2))
    for points in (three, two):
        plan = SweepPlan(
            points=tuple(points), load=RunLoad(pattern=Poisson(rate_per_s=1.0), prompts=("x",), max_tokens=1)
        )
        results.show_sweep(Sweep.begun(ServiceFacts(url=""), plan))
    assert results.figures.texts()[0] == ["", "late", "early", ""]


def test_that_the_timelines_and_curves_share_the_height_of_a_large_view(qtbot: QtBot, running: Batchscope) -> None:
    results = side_by_side(running).side_results
    plan = SweepPlan(
        points=tuple(Settings(formation=each) for each in FORMATIONS),
        load=RunLoad(pattern=Poisson(rate_per_s=1.0), prompts=("x",), max_tokens=1),
    )
    results.show_sweep(Sweep.begun(ServiceFacts(url=""), plan))
    running.window.resize(2560, 1440)
    plots = (*results.timelines, results.queue)
    qtbot.waitUntil(lambda: min(each.height() for each in plots) > HEIGHT_RUN_CURVES)
    last = results.report.mapTo(results, results.report.rect().bottomLeft()).y()
    assert results.height() - last <= 2 * PANEL_PADDING, "they leave nothing below the buttons"


def test_that_a_moment_pointed_at_in_one_is_shown_in_all(qtbot: QtBot, running: Batchscope) -> None:
    view = side_by_side(running)
    results = view.side_results
    qtbot.mouseClick(view.side_setup.rows[1].remove, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(view.side_setup.controls.button, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(running.composition.compare.busy_changed):
        pass
    first, second = results.timelines[:2]
    qtbot.waitUntil(lambda: first.layout_ is not None and second.layout_ is not None)
    assert first.layout_ is not None
    middle = QPointF((first.layout_.left + first.layout_.right) / 2, 30.0)
    first.canvas.pointed.emit(middle)
    here, there = first.canvas.pointer.at_s, second.canvas.pointer.at_s
    assert here is not None
    assert there is not None
    one, other = results.runs
    assert abs((here - one.began_s) - (there - other.began_s)) < 1e-6
