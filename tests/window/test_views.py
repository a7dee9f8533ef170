"""The switch between the views of the centre."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from gui.look.theme import Theme
from gui.main_window import MainWindow
from gui.panels.views import DISTRIBUTIONS, LIVE, VIEWS
from gui.widgets.segmented import Segmented
from tests.window.seen import named, texts


@pytest.fixture
def window(qtbot: QtBot, theme: Theme) -> MainWindow:
    window = MainWindow(QWidget(), theme)
    qtbot.addWidget(window)
    for view in VIEWS[1:]:
        window.views.put(view.key, QWidget())
    window.show()
    qtbot.waitActive(window)
    return window


def shown(window: MainWindow) -> QWidget:
    return window.views.pages.currentWidget()


def press(window: MainWindow, keys: str) -> None:
    QTest.keyClick(window, Qt.Key(ord(keys[-1])), Qt.KeyboardModifier.AltModifier)


def test_that_the_plots_are_what_is_shown_first(window: MainWindow) -> None:
    assert (window.views.key, shown(window)) == (LIVE, window.plots)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.key)
def test_that_each_view_has_a_shortcut(window: MainWindow, view: object) -> None:
    chosen = next(each for each in VIEWS if each is view)
    press(window, chosen.shortcut.keys)
    assert window.views.key == chosen.key
    assert (shown(window) is window.plots) == (chosen.key == LIVE)


def test_that_a_click_chooses_a_view_and_tells(qtbot: QtBot, window: MainWindow) -> None:
    button = named(window.views, QPushButton, "Distributions")
    with qtbot.waitSignal(window.views.chosen) as told:
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert told.args == [DISTRIBUTIONS]
    assert shown(window) is not window.plots


def test_that_the_row_stays_where_it_is_whichever_view_is_shown(window: MainWindow) -> None:
    row = named(window.views, Segmented, "View").parentWidget()
    before = [(w.geometry(), w.isVisible()) for w in (window.views, row, window.views.pages)]
    window.views.show_view(DISTRIBUTIONS)
    window.views.describe(DISTRIBUTIONS, "v7, last 60 s, 412 requests")
    QApplication.processEvents()
    assert [(w.geometry(), w.isVisible()) for w in (window.views, row, window.views.pages)] == before


def test_that_the_choice_is_remembered_also_before_the_view_is_made(qtbot: QtBot, theme: Theme) -> None:
    window = MainWindow(QWidget(), theme)
    qtbot.addWidget(window)
    window.restore_layout({"view": DISTRIBUTIONS})
    assert (window.layout_state()["view"], shown(window)) == (DISTRIBUTIONS, window.plots)
    made = QWidget()
    window.views.put(DISTRIBUTIONS, made)
    assert shown(window) is made


def test_that_a_remembered_view_that_there_is_not_any_more_is_passed_over(window: MainWindow) -> None:
    window.restore_layout({"view": "radar"})
    assert window.views.key == LIVE


def test_that_what_a_view_says_of_itself_stands_only_while_it_is_shown(window: MainWindow) -> None:
    window.views.describe(DISTRIBUTIONS, "v7, 412 requests")
    assert "v7, 412 requests" not in texts(window.views)
    window.views.show_view(DISTRIBUTIONS)
    assert "v7, 412 requests" in texts(window.views)


def test_that_a_narrow_row_shows_the_short_remark_and_the_whole_one_on_hover(window: MainWindow) -> None:
    window.views.describe(LIVE, "long " * 40, brief="in short", tip="all of it")
    [remark] = [label for label in window.views.findChildren(QLabel) if label.text() == "in short"]
    assert remark.toolTip() == "long " * 40 + "\nall of it"
    window.views.describe(LIVE, "short", brief="s", tip="all of it")
    assert (remark.text(), remark.toolTip()) == ("short", "all of it")
