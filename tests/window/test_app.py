"""The real window, composed as users get it, on a scripted service in a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QImage, QKeyEvent
from PySide6.QtWidgets import QAbstractButton, QApplication, QLineEdit, QPushButton
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control.preferences import Preferences, PreferencesFile
from gui.panels.requests_model import TableRow
from gui.session.lifecycle import LifeCycle
from gui.session.processes.service import GRACE_MS
from gui.widgets.slider import Slider
from service.messages.load import ClosedLoop, Poisson
from service.messages.settings import Settings
from tests.window.children import SCRIPT, scripted
from tests.window.conftest import MakeBatchscope, start_service
from tests.window.scripted_service import HANG_UP, LOSE_MAIN
from tests.window.seen import named, texts


def rows(batchscope: Batchscope) -> tuple[TableRow, ...]:
    return batchscope.window.requests.model.rows()


def outcomes(batchscope: Batchscope) -> list[str]:
    return [row.state for row in rows(batchscope)]


def fire(batchscope: Batchscope, *prompts: str, copies: int = 1) -> None:
    batchscope.window.prompts.set_prompts(prompts)
    batchscope.window.prompts.set_copies(copies)
    batchscope.window.prompts.fire()


def slider(batchscope: Batchscope, name: str) -> Slider:
    found = batchscope.window.batching.control(name).slider
    assert found is not None
    return found


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]


def kill_service(batchscope: Batchscope, number: signal.Signals = signal.SIGKILL) -> None:
    assert not batchscope.composition.session.is_at_rest
    next(child for child in children() if SCRIPT.name in " ".join(child.cmdline())).send_signal(number)


def has_begun(batchscope: Batchscope) -> Callable[[], bool]:
    return lambda: any(row.state == "running" and row.text for row in rows(batchscope))


def loaded(qtbot: QtBot, make_batchscope: MakeBatchscope) -> Batchscope:
    """The window of a service that has 20 requests and has begun with the first of them."""
    batchscope = make_batchscope(scripted("--step-s=0.05"))
    start_service(qtbot, batchscope)
    fire(batchscope, "one", copies=20)
    qtbot.waitUntil(has_begun(batchscope))
    return batchscope


# The life cycle ------------------------------------------------------------------------------------------------------


def test_that_the_window_is_there_before_anything_is_started(batchscope: Batchscope) -> None:
    assert batchscope.window_after_s is not None
    assert batchscope.composition.plots.isVisible()
    assert batchscope.window.notice.isVisible()
    assert children() == []


def test_that_start_leads_to_a_running_service(qtbot: QtBot, batchscope: Batchscope) -> None:
    qtbot.mouseClick(batchscope.window.notice.empty.start, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.RUNNING)

    assert batchscope.window.notice.invites
    qtbot.waitUntil(lambda: batchscope.composition.history.in_force is not None)
    assert batchscope.errors == []


def test_that_a_start_shows_its_stages_and_can_be_cancelled(qtbot: QtBot, make_batchscope: MakeBatchscope) -> None:
    batchscope = make_batchscope(scripted("--start-s=60"))
    batchscope.window.toolbar.step_wanted.emit("start")
    qtbot.waitUntil(lambda: batchscope.window.status.activity.text().startswith("Start Ray"))
    assert batchscope.window.notice.isVisible()

    batchscope.window.toolbar.step_wanted.emit("cancel")
    qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.NOT_STARTED)

    assert children() == []
    assert batchscope.errors == []


def test_that_stop_ends_service_and_load_and_keeps_the_data(qtbot: QtBot, running: Batchscope) -> None:
    fire(running, "one")
    qtbot.waitUntil(lambda: outcomes(running) == ["done"] and rows(running)[0].finished_s is not None)

    running.window.toolbar.step_wanted.emit("stop")
    qtbot.waitUntil(lambda: running.composition.session.state is LifeCycle.NOT_STARTED)

    assert children() == []
    assert outcomes(running) == ["done"]
    assert running.errors == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_that_a_death_under_load_is_told_with_its_cost_and_restart_works(
    qtbot: QtBot, make_batchscope: MakeBatchscope, number: signal.Signals
) -> None:
    batchscope = loaded(qtbot, make_batchscope)

    kill_service(batchscope, number)
    qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.FAILED)

    [sentence] = batchscope.errors
    assert sentence.endswith(" 20 requests were under way.")
    if number is not signal.SIGTERM:
        assert f"killed by signal {number.value} ({number.name})" in sentence
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["failed"] * 20)
    assert all(row.error for row in rows(batchscope))
    qtbot.waitUntil(lambda: batchscope.window.status.activity.text().endswith(" 20 of 20 requests under way failed."))

    batchscope.window.toolbar.step_wanted.emit("restart")
    qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.RUNNING)
    fire(batchscope, "two")
    qtbot.waitUntil(lambda: outcomes(batchscope)[-1] == "done")
    assert len(batchscope.errors) == 1


def test_that_a_death_that_the_load_generator_sees_first_is_told_with_its_cost(
    qtbot: QtBot, make_batchscope: MakeBatchscope
) -> None:
    batchscope = loaded(qtbot, make_batchscope)

    kill_service(batchscope, HANG_UP)
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["failed"] * 20)
    assert batchscope.errors == []
    kill_service(batchscope)
    qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.FAILED)

    assert batchscope.window.status.activity.text().endswith(" 20 of 20 requests under way failed.")


def test_that_requests_that_are_answered_after_a_death_are_no_cost_of_it(
    qtbot: QtBot, make_batchscope: MakeBatchscope
) -> None:
    batchscope = loaded(qtbot, make_batchscope)

    kill_service(batchscope, LOSE_MAIN)
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["done"] * 20)

    assert batchscope.errors == ["The main process ended. 20 requests were under way."]
    cost = "The main process ended. 0 of 20 requests under way failed."
    qtbot.waitUntil(lambda: batchscope.window.status.activity.text() == cost)
    assert cost in batchscope.window.log.text()


def test_that_a_service_that_dies_before_it_is_stopped_has_ended_all_the_same(
    qtbot: QtBot, make_batchscope: MakeBatchscope
) -> None:
    batchscope = loaded(qtbot, make_batchscope)

    kill_service(batchscope)
    batchscope.window.toolbar.step_wanted.emit("stop")
    qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.NOT_STARTED)

    assert batchscope.composition.history.ended_s is not None
    assert batchscope.errors == []


def test_that_a_service_that_cannot_start_says_why(qtbot: QtBot, make_batchscope: MakeBatchscope) -> None:
    batchscope = make_batchscope(scripted("--fail=The model file is truncated. Fetch it again."))

    batchscope.window.toolbar.step_wanted.emit("start")
    qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.FAILED)

    assert batchscope.errors == ["The model file is truncated. Fetch it again."]
    assert batchscope.window.status.activity.text() == "The model file is truncated. Fetch it again."


# Asking --------------------------------------------------------------------------------------------------------------


def test_that_fired_prompts_stream_into_the_table(qtbot: QtBot, make_batchscope: MakeBatchscope) -> None:
    batchscope = make_batchscope(scripted("--step-s=0.03"))
    start_service(qtbot, batchscope)

    fire(batchscope, "one", "two", copies=3)
    qtbot.waitUntil(has_begun(batchscope))
    early = next(row for row in rows(batchscope) if row.state == "running" and row.text)
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["done"] * 6)

    assert 0 < early.tokens < 24
    whole = "".join(f" word{n}" for n in range(1, 25))
    qtbot.waitUntil(lambda: {row.text for row in rows(batchscope)} == {whole})
    assert sorted(row.prompt for row in rows(batchscope)) == ["one"] * 3 + ["two"] * 3
    assert all(row.finished_s is not None for row in rows(batchscope))


def test_that_cancelling_all_frees_the_service(qtbot: QtBot, make_batchscope: MakeBatchscope) -> None:
    batchscope = make_batchscope(scripted("--step-s=0.2"))
    start_service(qtbot, batchscope)
    fire(batchscope, "one", copies=30)
    qtbot.waitUntil(has_begun(batchscope))

    cancel_all = named(batchscope.window.requests, QPushButton, "Cancel all")
    qtbot.waitUntil(cancel_all.isEnabled)
    cancel_all.click()
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["cancelled"] * 30)

    fire(batchscope, "two")
    qtbot.waitUntil(lambda: outcomes(batchscope)[-1] == "running")
    assert batchscope.errors == []


def test_that_one_request_can_be_cancelled(qtbot: QtBot, make_batchscope: MakeBatchscope) -> None:
    batchscope = make_batchscope(scripted("--step-s=0.03"))
    start_service(qtbot, batchscope)
    fire(batchscope, "one", "two")
    qtbot.waitUntil(has_begun(batchscope))

    batchscope.window.requests.cancel_wanted.emit((rows(batchscope)[0].id,))
    qtbot.waitUntil(lambda: sorted(outcomes(batchscope)) == ["cancelled", "done"])


def test_that_a_load_runs_until_it_is_stopped(qtbot: QtBot, running: Batchscope) -> None:
    load = running.window.load
    load.set_load(ClosedLoop(users=4), 5)

    load.toggle()
    qtbot.waitUntil(lambda: load.is_running and outcomes(running).count("done") > 8)
    load.toggle()
    qtbot.waitUntil(lambda: not load.is_running)

    qtbot.waitUntil(lambda: set(outcomes(running)) == {"done"})
    assert {row.max_tokens for row in rows(running)} == {5}
    assert running.errors == []


def test_that_a_load_follows_its_slider_while_it_runs(qtbot: QtBot, running: Batchscope) -> None:
    load = running.window.load
    load.set_load(Poisson(rate_per_s=1.0), 5)
    load.toggle()
    qtbot.waitUntil(lambda: load.is_running)

    rate = load.knob("rate_per_s").slider
    assert rate is not None
    qtbot.keyClick(rate, Qt.Key.Key_PageUp)
    frame = running.composition.history
    qtbot.waitUntil(lambda: frame.load is not None and frame.load.pattern == Poisson(rate_per_s=2.0))

    load.toggle()
    qtbot.waitUntil(lambda: not load.is_running)


def test_that_the_load_suits_the_capacity_that_the_start_measured(
    qtbot: QtBot, make_batchscope: MakeBatchscope, tmp_path: Path
) -> None:
    path = tmp_path / "preferences.json"
    first = make_batchscope(scripted("--trial-s=0.01"), preferences=PreferencesFile(path))
    assert first.window.load.pattern == Poisson(rate_per_s=4.0)
    start_service(qtbot, first)
    assert first.window.load.pattern == Poisson(rate_per_s=42.0), "60 % of 16 requests in 23 steps of 10 ms"
    rate = first.window.load.knob("rate_per_s")
    assert "timed as the service started" in rate.toolTip()
    with qtbot.waitSignal(first.closed):
        first.close()

    second = make_batchscope(scripted("--trial-s=0.1"), preferences=PreferencesFile(path))
    assert second.window.load.pattern == Poisson(rate_per_s=42.0)
    start_service(qtbot, second)
    assert second.window.load.pattern == Poisson(rate_per_s=4.2)


def test_that_a_load_which_has_run_stays_and_its_slider_follows_what_was_measured(
    qtbot: QtBot, make_batchscope: MakeBatchscope, tmp_path: Path
) -> None:
    path = tmp_path / "preferences.json"
    PreferencesFile(path).save(Preferences(settings=Settings(max_batch_size=1)))  # so every batch is full
    batchscope = make_batchscope(scripted("--trial-s=0.005"), preferences=PreferencesFile(path))
    start_service(qtbot, batchscope)
    load, suited = batchscope.window.load, Poisson(rate_per_s=5.2)
    assert load.pattern == suited
    load.toggle()
    throughput = batchscope.composition.plots.throughput
    qtbot.waitUntil(lambda: load.is_running and throughput.capacity is not None)
    load.toggle()
    qtbot.waitUntil(lambda: "by the batches that ran" in load.knob("rate_per_s").toolTip())
    assert load.pattern == suited


def test_that_a_capacity_which_was_measured_beside_other_programs_moves_nothing(
    qtbot: QtBot, make_batchscope: MakeBatchscope
) -> None:
    batchscope = make_batchscope(scripted("--trial-s=0.5", "--trial-share=0.3"))
    start_service(qtbot, batchscope)
    assert batchscope.window.load.pattern == Poisson(rate_per_s=4.0)


def test_that_a_load_of_the_user_s_own_is_not_moved_by_a_start(
    qtbot: QtBot, make_batchscope: MakeBatchscope, tmp_path: Path
) -> None:
    path = tmp_path / "preferences.json"
    PreferencesFile(path).save(Preferences(pattern=Poisson(rate_per_s=9.0)))
    batchscope = make_batchscope(scripted("--trial-s=0.01"), preferences=PreferencesFile(path))
    start_service(qtbot, batchscope)
    assert batchscope.window.load.pattern == Poisson(rate_per_s=9.0)


def test_that_a_load_is_paused_and_goes_on(qtbot: QtBot, running: Batchscope) -> None:
    load, history = running.window.load, running.composition.history
    load.set_load(ClosedLoop(users=2), 5)
    load.toggle()
    qtbot.waitUntil(lambda: history.load is not None and history.load.totals.ok >= 4)

    load.toggle_pause()
    qtbot.waitUntil(lambda: history.load is not None and history.load.is_paused)
    qtbot.waitUntil(lambda: history.load is not None and history.load.totals.outstanding == 0)
    assert history.load is not None
    before = history.load.totals.ok
    assert (load.pause.text(), load.is_running) == ("Resume", True)

    load.toggle_pause()
    qtbot.waitUntil(lambda: history.load is not None and history.load.totals.ok >= before + 4)
    load.toggle()
    qtbot.waitUntil(lambda: not load.is_running)
    assert running.errors == []


# Settings ------------------------------------------------------------------------------------------------------------


def test_that_a_slider_moves_the_service(qtbot: QtBot, running: Batchscope) -> None:
    qtbot.keyClick(slider(running, "max_batch_size"), Qt.Key.Key_PageDown)

    history = running.composition.history
    qtbot.waitUntil(lambda: history.in_force is not None and history.in_force.version == 2)
    assert history.in_force is not None
    assert history.in_force.settings.max_batch_size == 8
    qtbot.waitUntil(lambda: any("v2 in force after" in text for text in texts(running.window.batching)))
    assert running.errors == []


def test_that_a_change_is_marked_at_the_first_batch_that_obeyed_it(qtbot: QtBot, running: Batchscope) -> None:
    fire(running, "one")
    qtbot.waitUntil(lambda: outcomes(running) == ["done"])
    qtbot.keyClick(slider(running, "max_batch_size"), Qt.Key.Key_PageDown)
    qtbot.waitUntil(lambda: bool(running.composition.history.changes))
    assert running.composition.history.batches.marks() == []

    fire(running, "two")
    qtbot.waitUntil(lambda: len(running.composition.history.batches.marks()) == 1)


def test_that_a_drag_ends_where_the_hand_lets_go(qtbot: QtBot, running: Batchscope) -> None:
    handle = slider(running, "max_batch_size")
    middle = handle.height() // 2
    qtbot.mousePress(handle, Qt.MouseButton.LeftButton, pos=QPoint(handle.width() // 2, middle))
    for x in range(handle.width() // 2, handle.width() + 1, 2):
        qtbot.mouseMove(handle, QPoint(x, middle))
        qtbot.wait(5)
    qtbot.mouseRelease(handle, Qt.MouseButton.LeftButton, pos=QPoint(handle.width(), middle))

    history = running.composition.history
    qtbot.waitUntil(lambda: history.in_force is not None and history.in_force.settings.max_batch_size == 256)
    qtbot.waitUntil(lambda: handle.number == 256)
    assert len(history.changes) < 10
    assert running.errors == []


@pytest.mark.parametrize("typed", ["0", "257", "nan", "1e999", "８", "", "eight", "-1", "1_6", "9" * 400])
def test_that_nonsense_is_refused_under_its_control_and_nothing_changes(
    qtbot: QtBot, running: Batchscope, typed: str
) -> None:
    control = running.window.batching.control("max_batch_size")
    enter(qtbot, control.field, typed)

    assert control.refusal is not None or not typed
    qtbot.wait(150)
    in_force = running.composition.history.in_force
    assert in_force is not None
    assert (in_force.version, in_force.settings.max_batch_size) == (1, 16)


def enter(qtbot: QtBot, field: QLineEdit, text: str) -> None:
    field.setFocus()
    field.selectAll()
    qtbot.keyClick(field, Qt.Key.Key_Delete)
    for character in text:  # QTest.keyClicks aborts at anything beyond Latin 1
        QApplication.sendEvent(field, QKeyEvent(QEvent.Type.KeyPress, 0, Qt.KeyboardModifier.NoModifier, character))
    qtbot.keyClick(field, Qt.Key.Key_Return)


def test_that_settings_chosen_before_the_start_are_those_it_starts_with(qtbot: QtBot, batchscope: Batchscope) -> None:
    qtbot.keyClick(slider(batchscope, "max_batch_size"), Qt.Key.Key_PageUp)

    start_service(qtbot, batchscope)

    in_force = batchscope.composition.history.in_force
    assert in_force is not None
    assert (in_force.version, in_force.settings.max_batch_size) == (1, 32)


# Looking -------------------------------------------------------------------------------------------------------------


def test_that_frozen_plots_stand_while_data_go_on(qtbot: QtBot, running: Batchscope) -> None:
    fire(running, "one")
    qtbot.waitUntil(lambda: outcomes(running) == ["done"])
    plots = running.composition.plots

    running.window.toolbar.toggle_freeze()
    stands_at_s = plots.view_end_s()
    fire(running, "two", "three")
    qtbot.waitUntil(lambda: outcomes(running) == ["done"] * 3)

    assert plots.view_end_s() == stands_at_s
    requests_per_s = running.window.figures.figure("requests_per_s")
    qtbot.waitUntil(lambda: requests_per_s.before.startswith("at "))
    frozen_at = requests_per_s.before
    plots.show_until(stands_at_s - 60)
    qtbot.waitUntil(lambda: requests_per_s.before not in ("", frozen_at))
    plots.back_to_live()
    qtbot.waitUntil(lambda: requests_per_s.before == frozen_at)
    qtbot.waitUntil(lambda: any("2 new" in text for text in texts(running.window.toolbar)))
    running.window.toolbar.toggle_freeze()
    assert plots.is_live
    assert plots.view_end_s() > stands_at_s


def test_that_frames_are_counted_and_told(qtbot: QtBot, running: Batchscope) -> None:
    qtbot.waitUntil(lambda: running.composition.meter.times().count > 20)

    qtbot.waitUntil(lambda: any(fact.startswith("frame p99") for fact in running.window.status.facts))
    qtbot.waitUntil(lambda: any(fact.startswith("telemetry ") for fact in running.window.status.facts))


def test_that_everything_can_be_exported(qtbot: QtBot, running: Batchscope, tmp_path: Path) -> None:
    fire(running, "one", copies=3)
    qtbot.waitUntil(lambda: outcomes(running) == ["done"] * 3)

    for kind in ("figures", "requests", "batches", "plots_png", "window_png"):
        with qtbot.waitSignal(running.composition.exporter.written):
            running.composition.exporter.write(kind, tmp_path / kind)

    assert len((tmp_path / "requests").read_text().splitlines()) == 4
    assert (tmp_path / "figures").read_text().startswith("at,at_s,settings_version")
    for kind in ("plots_png", "window_png"):
        assert QImage(str(tmp_path / kind)).width() > 500


def test_that_an_export_that_fails_says_so(qtbot: QtBot, running: Batchscope, tmp_path: Path) -> None:
    running.composition.exporter.write("requests", tmp_path / "none" / "requests.csv")
    qtbot.waitUntil(lambda: len(running.errors) == 1)

    assert "that folder does not exist" in running.errors[0]
    assert running.window.status.activity.text() == running.errors[0]


# Beginning and end ---------------------------------------------------------------------------------------------------


def test_that_closing_ends_everything_first(qtbot: QtBot, running: Batchscope) -> None:
    running.window.load.set_load(ClosedLoop(users=8), 24)
    running.window.load.toggle()
    qtbot.waitUntil(has_begun(running))

    with qtbot.waitSignal(running.closed):
        running.window.close()
        assert running.window.isVisible()  # it says that it is stopping

    assert not running.window.isVisible()
    assert children() == []
    assert running.errors == []


def test_that_closing_a_second_time_does_not_wait(qtbot: QtBot, make_batchscope: MakeBatchscope) -> None:
    batchscope = make_batchscope(scripted("--deaf"))
    start_service(qtbot, batchscope)
    batchscope.window.close()

    with qtbot.waitSignal(batchscope.closed, timeout=GRACE_MS):
        batchscope.window.close()

    assert children() == []


def test_that_choices_are_remembered(make_batchscope: MakeBatchscope, qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "preferences.json"
    first = make_batchscope(preferences=PreferencesFile(path))
    first.window.load.set_load(ClosedLoop(users=7), 11)
    first.window.prompts.set_prompts(["alpha", "beta"])
    qtbot.keyClick(slider(first, "max_batch_size"), Qt.Key.Key_PageUp)
    first.window.toolbar.choose_window(300.0)
    named(first.composition.plots, QAbstractButton, "first token").click()
    with qtbot.waitSignal(first.closed):
        first.close()

    second = make_batchscope(preferences=PreferencesFile(path))

    assert (second.window.load.pattern, second.window.load.max_tokens) == (ClosedLoop(users=7), 11)
    assert second.window.prompts.prompts == ("alpha", "beta")
    assert second.window.batching.settings.max_batch_size == 32
    assert second.composition.plots.window_s == 300.0
    assert second.composition.plots.latency.measure.name == "ttft"


def test_that_the_durations_of_the_last_start_are_remembered(
    make_batchscope: MakeBatchscope, qtbot: QtBot, tmp_path: Path
) -> None:
    path = tmp_path / "preferences.json"
    first = make_batchscope(preferences=PreferencesFile(path))
    start_service(qtbot, first)
    lasted_s = first.composition.session.progress.durations_s
    with qtbot.waitSignal(first.closed):
        first.close()

    assert lasted_s
    assert make_batchscope(preferences=PreferencesFile(path)).choices.usual_stages_s == lasted_s


def test_that_damaged_preferences_are_told(make_batchscope: MakeBatchscope, tmp_path: Path) -> None:
    path = tmp_path / "preferences.json"
    path.write_text('{"window_s": "wide"}')

    batchscope = make_batchscope(preferences=PreferencesFile(path))

    assert batchscope.errors[0].startswith("The saved preferences could not be used")
    assert batchscope.window.status.activity.text() == batchscope.errors[0]
