from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QAbstractButton, QApplication, QInputDialog
from pytestqt.qtbot import QtBot

import gui.control.exporter
import gui.recordings.viewer
from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.recordings.recorder import MOST_WAITING
from gui.series.latency import values_at
from gui.session.lifecycle import LifeCycle
from service.analysis.observed.scores import PredictionScores, ScoredFigure, ScoredPrediction
from service.analysis.recording.format import Entry, PredictionsScored, RecordingError, ServiceEnded, ServiceStarted
from service.analysis.recording.reader import Entries, open_recording
from service.analysis.recording.writer import RecordingBuffer, RecordingWriter
from service.messages.life import Ready
from service.messages.load import LoadFrame
from service.messages.settings import Settings
from tests.disk import room_for
from tests.recorded import entries_of, header, write_recording
from tests.synthetic_run import Step, SyntheticRun
from tests.window.conftest import MakeBatchscope, start_service
from tests.window.seen import named, texts


@pytest.fixture(scope="session")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty seconds; after twenty the cap was raised."""
    steps = (Step(0.0, 4.0, Settings(max_batch_size=4)), Step(20.0, settings=Settings(max_batch_size=16)))
    entries = entries_of(SyntheticRun(40.0, steps))
    return write_recording(tmp_path_factory.mktemp("recordings") / "run.bsr", entries, header(model="org/tiny"))


def open_in(qtbot: QtBot, batchscope: Batchscope, path: Path) -> None:
    with qtbot.waitSignal(batchscope.composition.recordings.changed):
        batchscope.composition.recordings.open(path)


@pytest.fixture
def viewing(qtbot: QtBot, batchscope: Batchscope, run_file: Path) -> Batchscope:
    """The window with a recording in it, and no service."""
    open_in(qtbot, batchscope, run_file)
    return batchscope


def requests_in(path: Path) -> int:
    """Counted without the window."""
    frames = [entry.event for entry in Entries(path) if isinstance(entry.event, LoadFrame)]
    return len({request.id for frame in frames for request in frame.requests})


def figure(batchscope: Batchscope, key: str) -> str:
    return batchscope.window.figures.figure(key).text


def look_at_ten_seconds(batchscope: Batchscope) -> None:
    batchscope.composition.look_at(10.0)
    batchscope.composition.recordings.follow()


def press(qtbot: QtBot, batchscope: Batchscope, key: Qt.Key) -> None:
    qtbot.keyClick(batchscope.composition.recordings.bar.overview, key)
    batchscope.composition.presenter.show_numbers()


# Looking at one ------------------------------------------------------------------------------------------------------


def test_that_a_file_on_the_command_line_is_shown_without_a_service(
    qtbot: QtBot, make_batchscope: MakeBatchscope, run_file: Path
) -> None:
    batchscope = make_batchscope(arguments=Arguments(theme="dark", file=run_file))
    composition = batchscope.composition
    qtbot.waitUntil(lambda: composition.recordings.is_viewing)

    assert composition.session.is_at_rest
    assert batchscope.window.windowTitle() == "run.bsr – Batchscope"
    facts = composition.recordings.bar.facts.text()
    assert facts.startswith("tiny · ")
    assert "0:40" in facts
    assert len(composition.history.requests.columns) == requests_in(run_file)
    assert batchscope.errors == []


@pytest.mark.parametrize(("size", "has_settings"), [((1024, 700), False), ((1440, 900), True), ((2560, 1440), True)])
def test_that_its_facts_are_whole(viewing: Batchscope, size: tuple[int, int], has_settings: bool) -> None:
    bar = viewing.composition.recordings.bar
    viewing.window.resize(*size)
    QApplication.processEvents()
    assert bar.facts.shown_text == bar.facts.text()
    assert bar.settings.isVisible() is has_settings
    assert not has_settings or bar.settings.shown_text == bar.settings.text()


def test_that_the_plots_stand_at_its_end(viewing: Batchscope) -> None:
    plots = viewing.composition.plots

    assert not plots.is_live
    assert not viewing.window.toolbar.freeze_button.isEnabled()
    assert plots.view_end_s() == pytest.approx(1040.0)
    assert plots.window_s == pytest.approx(40.0)


def test_that_every_request_is_in_the_table_with_its_text(qtbot: QtBot, viewing: Batchscope, run_file: Path) -> None:
    model = viewing.window.requests.model
    qtbot.waitUntil(lambda: len(model.rows()) == requests_in(run_file))

    assert any("three sons" in row.text for row in model.rows())


def test_that_the_table_shows_the_requests_of_the_place(qtbot: QtBot, viewing: Batchscope) -> None:
    """States and counts are those of the moment that the plots end at, forth and back."""
    plots, history, panel = viewing.composition.plots, viewing.composition.history, viewing.window.requests
    at_the_end = panel.model.rows
    qtbot.waitUntil(lambda: len(at_the_end()) == len(history.requests.columns))
    rows_at_the_end = at_the_end()
    look_at_ten_seconds(viewing)
    for key in (Qt.Key.Key_Home, Qt.Key.Key_PageDown, Qt.Key.Key_Left, Qt.Key.Key_PageUp):
        press(qtbot, viewing, key)
        at_s = plots.view_end_s()
        begun_s, ended_s = history.requests.columns["intended"], history.requests.columns["client_finished"]
        expected = {
            "all": int(np.count_nonzero(begun_s <= at_s)),
            "ended": int(np.count_nonzero(ended_s <= at_s)),
            "running": history.depth_at(at_s)[2],
        }
        assert expected["running"] > 0

        def in_table() -> dict[str, int]:
            rows = panel.model.rows()
            running = sum(row.state == "running" for row in rows)
            return {"all": len(rows), "ended": sum(not row.is_live for row in rows), "running": running}

        qtbot.waitUntil(lambda expected=expected: in_table() == expected)
        assert all(row.seconds(at_s) <= at_s - row.intended_s + 1e-9 for row in panel.model.rows())
        assert f"settings v{history.batches.regime_at(at_s).version}" in viewing.window.status.facts
    press(qtbot, viewing, Qt.Key.Key_End)
    qtbot.waitUntil(lambda: at_the_end() == rows_at_the_end)


def test_that_one_moves_along_it_from_end_to_beginning(qtbot: QtBot, viewing: Batchscope) -> None:
    plots = viewing.composition.plots
    look_at_ten_seconds(viewing)

    press(qtbot, viewing, Qt.Key.Key_Home)
    assert plots.view_end_s() == pytest.approx(1010.0)
    press(qtbot, viewing, Qt.Key.Key_PageDown)
    assert plots.view_end_s() == pytest.approx(1020.0)
    press(qtbot, viewing, Qt.Key.Key_Left)
    assert plots.view_end_s() == pytest.approx(1017.5)
    press(qtbot, viewing, Qt.Key.Key_End)
    assert plots.view_end_s() == pytest.approx(1040.0)


def test_that_legends_are_those_of_the_place_and_scales_follow(qtbot: QtBot, viewing: Batchscope) -> None:
    plots = viewing.composition.plots
    look_at_ten_seconds(viewing)
    for key in (Qt.Key.Key_End, Qt.Key.Key_Home):
        press(qtbot, viewing, key)
        waiting, formed, running = viewing.composition.history.depth_at(plots.view_end_s())
        depths = {"waiting": str(waiting), "formed": str(formed), "running": str(running)}
        qtbot.waitUntil(lambda depths=depths: plots.queue_depth.header.readout == depths)
        p95 = values_at(viewing.composition.history, plots.view_end_s())["p95"]
        qtbot.waitUntil(lambda p95=p95: plots.latency.header.readout["p95"] == f"{p95:.2f}")
        cap = "16" if key == Qt.Key.Key_End else "4"
        qtbot.waitUntil(lambda cap=cap: plots.batch_size.header.readout["cap"] == cap)


def test_that_a_scale_follows_what_is_scrolled_to(qtbot: QtBot, viewing: Batchscope) -> None:
    plots = viewing.composition.plots
    look_at_ten_seconds(viewing)
    press(qtbot, viewing, Qt.Key.Key_Home)
    [scale] = plots.batch_size.scales
    qtbot.waitUntil(lambda: scale.axis.ceiling < 10)
    press(qtbot, viewing, Qt.Key.Key_End)
    qtbot.waitUntil(lambda: scale.axis.ceiling >= 16)


def test_that_the_tab_says_what_is_shown(viewing: Batchscope) -> None:
    tabs = texts(viewing.window.views)
    assert "Recording" in tabs
    assert "Live" not in tabs
    viewing.composition.recordings.leave()
    assert "Live" in texts(viewing.window.views)


def test_that_it_is_played_at_the_chosen_speed_up_to_its_end(qtbot: QtBot, viewing: Batchscope) -> None:
    plots, recordings = viewing.composition.plots, viewing.composition.recordings
    look_at_ten_seconds(viewing)
    assert not recordings.is_playing
    named(recordings.bar, QAbstractButton, "16×").click()

    named(recordings.bar, QAbstractButton, "Play").click()

    qtbot.waitUntil(lambda: 1010.0 < plots.view_end_s() < 1040.0)
    qtbot.keyClick(recordings.bar.overview, Qt.Key.Key_Space)
    stands_s = plots.view_end_s()
    recordings.follow()
    assert plots.view_end_s() == stands_s, "paused"
    named(recordings.bar, QAbstractButton, "Play").click()
    qtbot.waitUntil(lambda: not recordings.is_playing)
    assert plots.view_end_s() == pytest.approx(1040.0)


def test_that_a_note_on_a_recording_stays_in_its_file(
    qtbot: QtBot, batchscope: Batchscope, run_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "noted.bsr"
    path.write_bytes(run_file.read_bytes())
    open_in(qtbot, batchscope, path)
    look_at_ten_seconds(batchscope)
    composition = batchscope.composition
    at_s = composition.plots.view_end_s() - 2.0
    composition.recordings.note("here it began", at_s)

    assert "here it began" in [mark.text for mark in composition.plots.marks().outer]
    again = open_recording(path)
    assert again.damage is None
    assert [(note.text, note.at_s) for note in again.history.notes] == [("here it began", at_s)]
    assert again.duration_s == open_recording(run_file).duration_s
    assert requests_in(path) == requests_in(run_file)


def test_that_a_recording_that_cannot_be_written_keeps_no_note_and_says_so(
    qtbot: QtBot, viewing: Batchscope, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise RecordingError("The note could not be written: Permission denied.")

    monkeypatch.setattr(gui.recordings.viewer, "add_to", refused)
    with qtbot.waitSignal(viewing.composition.recordings.failed) as failed:
        viewing.composition.recordings.note("lost", viewing.composition.plots.view_end_s())
    assert "Permission denied" in failed.args[0]
    assert list(viewing.composition.history.notes) == []


def test_that_a_click_on_the_overview_shows_what_was_there(qtbot: QtBot, viewing: Batchscope) -> None:
    look_at_ten_seconds(viewing)
    overview = viewing.composition.recordings.bar.overview

    qtbot.mouseClick(overview, Qt.MouseButton.LeftButton, pos=QPoint(overview.width() // 2, 5))

    assert viewing.composition.plots.view_end_s() == pytest.approx(1025.0, abs=0.5)


def test_that_figures_findings_and_settings_are_those_of_the_place(qtbot: QtBot, viewing: Batchscope) -> None:
    look_at_ten_seconds(viewing)
    press(qtbot, viewing, Qt.Key.Key_End)
    at_end = figure(viewing, "mean_batch")
    settings_at_end = viewing.composition.recordings.bar.settings.text()

    press(qtbot, viewing, Qt.Key.Key_Home)

    assert figure(viewing, "mean_batch") != at_end
    assert "max_batch_size 16" in settings_at_end
    assert "max_batch_size 4" in viewing.composition.recordings.bar.settings.text()


def test_that_the_score_of_predictions_is_that_of_the_place(
    qtbot: QtBot, batchscope: Batchscope, tmp_path: Path
) -> None:
    scored = ScoredPrediction(figures={"p95_s": ScoredFigure(0.9, 0.8, 1.1, 1.0)})
    entries = entries_of(SyntheticRun(40.0))
    known = PredictionScores(at_s=entries[-1].at_s - 5.0, predictions=(scored,))
    last = Entry(at_s=entries[-1].at_s, event=PredictionsScored(scores=known))
    open_in(qtbot, batchscope, write_recording(tmp_path / "a.bsr", [*entries, last]))
    views = batchscope.window.views
    assert views.remark == "Predictions of p95, the last: error 10 %, inside its band"
    look_at_ten_seconds(batchscope)
    press(qtbot, batchscope, Qt.Key.Key_Home)
    assert not views.remark
    press(qtbot, batchscope, Qt.Key.Key_End)
    assert views.remark
    batchscope.composition.recordings.bar.close_button.click()
    assert not views.remark, "it is not of this window's predictions"


def test_that_the_controls_say_what_held_there_and_cannot_be_changed(qtbot: QtBot, viewing: Batchscope) -> None:
    batching = viewing.window.batching
    own = batching.settings
    assert any(re.match(r"v2.* drained", each) for each in texts(batching))

    look_at_ten_seconds(viewing)
    press(qtbot, viewing, Qt.Key.Key_Home)

    assert batching.control("max_batch_size").number == 4
    assert "v1" in texts(batching)
    assert not batching.isEnabled()
    assert batching.settings == own, "what the user wants is kept"

    viewing.composition.recordings.bar.close_button.click()

    assert not any(re.match(r"v\d", each) for each in texts(batching)), "no service has reported a version"
    assert batching.control("max_batch_size").number == own.max_batch_size
    assert batching.isEnabled()


def test_that_of_another_server_s_run_no_settings_of_ours_are_shown(
    qtbot: QtBot, viewing: Batchscope, tmp_path: Path
) -> None:
    batching, figures = viewing.window.batching, viewing.window.figures
    ready = Ready(
        url="http://127.0.0.1:8000",
        instance="",
        model="tiny",
        device="elsewhere",
        dtype="",
        server="vLLM 0.32.0",
        fixed="vLLM 0.32.0 forms its batches itself.",
        context_length=128,
        replicas=1,
        started_in_s=1.0,
    )
    begun = Entry(at_s=1000.0, event=ServiceStarted(ready=ready))
    entries = entries_of(SyntheticRun(20.0, (Step(0.0, 4.0, Settings(max_batch_size=1)),)))
    open_in(qtbot, viewing, write_recording(tmp_path / "vllm.bsr", [begun, *entries]))

    assert ready.fixed in texts(batching)
    assert "max_batch_size" not in texts(batching)
    assert not viewing.composition.recordings.bar.settings.text()
    assert "does not report how long a batch ran" in figures.figure("speedup_over_batch_1").toolTip()
    assert figures.figure("speedup_over_batch_1").text == "–"

    viewing.composition.recordings.bar.close_button.click()

    assert ready.fixed not in texts(batching)
    assert "max_batch_size" in texts(batching)


def test_that_it_is_exported_as_any_run(qtbot: QtBot, viewing: Batchscope, run_file: Path, tmp_path: Path) -> None:
    exporter = viewing.composition.exporter
    for kind in ("requests", "batches", "figures"):
        with qtbot.waitSignal(exporter.written):
            exporter.write(kind, tmp_path / f"{kind}.csv")

    assert len((tmp_path / "requests.csv").read_text().splitlines()) == requests_in(run_file) + 1
    assert len((tmp_path / "figures.csv").read_text().splitlines()) == 41


@pytest.fixture(scope="session")
def busy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So many requests that to look them all up takes many turns of the event loop."""
    run = SyntheticRun(30.0, (Step(0.0, 80.0, Settings(max_batch_size=64)),))
    return write_recording(tmp_path_factory.mktemp("recordings") / "busy.bsr", entries_of(run), header())


def test_that_an_export_is_completed_before_the_window_closes(
    qtbot: QtBot, batchscope: Batchscope, busy_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "requests.csv"
    open_in(qtbot, batchscope, busy_file)
    batchscope.composition.exporter.write("requests", path)

    with qtbot.waitSignal(batchscope.closed):
        batchscope.window.close()
        assert batchscope.window.isVisible()
        assert batchscope.window.status.activity.text().startswith("Closes when requests.csv is written")

    assert len(path.read_text().splitlines()) == requests_in(busy_file) + 1


def test_that_closing_a_second_time_gives_an_export_up_and_says_so(
    qtbot: QtBot, batchscope: Batchscope, busy_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_in(qtbot, batchscope, busy_file)
    batchscope.composition.exporter.write("requests", tmp_path / "requests.csv")
    batchscope.window.close()

    with qtbot.waitSignal(batchscope.closed):
        batchscope.window.close()

    assert list(tmp_path.iterdir()) == []
    assert "requests.csv was not written" in batchscope.errors[0]
    assert batchscope.errors[0] in capsys.readouterr().err


def test_that_no_export_keeps_the_window_open_for_ever(
    qtbot: QtBot, make_batchscope: MakeBatchscope, busy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gui.control.exporter, "LONGEST_END_MS", 0)
    batchscope = make_batchscope()
    open_in(qtbot, batchscope, busy_file)
    batchscope.composition.exporter.write("requests", tmp_path / "requests.csv")

    with qtbot.waitSignal(batchscope.closed):
        batchscope.window.close()

    assert list(tmp_path.iterdir()) == []
    assert "requests.csv was not written" in batchscope.errors[0]


def test_that_closing_it_shows_what_was_there_before(qtbot: QtBot, viewing: Batchscope) -> None:
    viewing.composition.recordings.bar.close_button.click()

    assert not viewing.composition.recordings.is_viewing
    assert viewing.window.windowTitle() == "Batchscope"
    assert viewing.composition.history.is_empty
    assert viewing.composition.recordings.bar.isHidden()
    assert viewing.window.requests.model.rows() == ()
    assert viewing.window.notice.empty.isVisible()


def test_that_start_leaves_it_and_begins_anew(qtbot: QtBot, viewing: Batchscope) -> None:
    start_service(qtbot, viewing)

    assert not viewing.composition.recordings.is_viewing
    assert viewing.composition.plots.is_live
    assert len(viewing.composition.history.requests.columns) == 0


def test_that_what_a_service_showed_is_there_again_after_a_recording(
    qtbot: QtBot, running: Batchscope, run_file: Path
) -> None:
    history, session = running.composition.history, running.composition.session
    answer_one(qtbot, running)
    running.composition.set_frozen(True)
    with qtbot.waitSignal(session.came_to_rest):
        running.window.toolbar.step_wanted.emit("stop")
    qtbot.waitUntil(lambda: session.state is LifeCycle.NOT_STARTED)

    open_in(qtbot, running, run_file)
    assert len(history.requests.columns) > 1
    assert not running.window.toolbar.freeze_button.isChecked()
    running.composition.recordings.leave()

    assert len(history.requests.columns) == 1
    qtbot.waitUntil(lambda: [row.state for row in running.window.requests.model.rows()] == ["done"])


def test_that_while_a_service_runs_a_recording_gets_a_window_of_its_own(
    running: Batchscope, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(gui.recordings.viewer, "start_detached", started.append)
    running.composition.recordings.open(run_file)

    assert [command[-3:] for command in started] == [("-m", "gui", str(run_file))]
    assert not running.composition.recordings.is_viewing


def test_that_the_recording_among_dropped_files_is_opened(
    qtbot: QtBot, batchscope: Batchscope, run_file: Path, tmp_path: Path
) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in (tmp_path / "notes.txt", run_file)])
    entering, dropping = drag_and_drop(data)

    QApplication.sendEvent(batchscope.window, entering)
    with qtbot.waitSignal(batchscope.composition.recordings.changed):
        QApplication.sendEvent(batchscope.window, dropping)

    assert entering.isAccepted()
    assert batchscope.errors == []


def test_that_files_without_a_recording_cannot_be_dropped(batchscope: Batchscope, tmp_path: Path) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "notes.txt"))])

    for event in drag_and_drop(data):
        QApplication.sendEvent(batchscope.window, event)
        assert not event.isAccepted()


def drag_and_drop(data: QMimeData) -> tuple[QDragEnterEvent, QDropEvent]:
    copy, left, none = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    return QDragEnterEvent(QPoint(9, 9), copy, data, left, none), QDropEvent(QPointF(9, 9), copy, data, left, none)


# What can be wrong with one ------------------------------------------------------------------------------------------


def test_that_a_file_which_takes_longer_to_read_than_a_recording_can_is_refused_in_a_sentence(
    qtbot: QtBot, batchscope: Batchscope, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gui.recordings.viewer, "READING_S", 0.0)
    with qtbot.waitSignal(batchscope.composition.recordings.failed):
        batchscope.composition.recordings.open(run_file)
    assert batchscope.errors == [f"{run_file} takes longer to read than a recording of its size can."]
    assert not batchscope.composition.recordings.is_viewing


def test_that_a_foreign_file_is_refused_in_a_sentence(qtbot: QtBot, batchscope: Batchscope, tmp_path: Path) -> None:
    path = tmp_path / "foreign.bsr"
    path.write_bytes(b"PK\x03\x04")

    with qtbot.waitSignal(batchscope.composition.recordings.failed):
        batchscope.composition.recordings.open(path)

    assert batchscope.errors == [f"{path} is not a recording of Batchscope, or its beginning is damaged."]
    assert batchscope.window.status.activity.text() == batchscope.errors[0]
    assert batchscope.composition.recordings.bar.isVisible()
    assert batchscope.composition.recordings.bar.damage.text() == batchscope.errors[0]
    assert not batchscope.composition.recordings.is_viewing
    assert batchscope.window.notice.empty.isVisible()
    batchscope.composition.recordings.bar.close_button.click()
    assert batchscope.composition.recordings.bar.isHidden()


def test_that_a_file_that_cannot_be_opened_leaves_the_recording_that_is_shown(
    qtbot: QtBot, viewing: Batchscope, tmp_path: Path
) -> None:
    with qtbot.waitSignal(viewing.composition.recordings.failed):
        viewing.composition.recordings.open(tmp_path / "missing.bsr")

    assert viewing.composition.recordings.is_viewing
    assert viewing.composition.recordings.bar.overview.isVisible()
    assert "No such file" in viewing.composition.recordings.bar.damage.text()


@pytest.mark.promise("T15")
def test_that_of_a_truncated_file_what_is_readable_is_shown(
    qtbot: QtBot, batchscope: Batchscope, run_file: Path, tmp_path: Path
) -> None:
    content = run_file.read_bytes()
    path = tmp_path / "cut.bsr"
    path.write_bytes(content[: len(content) // 2])

    open_in(qtbot, batchscope, path)

    assert "breaks off after" in batchscope.composition.recordings.bar.damage.text()
    assert 20 < len(batchscope.composition.history.requests.columns) < requests_in(run_file)


def test_that_a_second_recording_takes_the_place_of_the_first(
    qtbot: QtBot, viewing: Batchscope, tmp_path: Path
) -> None:
    other = write_recording(tmp_path / "other.bsr", entries_of(SyntheticRun(5.0)))

    open_in(qtbot, viewing, other)

    assert viewing.window.windowTitle() == "other.bsr – Batchscope"
    assert len(viewing.composition.history.requests.columns) == requests_in(other)
    viewing.composition.recordings.leave()
    assert viewing.composition.history.is_empty


# Making one ----------------------------------------------------------------------------------------------------------


def answer_one(qtbot: QtBot, batchscope: Batchscope) -> None:
    batchscope.window.prompts.set_prompts(("Once upon",))
    batchscope.window.prompts.set_copies(1)
    batchscope.window.prompts.fire()
    rows = batchscope.window.requests.model.rows  # the service tells the state, the load process the text
    qtbot.waitUntil(lambda: [(row.state, len(row.text.split())) for row in rows()] == [("done", 24)])


def test_that_what_the_window_hears_is_recorded_with_texts(qtbot: QtBot, running: Batchscope, tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    recorder = running.composition.recorder
    recorder.record(path)
    assert running.window.status.recording == "Recording 0:00"
    answer_one(qtbot, running)
    with qtbot.waitSignal(recorder.written):
        recorder.record_or_stop()

    recording = open_recording(path)
    row, shown = recording.history.requests.rows()[0], running.window.requests.model.rows()[0]
    assert recording.damage is None
    assert (row.prompt, row.text, row.tokens) == (shown.prompt, shown.text, shown.tokens)
    assert row.received_s is not None
    assert recording.header.url == running.composition.session.ready.url  # type: ignore[union-attr]
    assert running.window.status.recording == ""


def test_that_a_note_of_a_running_service_stands_in_the_plots_and_in_its_recording(
    qtbot: QtBot, running: Batchscope, tmp_path: Path
) -> None:
    path, composition = tmp_path / "a.bsr", running.composition
    composition.recorder.record(path)
    answer_one(qtbot, running)
    running.window.toolbar.note_action.trigger()
    (asking,) = running.window.findChildren(QInputDialog)
    asking.setTextValue("  the fan starts  ")
    asking.accept()
    assert "the fan starts" in [mark.text for mark in composition.plots.marks().outer]
    with qtbot.waitSignal(composition.recorder.written):
        composition.recorder.record_or_stop()
    assert [note.text for note in open_recording(path).history.notes] == ["the fan starts"]


def test_that_a_recording_may_begin_before_the_service(qtbot: QtBot, batchscope: Batchscope, tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    batchscope.composition.recorder.record(path)
    start_service(qtbot, batchscope)
    with qtbot.waitSignal(batchscope.composition.recorder.written):
        batchscope.composition.recorder.record_or_stop()

    events = [entry.event for entry in Entries(path)]
    assert any(isinstance(event, ServiceStarted) for event in events)
    assert open_recording(path).model == "scripted"


def test_that_what_was_seen_can_be_kept_afterwards(qtbot: QtBot, running: Batchscope, tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    answer_one(qtbot, running)
    with qtbot.waitSignal(running.composition.recorder.written):
        running.composition.recorder.save(path)

    recording = open_recording(path)
    row, shown = recording.history.requests.rows()[0], running.window.requests.model.rows()[0]
    assert recording.damage is None
    assert (row.prompt, row.text, row.state) == (shown.prompt, shown.text, "done")
    now_s = recording.history.now_s()
    assert recording.history.wall_time(now_s) == pytest.approx(running.composition.history.wall_time(now_s), abs=0.01)


@pytest.mark.promise("T18")
def test_that_a_disk_without_room_for_them_leaves_the_older_file(
    qtbot: QtBot, running: Batchscope, tmp_path: Path
) -> None:
    path, recorder = tmp_path / "a.bsr", running.composition.recorder
    path.write_bytes(b"precious")

    with room_for(50), qtbot.waitSignal(recorder.failed):
        recorder.save(path)

    assert path.read_bytes() == b"precious"
    assert os.listdir(tmp_path) == ["a.bsr"]
    assert len(running.errors) == 1
    assert "Nothing was overwritten. Choose another place." in running.errors[0]


@pytest.mark.promise("T18")
def test_that_a_recording_goes_on_where_the_last_minutes_cannot_be_saved(
    qtbot: QtBot, running: Batchscope, tmp_path: Path
) -> None:
    recorder = running.composition.recorder
    recorder.record(tmp_path / "a.bsr")
    with qtbot.waitSignal(recorder.failed):
        recorder.save(tmp_path / "none" / "b.bsr")

    answer_one(qtbot, running)
    with qtbot.waitSignal(recorder.written):
        recorder.record_or_stop()

    recording = open_recording(tmp_path / "a.bsr")
    assert recording.damage is None
    assert [row.state for row in recording.history.requests.rows()] == ["done"]


@pytest.mark.promise("T21")
def test_that_a_jump_of_the_clock_is_recorded_and_marked_again(
    qtbot: QtBot, make_batchscope: MakeBatchscope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, ahead_s = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: right() + ahead_s[0])
    batchscope = make_batchscope()
    start_service(qtbot, batchscope)
    recorder, history, session = (getattr(batchscope.composition, name) for name in ("recorder", "history", "session"))
    recorder.record(tmp_path / "a.bsr")
    with qtbot.waitSignal(session.telemetry_came):
        ahead_s[0] = 60.0
    qtbot.waitUntil(lambda: history.jumps.latest is not None)
    for write in (recorder.record_or_stop, lambda: recorder.save(tmp_path / "b.bsr")):
        with qtbot.waitSignal(recorder.written):
            write()

    for name in ("a.bsr", "b.bsr"):
        recording = open_recording(tmp_path / name)
        assert recording.damage is None
        assert list(recording.history.jumps) == [history.jumps.latest]
    with qtbot.waitSignal(session.came_to_rest):
        batchscope.window.toolbar.step_wanted.emit("stop")
    open_in(qtbot, batchscope, tmp_path / "a.bsr")
    batchscope.composition.presenter.show_contentions()
    assert [each.text for each in batchscope.composition.plots.marks().stretches] == ["clock +60 s"]


def test_that_the_last_minutes_do_not_overwrite_what_is_being_recorded(
    qtbot: QtBot, running: Batchscope, tmp_path: Path
) -> None:
    path, recorder = tmp_path / "a.bsr", running.composition.recorder
    recorder.record(path)
    with qtbot.waitSignal(recorder.failed) as refused:
        recorder.save(path)
    with qtbot.waitSignal(recorder.written):
        recorder.record_or_stop()

    assert refused.args == [f"{path} is what is being recorded. Choose another name."]
    assert open_recording(path).damage is None


def test_that_before_a_service_was_heard_there_is_nothing_to_keep(batchscope: Batchscope) -> None:
    batchscope.composition.recorder.ask_where_to_save()

    assert batchscope.window.status.activity.text() == "There is nothing to save yet: no service has run"


def test_that_a_recording_that_goes_on_is_ended_with_the_window(
    qtbot: QtBot, make_batchscope: MakeBatchscope, tmp_path: Path
) -> None:
    batchscope = make_batchscope()
    batchscope.composition.recorder.record(tmp_path / "a.bsr")

    with qtbot.waitSignal(batchscope.closed):
        batchscope.close()

    assert open_recording(tmp_path / "a.bsr").damage is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
@pytest.mark.promise("T18")
def test_that_a_full_disk_harms_nothing_else(qtbot: QtBot, running: Batchscope) -> None:
    with qtbot.waitSignal(running.composition.recorder.failed):
        running.composition.recorder.record(Path("/dev/full"))
    answer_one(qtbot, running)

    assert len(running.errors) == 1
    assert "the disk is full" in running.errors[0]
    qtbot.waitUntil(lambda: running.window.status.recording == "")


@pytest.fixture
def standing_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A disk that stands still; it goes on once this is set."""
    goes_on = threading.Event()
    append = RecordingWriter.append

    def stand_still(writer: RecordingWriter, member: bytes | None) -> None:
        goes_on.wait()
        append(writer, member)

    monkeypatch.setattr(RecordingWriter, "append", stand_still)
    return goes_on


def test_that_a_disk_that_stands_still_costs_a_gap_and_no_frame(
    qtbot: QtBot, batchscope: Batchscope, tmp_path: Path, standing_disk: threading.Event
) -> None:
    recorder = batchscope.composition.recorder
    recorder.record(tmp_path / "a.bsr")
    for _ in range(MOST_WAITING + 2):
        recorder.file.take(ServiceEnded())
    standing_disk.set()

    assert batchscope.errors == ["The recording has a gap: its disk does not take what is to be written."]
    assert recorder.file.is_recording


def test_that_its_end_does_not_wait_for_a_disk_that_stands_still(
    qtbot: QtBot, batchscope: Batchscope, tmp_path: Path, standing_disk: threading.Event
) -> None:
    file = batchscope.composition.recorder.file
    batchscope.composition.recorder.record(tmp_path / "a.bsr")
    for _ in range(MOST_WAITING + 2):
        file.take(ServiceEnded())
    file.stop()
    assert not file.is_recording
    with qtbot.waitSignal(file.ended):
        standing_disk.set()
    assert open_recording(tmp_path / "a.bsr").damage is None


def test_that_after_an_error_that_nobody_foresaw_another_recording_is_whole(
    qtbot: QtBot, batchscope: Batchscope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, seen = batchscope.composition.recorder, list[object]()
    monkeypatch.setattr(threading, "excepthook", lambda arguments: seen.append(arguments.exc_value))
    with monkeypatch.context() as patch, qtbot.waitSignal(recorder.file.broke_off):
        patch.setattr(RecordingBuffer, "flush", lambda _buffer: 1 // 0)
        recorder.record(tmp_path / "a.bsr")
    qtbot.waitUntil(lambda: len(seen) == 1)
    recorder.record(tmp_path / "b.bsr")
    with qtbot.waitSignal(recorder.file.ended):
        recorder.file.stop()
    assert open_recording(tmp_path / "b.bsr").damage is None


def test_that_a_place_that_cannot_be_written_is_named(qtbot: QtBot, batchscope: Batchscope, tmp_path: Path) -> None:
    with qtbot.waitSignal(batchscope.composition.recorder.failed):
        batchscope.composition.recorder.record(tmp_path / "none" / "a.bsr")

    assert "folder does not exist" in batchscope.errors[0]
    assert os.listdir(tmp_path) == []
