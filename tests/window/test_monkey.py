"""Random actions on the real window under load: nothing raises, and the service still answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QPoint, Qt, QTimer
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QFileDialog,
    QInputDialog,
    QLineEdit,
    QMenu,
    QMessageBox,
    QSlider,
    QWidget,
)
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.session.lifecycle import LifeCycle
from service.analysis.observed.history import History
from service.messages.load import ClosedLoop
from service.messages.settings import Settings
from tests.window.conftest import start_service

KEYS = [
    Qt.Key.Key_Left,
    Qt.Key.Key_Right,
    Qt.Key.Key_PageUp,
    Qt.Key.Key_PageDown,
    Qt.Key.Key_Home,
    Qt.Key.Key_End,
    Qt.Key.Key_Tab,
    Qt.Key.Key_Escape,
    Qt.Key.Key_Plus,
    Qt.Key.Key_Minus,
    Qt.Key.Key_Return,
]
AT_ONCE = {"allow_small_batch": True, "batch_wait_timeout_s": 0.0, "stride_s": 0.0}  # a request waits for no other
TEXTS = ["", "0", "-1", "1e9", "nan", "7", "0.25", "abc", "99999999999999999999"]


class Monkey:
    """Clicks, types and turns wherever there is something; leaves alone what would end the run."""

    def __init__(self, qtbot: QtBot, batchscope: Batchscope, seed: int) -> None:
        self._qtbot = qtbot
        self._window = batchscope.window
        self._chance = random.Random(seed)
        self._actions: list[Callable[[], None]] = [self._click, self._type, self._slide, self._key, self._wheel]

    def act(self) -> None:
        self._chance.choice(self._actions)()

    def _one_of(self, kind: type[QWidget]) -> QWidget | None:
        toolbar = self._window.toolbar
        found = [w for w in self._window.findChildren(kind) if w.isVisible() and w.isEnabled()]
        found = [w for w in found if w.parent() is not toolbar or w is toolbar.freeze_button]
        return self._chance.choice(found) if found else None

    def _click(self) -> None:
        if (button := self._one_of(QAbstractButton)) is not None:
            self._qtbot.mouseClick(button, Qt.MouseButton.LeftButton)

    def _type(self) -> None:
        field = self._one_of(QLineEdit)
        if isinstance(field, QLineEdit):
            field.selectAll()
            self._qtbot.keyClicks(field, self._chance.choice(TEXTS))
            self._qtbot.keyClick(field, self._chance.choice([Qt.Key.Key_Return, Qt.Key.Key_Escape, Qt.Key.Key_Tab]))

    def _slide(self) -> None:
        if (slider := self._one_of(QSlider)) is not None:
            place = QPoint(self._chance.randrange(slider.width()), slider.height() // 2)
            self._qtbot.mousePress(slider, Qt.MouseButton.LeftButton, pos=place)
            self._qtbot.mouseMove(slider, QPoint(self._chance.randrange(slider.width()), slider.height() // 2))
            self._qtbot.mouseRelease(slider, Qt.MouseButton.LeftButton)

    def _key(self) -> None:
        if (widget := self._one_of(QWidget)) is not None:
            self._qtbot.keyClick(widget, self._chance.choice(KEYS))

    def _wheel(self) -> None:
        widths = [900, 1100, 1280, 1440, 1900]
        self._window.resize(self._chance.choice(widths), self._chance.choice([700, 800, 1000]))


def close_what_waits() -> None:
    for opened in QApplication.topLevelWidgets():
        if isinstance(opened, QMenu | QFileDialog | QInputDialog | QMessageBox) and opened.isVisible():
            opened.close()


@pytest.fixture
def nothing_waits(qapp: QApplication) -> Iterator[None]:
    """Menus and dialogs of Qt's own are closed as they open, also where one waits within another."""
    closing = QTimer(interval=10, timeout=close_what_waits)
    closing.start()
    yield
    closing.stop()


@pytest.mark.parametrize(
    "actions",
    [400, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
)
@pytest.mark.usefixtures("nothing_waits")
@pytest.mark.promise("T23")
def test_that_no_random_action_breaks_the_window(
    qtbot: QtBot, batchscope: Batchscope, actions: int, record_property: Callable[[str, object], None]
) -> None:
    start_service(qtbot, batchscope)
    batchscope.window.load.set_load(ClosedLoop(users=8), 12)
    batchscope.window.load.toggle()
    monkey = Monkey(qtbot, batchscope, seed=23)

    for _ in range(actions):
        monkey.act()
        qtbot.wait(5)

    assert batchscope.composition.session.state is LifeCycle.RUNNING
    batchscope.window.requests.cancel_wanted.emit(None)
    batchscope.window.load.stop_wanted.emit()
    history = batchscope.composition.history
    qtbot.waitUntil(lambda: history.load is not None and history.load.totals.outstanding == 0)
    batchscope.composition.session.change_settings(AT_ONCE)
    qtbot.waitUntil(lambda: in_force(history).revised(AT_ONCE) == in_force(history))
    before = history.load.totals.ok if history.load else 0
    batchscope.composition.session.fire(("still there",), 1, 2)
    qtbot.waitUntil(lambda: history.load is not None and history.load.totals.ok == before + 1)
    record_property("T23", f"{actions:,} random actions under load: nothing broke, and the service answers")


def in_force(history: History) -> Settings:
    assert history.in_force is not None
    return history.in_force.settings
