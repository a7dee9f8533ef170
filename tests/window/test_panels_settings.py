"""Sliders, numbers and refusals: what the user wants goes out once, what is in force comes back silently."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAccessible, QKeySequence, QShortcut
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot

from gui.look import tokens
from gui.look.theme import Theme
from gui.panels.batching import BatchingPanel
from gui.widgets.labels import ElidedLabel
from gui.widgets.number_field import NumberField
from gui.widgets.setting import SwitchSetting
from gui.widgets.slider import Slider, handle_x
from service.messages.settings import Settings, VersionedSettings
from tests.window.seen import group, named, saying, texts


def in_force(version: int, **settings: object) -> VersionedSettings:
    return VersionedSettings(version=version, settings=Settings().revised(settings))


@pytest.fixture
def batching(qtbot: QtBot, theme: Theme) -> BatchingPanel:
    panel = BatchingPanel()
    qtbot.addWidget(panel)
    panel.resize(tokens.WIDTH_LEFT, 500)
    panel.show()
    qtbot.waitExposed(panel)
    return panel


def type_into(field: NumberField, text: str) -> None:
    field.setFocus()
    field.selectAll()
    QTest.keyClicks(field, text)
    QTest.keyClick(field, Qt.Key.Key_Return)


def drag(slider: Slider, *positions: int, let_go: bool = True) -> None:
    points = [QPoint(round(handle_x(position, slider.width())), slider.height() // 2) for position in positions]
    QTest.mousePress(slider, Qt.MouseButton.LeftButton, pos=points[0])
    for point in points[1:]:
        QTest.mouseMove(slider, point)
    if let_go:
        QTest.mouseRelease(slider, Qt.MouseButton.LeftButton, pos=points[-1])


def slider_of(panel: BatchingPanel, field: str) -> Slider:
    slider = panel.control(field).slider
    assert slider is not None
    return slider


def test_that_the_head_tells_as_much_of_the_change_as_there_is_room_for(batching: BatchingPanel) -> None:
    batching.show_in_force(VersionedSettings(version=7, settings=Settings()), in_force_after_ms=3.0)
    batching.show_drained("old settings drained after 1.8 s", "drained 1.8 s")
    whole = "v7 in force after 3 ms, old settings drained after 1.8 s"
    for width, text in ((440, whole), (264, "v7 after 3 ms, drained 1.8 s")):
        batching.resize(width, batching.height())
        assert saying(batching, text).toolTip() == ("" if text == whole else whole)
    batching.show_drained(whole, "drained after longer than there is room to tell")
    assert "v7 in force after 3 ms" in texts(batching)


def test_that_a_narrow_head_says_both_times_in_fewer_words(batching: BatchingPanel) -> None:
    batching.resize(240, batching.height())
    batching.show_in_force(VersionedSettings(version=12, settings=Settings()), in_force_after_ms=45.0)
    batching.show_drained("old settings drained after 12.8 s", "drained 12.8 s")
    assert saying(batching, "v12 45 ms, drained 12.8 s").toolTip().startswith("v12 in force after 45 ms, old settings")


def test_that_a_new_version_does_not_take_over_when_the_one_before_had_drained(batching: BatchingPanel) -> None:
    batching.show_in_force(VersionedSettings(version=7, settings=Settings()), in_force_after_ms=3.0)
    batching.show_drained("old settings drained after 1.8 s", "drained 1.8 s")
    batching.show_in_force(VersionedSettings(version=8, settings=Settings(max_batch_size=3)), in_force_after_ms=5.0)
    assert "v8 in force after 5 ms" in texts(batching)


def test_that_the_head_is_never_cut(batching: BatchingPanel) -> None:
    """Also where it has just the room that it needs, to a pixel."""
    for width in range(batching.minimumSizeHint().width(), 420):
        batching.resize(width, batching.height())
        for tenths in (2, 7, 8):
            batching.show_in_force(VersionedSettings(version=12, settings=Settings()), in_force_after_ms=3.0 + tenths)
            batching.show_drained(f"old settings drained after {tenths / 10:.1f} s", f"drained {tenths / 10:.1f} s")
            [head] = [label for label in batching.findChildren(ElidedLabel) if label.text().startswith("v12")]
            QApplication.processEvents()
            assert head.shown_text == head.text(), width


def test_that_settings_that_no_batch_has_obeyed_are_not_called_in_force(batching: BatchingPanel) -> None:
    batching.show_in_force(VersionedSettings(version=7, settings=Settings()), in_force_after_ms=3.0)
    batching.show_drained("27 requests formed before it come first", "after 27 formed", is_pending=True)
    whole = "v7: 27 requests formed before it come first"
    for width, text in ((440, whole), (264, "v7 after 27 formed")):
        batching.resize(width, batching.height())
        assert saying(batching, text).toolTip() == ("" if text == whole else whole)
    batching.show_drained(whole, "after longer than there is room to tell", is_pending=True)
    assert "v7 pending" in texts(batching)


def test_that_a_typed_number_is_asked_for_at_once(batching: BatchingPanel, qtbot: QtBot) -> None:
    with qtbot.waitSignal(batching.settings_wanted) as asked:
        type_into(batching.control("max_batch_size").field, "32")
    assert asked.args == [{"max_batch_size": 32}]
    assert slider_of(batching, "max_batch_size").number == 32


@pytest.mark.parametrize(
    ("field", "number", "text", "bounds"),
    [
        ("max_batch_size", 24, "24", (1.0, 256.0, 1.0)),
        ("batch_wait_timeout_s", 0.05, "0.050 s", (0.0, 5.0, 0.001)),
    ],
)
def test_that_a_screen_reader_hears_the_setting_and_its_unit(
    batching: BatchingPanel, field: str, number: float, text: str, bounds: tuple[float, float, float]
) -> None:
    batching.show_in_force(in_force(2, **{field: number}))
    heard = QAccessible.queryAccessibleInterface(slider_of(batching, field))
    value = heard.valueInterface()
    assert heard.text(QAccessible.Text.Name) == field
    assert heard.text(QAccessible.Text.Value) == text
    assert value.currentValue() == number
    assert (value.minimumValue(), value.maximumValue(), value.minimumStepSize()) == bounds


def test_that_assistive_technology_moves_a_slider_as_the_user_does(batching: BatchingPanel, qtbot: QtBot) -> None:
    slider = slider_of(batching, "max_batch_size")
    value = QAccessible.queryAccessibleInterface(slider).valueInterface()
    with qtbot.waitSignal(batching.settings_wanted) as asked:
        value.setCurrentValue(32.0)
    assert asked.args == [{"max_batch_size": 32}]
    slider.setEnabled(False)
    value.setCurrentValue(64.0)
    assert value.currentValue() == 32.0


def test_that_dragging_asks_often_but_not_for_every_pixel_and_the_last_value_always(
    batching: BatchingPanel, qtbot: QtBot
) -> None:
    asked: list[dict[str, object]] = []
    batching.settings_wanted.connect(asked.append)
    slider = slider_of(batching, "max_batch_size")
    drag(slider, *range(500, 800, 5))
    assert len(asked) <= 3
    assert asked[-1] == {"max_batch_size": int(slider.number)}


def test_that_a_drag_that_pauses_asks_without_being_let_go(batching: BatchingPanel, qtbot: QtBot) -> None:
    slider = slider_of(batching, "max_batch_size")
    with qtbot.waitSignal(batching.settings_wanted) as asked:
        drag(slider, 500, 750, let_go=False)
    assert asked.args == [{"max_batch_size": int(slider.number)}]
    QTest.mouseRelease(slider, Qt.MouseButton.LeftButton)


def test_that_a_drag_is_one_step_to_undo_and_to_redo(batching: BatchingPanel, qtbot: QtBot) -> None:
    slider, before = slider_of(batching, "max_batch_size"), batching.settings
    drag(slider, 100, 300, 500, 700, let_go=False)
    with qtbot.waitSignal(batching.settings_wanted):
        pass  # sent although the handle is still in hand
    QTest.mouseMove(slider, QPoint(round(handle_x(800, slider.width())), slider.height() // 2))
    QTest.mouseRelease(slider, Qt.MouseButton.LeftButton)
    after = batching.settings
    batching.undo()
    assert batching.settings == before
    batching.redo()
    assert batching.settings == after


def test_that_steps_are_undone_one_by_one_and_a_new_one_ends_the_redoing(batching: BatchingPanel) -> None:
    type_into(batching.control("max_batch_size").field, "8")
    batching.want({"formation": "early", "stride_s": 0.5})
    batching.undo()
    assert batching.settings == Settings(max_batch_size=8)
    type_into(batching.control("max_batch_size").field, "4")
    batching.redo()
    assert batching.settings == Settings(max_batch_size=4), "there is nothing to redo"
    batching.undo()
    batching.undo()
    batching.undo()
    assert batching.settings == Settings(), "and nothing further to undo"


def test_that_undo_in_a_field_is_of_the_settings_unless_something_is_typed(
    batching: BatchingPanel, qtbot: QtBot
) -> None:
    undo = QShortcut(QKeySequence("Ctrl+Z"), batching)
    undo.activated.connect(batching.undo)
    field = batching.control("max_batch_size").field
    type_into(field, "8")
    QTest.keyClicks(field, "9")
    QTest.keyClick(field, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert batching.settings.max_batch_size == 8
    QTest.keyClick(field, Qt.Key.Key_Escape)
    QTest.keyClick(field, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert batching.settings == Settings()


def test_that_the_formation_is_asked_for(batching: BatchingPanel, qtbot: QtBot) -> None:
    with qtbot.waitSignal(batching.settings_wanted) as asked:
        named(batching, QPushButton, "early").click()
    assert asked.args == [{"formation": "early"}]


def test_that_what_is_in_force_is_shown_silently(batching: BatchingPanel, qtbot: QtBot) -> None:
    with qtbot.assertNotEmitted(batching.settings_wanted, wait=2 * tokens.SETTINGS_INTERVAL_MS):
        batching.show_in_force(in_force(7, max_batch_size=64, formation="early"), 3.2)
    assert batching.settings == Settings(max_batch_size=64, formation="early")
    assert "v7 in force after 3 ms" in texts(batching)


def test_that_the_time_to_new_settings_stays_whichever_report_of_them_comes_first(batching: BatchingPanel) -> None:
    batching.show_in_force(in_force(7, max_batch_size=64), 3.2)  # by telemetry
    batching.show_in_force(in_force(7, max_batch_size=64))  # by the answer to the change
    assert "v7 in force after 3 ms" in texts(batching)
    batching.show_in_force(in_force(8, max_batch_size=32))
    assert "v8" in texts(batching)


def test_that_an_answer_to_an_older_change_does_not_move_the_control_back(batching: BatchingPanel) -> None:
    field = batching.control("max_batch_size").field
    type_into(field, "8")
    type_into(field, "32")
    batching.show_in_force(in_force(2, max_batch_size=8))
    assert field.number == 32
    batching.show_in_force(in_force(3, max_batch_size=32))
    batching.show_in_force(in_force(4, max_batch_size=4))  # somebody else
    assert field.number == 4


def test_that_a_handle_in_hand_is_not_moved(batching: BatchingPanel) -> None:
    slider = slider_of(batching, "max_batch_size")
    drag(slider, 500, 750, let_go=False)
    held = slider.number
    batching.show_in_force(in_force(2, max_batch_size=2))
    assert slider.number == held > 16
    QTest.mouseRelease(slider, Qt.MouseButton.LeftButton)


@pytest.mark.parametrize(
    ("field", "text", "line"),
    [
        ("batch_wait_timeout_s", "7.5", "Must be from 0 to 5. Still 0.050."),
        ("batch_wait_timeout_s", "nan", "Must be a number from 0 to 5. Still 0.050."),
        ("batch_wait_timeout_s", "0,5", "Decimals take a point, not a comma. Still 0.050."),
        ("batch_wait_timeout_s", "-1", "Must be from 0 to 5. Still 0.050."),
        ("batch_wait_timeout_s", "1e999", "Must be a number from 0 to 5. Still 0.050."),
        ("batch_wait_timeout_s", "", "Must be a number from 0 to 5. Still 0.050."),
        ("max_batch_size", "2.5", "Must be a whole number from 1 to 256. Still 16."),
        ("max_batch_size", "０", "Must be a whole number from 1 to 256. Still 16."),
        ("max_queued_requests", "0", "Must be from 1 to 4096. Still 256."),
        ("stride_s", "6", "Must be from 0.001 to 5, or 0. Still 0.000."),
        ("stride_s", "5e-324", "Must be from 0.001 to 5, or 0. Still 0.000."),
        ("stride_s", "x", "Must be a number from 0.001 to 5, or 0. Still 0.000."),
        ("max_batch_tokens", "-1", "Must be from 0 to 524288. Still 0."),
        ("max_concurrent_batches", "9", "Must be from 1 to 8. Still 1."),
        ("prefill_chunk_tokens", "15", "Must be from 16 to 8192, or 0. Still 0."),
    ],
)
def test_that_a_refused_value_says_the_rule_and_what_still_holds(
    batching: BatchingPanel, qtbot: QtBot, field: str, text: str, line: str
) -> None:
    control = batching.control(field)
    with qtbot.assertNotEmitted(batching.settings_wanted):
        control.field.setFocus()
        control.field.selectAll()
        QTest.keyClick(control.field, Qt.Key.Key_Delete)
        control.field.insert(text)
        control.field.setModified(True)
        QTest.keyClick(control.field, Qt.Key.Key_Return)
    assert control.refusal == line
    assert control.field.is_refused
    assert control.field.text() == text


def test_that_escape_takes_a_refused_value_back(batching: BatchingPanel, qtbot: QtBot) -> None:
    control = batching.control("batch_wait_timeout_s")
    type_into(control.field, "7.5")
    with qtbot.assertNotEmitted(batching.settings_wanted):
        QTest.keyClick(control.field, Qt.Key.Key_Escape)
    assert (control.refusal, control.field.text(), control.field.is_refused) == (None, "0.050", False)


def test_that_a_good_value_clears_the_refusal(batching: BatchingPanel) -> None:
    control = batching.control("batch_wait_timeout_s")
    type_into(control.field, "7.5")
    type_into(control.field, "0.2")
    assert (control.refusal, control.field.text()) == (None, "0.200")


def test_that_when_batches_leave_is_said_in_a_line_and_set_in_rows(batching: BatchingPanel, qtbot: QtBot) -> None:
    release = group(batching, "Release")
    assert release.is_folded
    assert release.summary == "any size · at once"
    batching.focus_control("stride_s")
    assert not release.is_folded
    with qtbot.waitSignal(batching.settings_wanted) as wanted:
        type_into(batching.control("stride_s").field, "0.5")
    assert wanted.args == [{"stride_s": 0.5}]
    with qtbot.waitSignal(batching.settings_wanted) as wanted:
        switch(batching, "off")
    assert wanted.args == [{"allow_small_batch": False}]
    batching.show_in_force(in_force(3, stride_s=0.5, allow_small_batch=False, max_batch_tokens=900))
    assert release.summary == "full only · every 0.5 s · 900 tokens"


def test_that_the_chunk_of_prompts_is_set_where_requests_join_and_is_not_shown_elsewhere(
    batching: BatchingPanel, qtbot: QtBot
) -> None:
    control = batching.control("prefill_chunk_tokens")
    assert control.isHidden()
    batching.show_in_force(in_force(2, formation="continuous"))
    assert not control.isHidden()
    with qtbot.waitSignal(batching.settings_wanted) as wanted:
        type_into(control.field, "64")
    assert wanted.args == [{"prefill_chunk_tokens": 64}]
    assert "Without effect in late and early" in control.toolTip()
    batching.show_in_force(in_force(3, prefill_chunk_tokens=64))
    assert control.isHidden()


def test_that_a_batch_that_could_never_fill_is_refused_where_it_was_asked_for(
    batching: BatchingPanel, qtbot: QtBot
) -> None:
    batching.show_in_force(in_force(2, max_batch_size=32, max_queued_requests=8))
    with qtbot.assertNotEmitted(batching.settings_wanted):
        switch(batching, "off")
    refusal = batching.control("allow_small_batch").refusal
    assert refusal is not None
    assert refusal.startswith("A batch of 32 could never fill where 8 may wait: raise max_queued_requests")
    batching.show_in_force(in_force(2, max_batch_size=32, max_queued_requests=8))
    assert batching.control("allow_small_batch").refusal == refusal, "telemetry leaves it standing"
    type_into(batching.control("max_queued_requests").field, "64")
    switch(batching, "off")
    assert batching.control("allow_small_batch").refusal is None
    assert not batching.settings.allow_small_batch


def test_that_what_does_not_go_with_somebody_else_s_change_is_no_longer_wanted(batching: BatchingPanel) -> None:
    type_into(batching.control("max_batch_size").field, "64")
    batching.show_in_force(in_force(2, max_queued_requests=32, allow_small_batch=False))
    assert batching.settings == Settings(max_queued_requests=32, allow_small_batch=False)
    assert batching.control("max_batch_size").number == 16


def switch(batching: BatchingPanel, state: str) -> None:
    control = batching.control("allow_small_batch")
    assert isinstance(control, SwitchSetting)
    control.field.button(state).click()


def test_that_telemetry_leaves_a_refused_value_standing(batching: BatchingPanel) -> None:
    control = batching.control("batch_wait_timeout_s")
    type_into(control.field, "7.5")
    batching.show_in_force(in_force(2))
    assert (control.field.text(), control.refusal) == ("7.5", "Must be from 0 to 5. Still 0.050.")


def test_that_a_refusal_by_the_service_is_shown_at_its_control(batching: BatchingPanel) -> None:
    type_into(batching.control("max_batch_size").field, "64")
    batching.show_refusal("max_batch_size", "Must be from 1 to 32.")
    control = batching.control("max_batch_size")
    assert control.refusal == "Must be from 1 to 32. Still 16."
    assert batching.settings.max_batch_size == 16


def test_that_a_change_that_could_not_be_sent_goes_back(batching: BatchingPanel) -> None:
    type_into(batching.control("max_batch_size").field, "64")
    batching.settle()
    assert batching.control("max_batch_size").number == 16


def test_that_keys_move_a_slider_by_one_and_by_doubling(batching: BatchingPanel, qtbot: QtBot) -> None:
    slider = slider_of(batching, "max_batch_size")
    wanted: list[dict[str, object]] = []
    batching.settings_wanted.connect(wanted.append)
    for key in (Qt.Key.Key_Right, Qt.Key.Key_PageDown, Qt.Key.Key_Home):
        QTest.keyClick(slider, key)
    assert wanted == [{"max_batch_size": 17}, {"max_batch_size": 8}, {"max_batch_size": 1}]
