"""The window as a whole: states, widths, keyboard, themes, and the smaller panels."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QFontInfo, QFontMetrics, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QSplitter,
    QToolButton,
    QWidget,
)
from pytestqt.qtbot import QtBot

import gui
from gui.control.presenter import fact_tips, facts
from gui.look import tokens
from gui.look.theme import FocusRing, Theme, font
from gui.main_window import MainWindow
from gui.panels.shortcuts import ALL, ShortcutHelp
from gui.session.lifecycle import LifeCycle
from gui.session.start_progress import StageLine
from gui.widgets import icons
from gui.widgets.buttons import Chooser
from gui.widgets.collapsible import Collapsible
from gui.widgets.glyphs import Glyph
from gui.widgets.model_field import ModelField
from gui.widgets.number_field import NumberField
from gui.widgets.segmented import Segmented
from service.analysis.observed.register import REGISTER, UNKNOWN_FIGURES, Figures
from service.analysis.observed.statistics import figures
from service.messages.load import ClientTotals
from service.messages.telemetry import GraphUse, TelemetryFrame
from tests.synthetic_run import CLOCK, SyntheticRun, filled_history
from tests.window.seen import choose_file, named, pick, texts

WIDE, COMPACT, NARROW = (1440, 900), (1280, 800), (1000, 700)


VALUES = Figures(
    requests_per_s=6.84,
    tokens_per_s=161.2,
    p50_s=1.884,
    p95_s=2.5,
    p99_s=2.54,
    mean_batch=8.0,
    queue=2,
    speedup_over_batch_1=5.42,
    single_batches=14,
    failed_share=0.0,
    ended=68,
)


@dataclass(frozen=True)
class Finding:
    rule: str = "any"
    severity: str = "info"
    title: str = "Load is 57 % of capacity"
    evidence: str = "6.4 of 11.3 requests/s at batch 16."
    advice: str = ""
    control: str | None = None
    change: dict[str, object] | None = None
    expected: str = ""
    action: str = ""


@pytest.fixture
def window(qtbot: QtBot, theme: Theme) -> MainWindow:
    window = MainWindow(QWidget(), theme)
    qtbot.addWidget(window)
    window.resize(*WIDE)
    window.show()
    qtbot.waitActive(window)
    return window


def resize(window: MainWindow, size: tuple[int, int]) -> None:
    window.resize(*size)
    QApplication.processEvents()


def focused() -> QWidget:
    widget = QApplication.focusWidget()
    assert widget is not None
    return widget


def model_field(window: MainWindow) -> ModelField:
    return named(window.toolbar, ModelField, "Model")


def left_column(window: MainWindow) -> QScrollArea:
    return next(area for area in window.findChildren(QScrollArea) if area.isAncestorOf(window.batching))


def columns_of(window: MainWindow) -> QSplitter:
    return next(each for each in window.findChildren(QSplitter) if each.orientation() == Qt.Orientation.Horizontal)


def side_widths(window: MainWindow) -> list[int]:
    return [left_column(window).width(), window.prompts.width()]


# States -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "word", "step"),
    [
        (LifeCycle.NOT_STARTED, "Not started", "start"),
        (LifeCycle.STARTING, "Starting", "cancel"),
        (LifeCycle.RUNNING, "Running", "stop"),
        (LifeCycle.FAILED, "Failed", "restart"),
    ],
)
def test_that_the_first_button_does_the_next_step(
    window: MainWindow, qtbot: QtBot, state: LifeCycle, word: str, step: str
) -> None:
    window.show_life_cycle(state)
    assert word in texts(window.toolbar)
    assert window.toolbar.step_button.text().lower() == step
    with qtbot.waitSignal(window.toolbar.step_wanted) as wanted:
        window.toolbar.step_button.click()
    assert wanted.args == [step]


def test_that_fire_and_load_wait_for_the_service(window: MainWindow) -> None:
    window.show_life_cycle(LifeCycle.STARTING)
    assert not window.prompts.button.isEnabled()
    assert not window.load.button.isEnabled()
    window.show_life_cycle(LifeCycle.RUNNING)
    assert window.prompts.button.isEnabled()
    assert window.load.button.isEnabled()


def test_that_the_notice_says_one_thing_at_a_time_and_nothing_while_it_runs(window: MainWindow) -> None:
    notice = window.notice
    notice.show_empty()
    assert (notice.empty.isVisible(), notice.starting.isVisible(), notice.failed.isVisible()) == (True, False, False)
    notice.show_starting([StageLine("Start Ray", "present", "3 s of about 4 s", 0.75)], "It takes about 15 s.")
    assert (notice.empty.isVisible(), notice.starting.isVisible()) == (False, True)
    notice.show_failed("The replica ran out of memory.")
    assert "The replica ran out of memory." in texts(notice)
    notice.clear()
    assert notice.isHidden()


def test_that_the_notice_s_buttons_are_the_toolbar_s_steps(window: MainWindow, qtbot: QtBot) -> None:
    window.notice.show_failed("It died.")
    with qtbot.waitSignal(window.toolbar.step_wanted) as wanted:
        window.notice.failed.restart.click()
    assert wanted.args == ["restart"]
    window.notice.failed.show_log.click()
    assert not window.log.isHidden()


def test_that_start_has_a_ring_when_the_tab_key_reaches_it(window: MainWindow) -> None:
    window.notice.show_empty()
    window.notice.empty.start.setFocus(Qt.FocusReason.TabFocusReason)
    assert focused() is window.notice.empty.start
    assert ring_of(window).widget() is window.notice.empty.start


def test_that_fewer_stages_leave_no_old_line(window: MainWindow) -> None:
    lines = [StageLine(f"stage {n}", "ahead", "") for n in range(5)]
    window.notice.show_starting(lines)
    window.notice.show_starting(lines[:2])
    assert [text for text in texts(window.notice) if text.startswith("stage")] == ["stage 0", "stage 1"]


# Figures ------------------------------------------------------------------------------------------------------------


def test_that_figures_keep_their_decimals_and_name_the_version_before(window: MainWindow) -> None:
    window.figures.show_figures(VALUES, replace(VALUES, requests_per_s=3.6, speedup_over_batch_1=3.1), 6)
    texts = {key: window.figures.figure(key).text for key in ("requests_per_s", "tokens_per_s", "p50_s", "queue")}
    assert texts == {"requests_per_s": "6.8", "tokens_per_s": "161", "p50_s": "1.88 s", "queue": "2"}
    assert window.figures.figure("requests_per_s").before == "v6 3.6"
    assert window.figures.figure("speedup_over_batch_1").before == "v6 3.1"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (VALUES, "there were 14 in the last 5 min"),
        (
            replace(VALUES, speedup_over_batch_1=9.5),
            "It exceeds the batch size, so these ran slower for another reason",
        ),
        (
            replace(VALUES, speedup_over_batch_1=None, single_batches=1),
            "It takes 5 of these in the last 5 min, and there was 1",
        ),
    ],
    ids=["known", "more than the batch size", "unknown"],
)
def test_that_the_comparison_with_batches_of_one_says_what_it_rests_on(
    window: MainWindow, values: Figures, told: str
) -> None:
    window.figures.show_figures(values)
    assert told in window.figures.figure("speedup_over_batch_1").toolTip()


def test_that_what_is_unknown_is_a_dash_never_zero(window: MainWindow) -> None:
    window.figures.show_figures(replace(VALUES, p50_s=None, queue=0))
    assert (window.figures.figure("p50_s").text, window.figures.figure("queue").text) == ("–", "0")
    window.figures.show_figures(None)
    assert window.figures.figure("requests_per_s").text == "–"


def test_that_the_row_is_lower_until_there_are_data_and_then_keeps_its_height(window: MainWindow) -> None:
    heights = []
    for values in (None, UNKNOWN_FIGURES, VALUES, UNKNOWN_FIGURES, None):
        window.figures.show_figures(values)
        heights.append(window.figures.height())
    low, high = tokens.HEIGHT_FIGURES_EMPTY, tokens.HEIGHT_FIGURES
    assert heights == [low, low, high, high, low]


def test_that_frozen_figures_say_at_which_time_they_stand(window: MainWindow) -> None:
    window.figures.show_figures(VALUES, VALUES, 6)
    window.figures.set_time("14:32:07")
    assert window.figures.figure("requests_per_s").before == "at 14:32:07"
    window.figures.set_time(None)
    assert window.figures.figure("requests_per_s").before == "v6 6.8"


# Toolbar ------------------------------------------------------------------------------------------------------------


def test_that_freezing_keeps_the_button_pressed_and_counts_what_came_since(window: MainWindow, qtbot: QtBot) -> None:
    window.show_life_cycle(LifeCycle.RUNNING, has_data=True)
    with qtbot.waitSignal(window.toolbar.freeze_toggled) as frozen:
        window.toolbar.freeze_button.click()
    assert frozen.args == [True]
    window.toolbar.set_frozen(True, "14:32:07", 128)
    assert window.toolbar.freeze_button.isChecked()
    assert window.toolbar.freeze_button.text() == "Unfreeze"
    assert "at 14:32:07 · 128 new" in texts(window.toolbar)
    window.toolbar.set_frozen(False)
    assert window.toolbar.freeze_button.text() == "Freeze"
    assert not any("14:32:07" in text for text in texts(window.toolbar))


def test_that_the_address_can_be_copied(window: MainWindow) -> None:
    window.toolbar.set_url("http://127.0.0.1:8000")
    assert "127.0.0.1:8000" in texts(window.toolbar)
    named(window.toolbar, QPushButton, "Copy the address").click()
    assert QGuiApplication.clipboard().text() == "http://127.0.0.1:8000"


def test_that_a_model_s_name_can_be_typed(window: MainWindow, qtbot: QtBot) -> None:
    window.toolbar.set_models(["SmolLM2-135M-Instruct", "gpt2"], ["adder"], "SmolLM2-135M-Instruct")
    field = model_field(window)
    field.setFocus()
    field.selectAll()
    with qtbot.waitSignal(window.toolbar.model_chosen) as chosen:
        QTest.keyClicks(field, "gpt2")
        QTest.keyClick(field, Qt.Key.Key_Return)
    assert chosen.args == ["gpt2"]


def test_that_a_model_s_folder_or_file_is_asked_for_while_the_window_goes_on(
    window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    (file := tmp_path / "tiny.gguf").touch()
    for entry, path in (("Choose a folder…", tmp_path), ("Choose a GGUF file…", file)):
        pick(named(window.toolbar, QToolButton, "Choose a model"), entry)
        with qtbot.waitSignal(window.toolbar.model_chosen) as chosen:
            choose_file(window, path)
        assert chosen.args == [str(path)]


def test_that_the_model_that_was_taken_is_shown_until_another_can_be_chosen(window: MainWindow) -> None:
    window.toolbar.set_models(["auto", "gpt2"], [], "auto")
    window.show_life_cycle(LifeCycle.RUNNING)
    field = model_field(window)
    window.toolbar.show_model_in_force("owner/tiny", "The hub can't be reached.")
    assert (field.text(), field.spec) == ("tiny", "auto")
    assert field.toolTip().startswith("owner/tiny\nThe hub can't be reached.\n")
    window.show_life_cycle(LifeCycle.NOT_STARTED)
    assert field.text() == "auto"
    assert "hub" not in field.toolTip()


def test_that_the_left_column_is_not_cut_where_it_is_narrowest(window: MainWindow, qtbot: QtBot) -> None:
    window.resize(*tokens.WINDOW_MIN)
    for group in window.batching.findChildren(Collapsible):
        group.set_folded(False)
    left = left_column(window)
    qtbot.waitUntil(lambda: left.verticalScrollBar().isVisible())
    needed = left.widget().minimumSizeHint().width()
    assert needed <= left.viewport().width()


def test_that_return_after_the_model_s_name_leaves_the_focus_at_the_next_step(window: MainWindow) -> None:
    model_field(window).setFocus()
    window.show_life_cycle(LifeCycle.STARTING)
    assert window.toolbar.step_button.hasFocus()


def test_that_a_long_path_is_shown_by_its_end_and_kept_whole(window: MainWindow) -> None:
    path = "/home/somebody/models/with/a/long/name/SmolLM2-135M-Instruct"
    window.toolbar.set_models((), (), path)
    window.toolbar.step_button.setFocus()
    field = model_field(window)
    assert field.spec == path
    assert field.text().startswith("…")
    assert field.text().endswith("Instruct")
    field.setFocus()
    assert field.text() == path


def test_that_exports_are_offered_once_there_are_data(window: MainWindow, qtbot: QtBot) -> None:
    window.show_life_cycle(LifeCycle.RUNNING, has_data=False)
    assert not window.toolbar.export_button.isEnabled()
    window.show_life_cycle(LifeCycle.FAILED, has_data=True)
    assert window.toolbar.export_button.isEnabled()
    with qtbot.waitSignal(window.toolbar.export_wanted) as wanted:
        window.toolbar.export_menu.actions()[0].trigger()
    assert wanted.args == ["figures"]


def test_that_device_and_precision_are_chosen_apart(window: MainWindow, qtbot: QtBot) -> None:
    button = named(window.toolbar, Chooser, "Device and dtype")
    with qtbot.waitSignal(window.toolbar.device_chosen) as device:
        pick(button, "CUDA")
    with qtbot.waitSignal(window.toolbar.dtype_chosen) as dtype:
        pick(button, "f16")
    assert (device.args, dtype.args) == (["cuda"], ["float16"])
    assert (button.text(), button.accessibleDescription()) == ("CUDA", "CUDA f16")


def test_that_a_deterministic_service_is_chosen_beside_the_device(window: MainWindow, qtbot: QtBot) -> None:
    button = named(window.toolbar, Chooser, "Device and dtype")
    with qtbot.waitSignal(window.toolbar.deterministic_action.toggled) as toggled:
        pick(button, "Deterministic: no answer depends on its batch")
    assert toggled.args == [True]


@pytest.mark.parametrize(("seconds", "spelled"), [(12.9, "12 s"), (252, "4 min 12 s"), (7300, "2 h 1 min")])
def test_that_uptime_reads_as_words(window: MainWindow, seconds: float, spelled: str) -> None:
    window.toolbar.set_uptime_s(seconds)
    assert f"up {spelled}" in texts(window.toolbar)


# Widths -------------------------------------------------------------------------------------------------------------


def test_that_the_columns_have_the_widths_of_the_look(window: MainWindow) -> None:
    assert side_widths(window) == [tokens.WIDTH_LEFT, tokens.WIDTH_RIGHT]
    resize(window, COMPACT)
    assert side_widths(window) == [tokens.WIDTH_LEFT_SMALL, tokens.WIDTH_RIGHT_SMALL]


def test_that_below_1400_the_time_window_becomes_a_menu(window: MainWindow, qtbot: QtBot) -> None:
    assert named(window.toolbar, Segmented, "Time window").isVisible()
    resize(window, COMPACT)
    with qtbot.waitSignal(window.toolbar.window_chosen) as chosen:
        pick(named(window.toolbar, Chooser, "Time window"), "5 min")
    assert chosen.args == [300.0]
    resize(window, WIDE)
    assert named(window.toolbar, Segmented, "Time window").key == "300"


def test_that_below_1120_the_right_panel_becomes_a_drawer(window: MainWindow) -> None:
    resize(window, NARROW)
    assert not window.prompts.isVisible()
    named(window.toolbar, QPushButton, "Prompts and requests").click()
    assert window.prompts.isVisible()
    assert window.prompts.mapTo(window, window.prompts.rect().topRight()).x() == window.width() - 1
    QTest.keyClick(window, Qt.Key.Key_Escape)
    assert not window.prompts.isVisible()
    resize(window, WIDE)
    assert window.prompts.isVisible()
    assert side_widths(window)[1] == tokens.WIDTH_RIGHT


@pytest.mark.parametrize("size", [WIDE, COMPACT, NARROW, (1920, 1080), tokens.WINDOW_MIN])
def test_that_no_button_s_words_are_cut(window: MainWindow, size: tuple[int, int]) -> None:
    window.show_life_cycle(LifeCycle.RUNNING, has_data=True)
    window.toolbar.set_url("http://127.0.0.1:8000")
    resize(window, size)
    for button in window.findChildren(QPushButton):
        if button.isVisible() and button.text() and button.minimumSizeHint().width() > 0:
            words = QFontMetrics(button.font()).horizontalAdvance(button.text())
            assert words <= button.width(), button.text()


def test_that_sizes_are_remembered_as_plain_values(window: MainWindow, qtbot: QtBot, theme: Theme) -> None:
    columns_of(window).setSizes([300, 740, 400])
    state = json.loads(json.dumps(window.layout_state()))
    other = MainWindow(QWidget(), theme)
    qtbot.addWidget(other)
    other.restore_layout(state)
    other.show()
    QApplication.processEvents()
    assert (other.width(), other.height()) == WIDE
    assert columns_of(other).sizes() == columns_of(window).sizes()


@pytest.mark.parametrize("state", [{}, {"size": "wide"}, {"size": [1, 2]}, {"widths": [1e9, None]}, {"widths": [9, 9]}])
def test_that_nonsense_in_the_remembered_layout_is_passed_over(window: MainWindow, state: dict[str, object]) -> None:
    window.restore_layout(state)
    assert window.width() >= tokens.WINDOW_MIN[0]
    assert side_widths(window)[0] >= tokens.WIDTH_SIDE_MIN


# Keyboard -----------------------------------------------------------------------------------------------------------


def ring_of(window: MainWindow) -> FocusRing:
    ring = window.findChild(FocusRing)
    assert ring is not None
    return ring


def test_that_the_ring_is_for_the_keyboard_alone(window: MainWindow) -> None:
    ring, button = ring_of(window), window.load.button
    window.show_life_cycle(LifeCycle.RUNNING)
    assert not ring.isVisible()
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert (focused() is button, ring.isVisible()) == (True, False)
    QTest.keyClick(button, Qt.Key.Key_Tab)
    assert (ring.isVisible(), ring.widget() is focused()) == (True, True)
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert not ring.isVisible()


@pytest.mark.parametrize("leave", [lambda button: button.setEnabled(False), QWidget.hide], ids=["disabled", "hidden"])
def test_that_a_button_that_a_click_takes_away_leaves_no_ring(
    window: MainWindow, leave: Callable[[QWidget], None]
) -> None:
    ring, button = ring_of(window), window.load.button
    window.show_life_cycle(LifeCycle.RUNNING)
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    leave(button)
    assert (focused() is button, ring.isVisible()) == (False, False)
    QTest.keyClick(focused(), Qt.Key.Key_Tab)
    assert ring.isVisible()


def test_that_the_ring_stands_two_pixels_outside_and_is_cut_nowhere(window: MainWindow) -> None:
    field = window.batching.control("max_batch_size").field
    field.setFocus(Qt.FocusReason.TabFocusReason)
    ring = ring_of(window)
    around = ring.geometry().translated(-field.mapTo(ring.parentWidget(), field.rect().topLeft()))
    margin = tokens.FOCUS_MARGIN
    assert around == field.rect().adjusted(-margin, -margin, margin, margin)
    assert ring.parentWidget().rect().contains(ring.geometry())


def test_that_tab_goes_from_toolbar_to_left_to_plots_to_right(window: MainWindow) -> None:
    plot = QWidget(window.plots)
    plot.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    plot.resize(10, 10)
    plot.show()
    window.show_life_cycle(LifeCycle.RUNNING, has_data=True)
    QApplication.processEvents()
    window.toolbar.step_button.setFocus()
    visited = []
    for _ in range(60):
        visited.append(_place_of(window, focused()))
        QTest.keyClick(focused(), Qt.Key.Key_Tab)
        if focused() is window.toolbar.step_button:
            break
    assert list(dict.fromkeys(visited)) == ["toolbar", "batching", "load", "views", "prompts", "requests", "status"]
    assert visited == sorted(visited, key=list(dict.fromkeys(visited)).index)


def _place_of(window: MainWindow, widget: QWidget) -> str:
    names = ("toolbar", "batching", "load", "findings", "views", "prompts", "requests", "status")
    return next(name for name in names if getattr(window, name).isAncestorOf(widget))


def test_that_everything_one_can_reach_has_a_name(window: MainWindow) -> None:
    nameless = [
        widget
        for widget in window.findChildren(QWidget)
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and not widget.accessibleName()
        and not (isinstance(widget, QPushButton) and widget.text())
        and widget.isVisibleTo(window)
        and not (isinstance(widget, QLineEdit) and widget.isReadOnly())
    ]
    assert nameless == []


def test_that_icon_buttons_have_a_tooltip(window: MainWindow) -> None:
    bare = [b for b in window.findChildren(QPushButton) if b.property("role") == "icon" and not b.toolTip()]
    assert bare == []


def test_that_shortcuts_do_what_their_buttons_do(window: MainWindow, qtbot: QtBot) -> None:
    window.show_life_cycle(LifeCycle.RUNNING, has_data=True)
    control = Qt.KeyboardModifier.ControlModifier
    with qtbot.waitSignal(window.toolbar.step_wanted):
        QTest.keyClick(window, Qt.Key.Key_R, control)
    with qtbot.waitSignal(window.prompts.fire_wanted):
        QTest.keyClick(window.prompts.editor, Qt.Key.Key_Return, control)
    with qtbot.waitSignal(window.load.load_wanted):
        QTest.keyClick(window, Qt.Key.Key_L, control)
    with qtbot.waitSignal(window.toolbar.freeze_toggled):
        QTest.keyClick(window, Qt.Key.Key_F)
    with qtbot.waitSignal(window.toolbar.window_chosen) as chosen:
        QTest.keyClick(window, Qt.Key.Key_4, control)
    assert chosen.args == [600.0]
    QTest.keyClick(window, Qt.Key.Key_J, control)
    assert window.log.isVisible()
    QTest.keyClick(window, Qt.Key.Key_Escape)
    assert not window.log.isVisible()


def test_that_an_f_in_the_editor_is_a_letter(window: MainWindow, qtbot: QtBot) -> None:
    window.show_life_cycle(LifeCycle.RUNNING)
    window.prompts.set_prompts([])
    window.prompts.editor.setFocus()
    with qtbot.assertNotEmitted(window.toolbar.freeze_toggled):
        QTest.keyClick(window.prompts.editor, Qt.Key.Key_F)
    assert window.prompts.prompts == ("f",)


def test_that_the_help_lists_every_shortcut_once(window: MainWindow) -> None:
    keys = [shortcut.keys for shortcut in ALL]
    assert len(keys) == len(set(keys))
    QTest.keyClick(window, Qt.Key.Key_F1)
    [help_dialog] = window.findChildren(ShortcutHelp)
    assert help_dialog.isVisible()
    assert [text for text in texts(help_dialog) if text in {each.does for each in ALL}] == [each.does for each in ALL]
    help_dialog.close()


# Smaller panels -----------------------------------------------------------------------------------------------------


def test_that_prompts_are_lines_and_fire_sends_them_in_copies(window: MainWindow, qtbot: QtBot) -> None:
    window.show_life_cycle(LifeCycle.RUNNING)
    window.prompts.set_prompts(["  Once upon a time ", "", "A batch"])
    window.prompts.set_copies(3)
    assert "6 requests" in texts(window.prompts)
    with qtbot.waitSignal(window.prompts.fire_wanted) as fired:
        window.prompts.button.click()
    assert fired.args == [("Once upon a time", "A batch"), 3]


def test_that_no_prompt_means_no_fire(window: MainWindow) -> None:
    window.show_life_cycle(LifeCycle.RUNNING)
    window.prompts.set_prompts(["", "  "])
    assert not window.prompts.button.isEnabled()


def test_that_copies_out_of_range_say_the_rule_and_fire_nothing(window: MainWindow, qtbot: QtBot) -> None:
    window.show_life_cycle(LifeCycle.RUNNING)
    window.prompts.set_copies(8)
    copies = named(window.prompts, NumberField, "Copies of each prompt")
    copies.setFocus()
    copies.selectAll()
    QTest.keyClicks(copies, "0")
    with qtbot.assertNotEmitted(window.prompts.fire_wanted):
        window.prompts.fire()
    assert "Must be from 1 to 10000." in texts(window.prompts)


def test_that_a_finding_leads_to_its_control(window: MainWindow) -> None:
    window.findings.show_findings([Finding(control="max_batch_size"), Finding(title="Another")])
    assert window.findings.titles() == ["Load is 57 % of capacity", "Another"]
    named(window.findings, QPushButton, "Change max_batch_size ›").click()
    assert focused() is window.batching.control("max_batch_size").slider


def test_that_findings_beyond_three_show_on_demand(window: MainWindow) -> None:
    many = [Finding(title=f"Finding {number}") for number in range(5)]
    window.findings.show_findings(many)
    assert window.findings.titles() == ["Finding 0", "Finding 1", "Finding 2"]
    named(window.findings, QPushButton, "2 more ›").click()
    assert window.findings.titles() == [finding.title for finding in many]
    window.findings.show_findings(many[:2])
    assert window.findings.titles() == ["Finding 0", "Finding 1"]
    assert not any(text in ("Show fewer", "0 more ›") for text in texts(window.findings))


def test_that_a_finding_whose_remedy_is_no_slider_has_no_link(window: MainWindow) -> None:
    window.findings.show_findings([Finding(control="memory", advice="Start it with more.")])
    assert not any(text.startswith("Change") for text in texts(window.findings))
    assert "Start it with more." in texts(window.findings)


def test_that_a_finding_is_mended_by_one_change_at_its_button_and_the_controls_follow(
    window: MainWindow, qtbot: QtBot
) -> None:
    window.show_life_cycle(LifeCycle.RUNNING)
    change = {"formation": "continuous", "max_batch_size": 8}
    mends = Finding(control="formation", change=change, expected="Up to 9 instead of 6.", action="Apply both")
    window.findings.show_findings([mends])
    assert "Apply both" not in texts(window.findings), "the past cannot be changed"
    window.findings.set_can_change(True)
    with qtbot.waitSignal(window.batching.settings_wanted) as asked:
        named(window.findings, QPushButton, "Apply both").click()
    assert asked.args == [change]
    assert window.batching.settings.max_batch_size == 8
    assert "Expected: Up to 9 instead of 6." in texts(window.findings)
    assert "Change formation ›" not in texts(window.findings)


def test_that_a_finding_leads_to_a_limit_that_was_folded_away(window: MainWindow) -> None:
    resize(window, COMPACT)
    window.batching.focus_control("max_queued_requests")
    assert focused() is window.batching.control("max_queued_requests").field


def test_that_the_log_is_bounded_and_follows_its_end(window: MainWindow) -> None:
    window.show_log(True)
    for start in range(0, 3000, 500):
        window.log.append("\n".join(f"line {n}" for n in range(start, start + 500)))
    lines = window.log.text().splitlines()
    assert (len(lines), lines[-1]) == (2000, "line 2999")
    bar = named(window.log, QPlainTextEdit, "Service log").verticalScrollBar()
    assert bar.value() == bar.maximum()


def test_that_the_status_bar_shows_what_it_is_told(window: MainWindow) -> None:
    window.status.set_activity("replica 1: batch 244")
    window.status.set_facts(["settings v7", "CPU 188 %"])
    assert (window.status.activity.text(), window.status.facts) == (
        "replica 1: batch 244",
        ("settings v7", "CPU 188 %"),
    )


def test_that_a_fact_of_the_status_bar_explains_itself_on_hover(window: MainWindow) -> None:
    history, _ = filled_history(SyntheticRun(15.0, measures_processor=True))
    window.status.set_facts(facts(history, figures(history), 5.0, 12.0), fact_tips(history))
    assert "processor got 90 %" in window.status.facts
    tips = [window.status.tip_at(x) for x in range(window.status.width())]
    assert {tip for tip in tips if tip} == {REGISTER["processor_share"].sentence}
    assert tips[-1] == "", "the last fact is another"


def test_that_the_status_bar_tells_of_a_gpu_and_why_a_step_was_not_replayed(window: MainWindow) -> None:
    history, _ = filled_history(SyntheticRun(15.0))
    why_not = "A batch of 2 rows and 1,025 columns exceeds the largest graph: 32 rows and 1,024 columns."
    figures_of_gpu = {"gpu_percent": 37.0, "gpu_power_w": 112.4, "gpu_clock_mhz": 1410, "gpu_memory_bytes": 2 * 10**9}
    use = GraphUse(steps=400, replayed=388, why_not=why_not)
    [replica] = history.replicas
    on_gpu = msgspec.structs.replace(replica, device="cuda:0", graphs=use, **figures_of_gpu)
    frame = TelemetryFrame(
        number=10**6, at_s=history.now_s(), clock=CLOCK, in_force=history.in_force, replicas=(on_gpu,)
    )
    history.add_telemetry(frame)

    window.status.set_facts(facts(history, figures(history), 5.0, 12.0), fact_tips(history))

    expected = {"GPU clock 1410 MHz", "GPU power 112 W", "GPU 37 %", "GPU memory 2.0 GB", "replayed 97 %"}
    assert expected <= set(window.status.facts)
    tips = {window.status.tip_at(x) for x in range(window.status.width())}
    assert any(tip.endswith(why_not) for tip in tips)


# Look ---------------------------------------------------------------------------------------------------------------


def test_that_figures_do_not_change_their_width(theme: Theme) -> None:
    for weight in (tokens.WEIGHT_REGULAR, tokens.WEIGHT_MEDIUM, tokens.WEIGHT_BOLD):
        face = font(tokens.FONT_FIGURE, weight)
        assert QFontInfo(face).family().startswith("Inter")
        metrics = QFontMetrics(face)
        assert metrics.horizontalAdvance("1" * 10) == metrics.horizontalAdvance("0" * 10)


def test_that_tabular_figures_survive_the_style_sheet(window: MainWindow) -> None:
    window.load.show_totals(ClientTotals(), 0.8)
    [counts] = [label for label in window.load.findChildren(QLabel) if label.text().startswith("0 sent")]
    metrics = QFontMetrics(QFont(counts.font()))
    assert metrics.horizontalAdvance("1" * 10) == metrics.horizontalAdvance("0" * 10)


def test_that_the_theme_can_be_turned_and_everything_follows(window: MainWindow, theme: Theme, qtbot: QtBot) -> None:
    try:
        with qtbot.waitSignal(theme.changed) as changed:
            QTest.keyClick(window, Qt.Key.Key_T, Qt.KeyboardModifier.ControlModifier)
        assert changed.args == [tokens.LIGHT]
        picture = window.grab().toImage()
        assert picture.pixelColor(4, 4) == QColor(tokens.LIGHT.panel)
        assert picture.pixelColor(window.width() // 2, 500) == QColor(tokens.LIGHT.plot)
    finally:
        theme.set_preference("dark")


def test_that_every_icon_that_is_named_exists(window: MainWindow) -> None:
    icons.load()
    sources = Path(gui.__file__).parent.rglob("*.py")
    names = {name for source in sources for name in re.findall(r'"(ph\.[a-z-]+)"', source.read_text(encoding="utf-8"))}
    assert names
    for name in names:
        assert icons.pixmap(name, tokens.DARK.t2) is not None


def test_that_every_shape_can_be_painted(window: MainWindow) -> None:
    for shape in ("circle", "dot", "arc", "check", "cross", "dash", "alert", "none"):
        glyph = Glyph(shape)  # type: ignore[arg-type]
        assert not glyph.grab().isNull()


def test_that_no_module_but_the_tokens_spells_a_colour() -> None:
    spelled = re.compile(r"#[0-9A-Fa-f]{6}\b|#[0-9A-Fa-f]{3}\b|QColor\(\s*\d")
    offenders = [
        source.name
        for source in Path(gui.__file__).parent.rglob("*.py")
        if source.name != "tokens.py" and spelled.search(source.read_text(encoding="utf-8"))
    ]
    assert offenders == []


def test_that_for_a_projector_the_model_is_named_whole_and_no_button_is_cut(window: MainWindow) -> None:
    name = "SmolLM2-135M-Instruct"
    resize(window, COMPACT)
    toolbar, field = window.toolbar, model_field(window)
    field.set_spec(name)
    window.set_projecting(True)
    QApplication.processEvents()
    around = tokens.ICON + tokens.GAP_1 + 2 * tokens.GAP_3  # the caret and the margins
    needed = [(field, field.fontMetrics().horizontalAdvance(name) + around)]
    needed += [(each, each.sizeHint().width()) for each in (toolbar.step_button, toolbar.freeze_button)]
    cut = [each.accessibleName() or each.text() for each, width in needed if each.width() < width]
    shown = field.text()
    window.set_projecting(False)
    QApplication.processEvents()
    assert (shown, cut) == (name, [])
    assert field.width() == tokens.WIDTH_MODEL
