"""What every test of the window has: no screen, and nothing left behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from functools import partialmethod
from typing import Final

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.control.preferences import PreferencesFile
from gui.look.theme import Preference, Theme
from gui.session.lifecycle import LifeCycle
from gui.session.processes.service import ServiceStart
from service.analysis.findings.ranking import prepare
from tests.window.children import scripted

LONGEST_WAIT_MS: Final = 120_000
"""A wait ends with its event; this only ends a test that would wait for ever, on a busy machine too."""


@pytest.fixture(autouse=True)
def waits_end_with_their_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives every wait of pytest-qt that names no limit the same long one."""
    for name in ("waitUntil", "waitSignal", "waitSignals"):
        monkeypatch.setattr(QtBot, name, partialmethod(getattr(QtBot, name), timeout=LONGEST_WAIT_MS))


@pytest.fixture(autouse=True, scope="session")
def scipy_is_imported() -> None:
    """The window imports it in a thread, which would outlive the first test's window on a busy machine."""
    prepare()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(qapp: QApplication) -> Iterator[None]:
    """Fails a test that leaves a window, a running timer or a thread; releases the keys that it still holds down."""
    widgets = set(map(id, qapp.topLevelWidgets()))
    timers = set(map(id, active_timers()))
    threads = set(threading.enumerate())
    yield
    if qapp.keyboardModifiers():  # QTest leaves the modifiers of its last click held down
        QTest.keyClick(QWidget(), Qt.Key.Key_Escape)
    qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    qapp.processEvents()
    left = [widget for widget in qapp.topLevelWidgets() if id(widget) not in widgets and not _is_qt_s_own(widget)]
    assert not left, f"widgets left behind: {left}"
    running = [timer for timer in active_timers() if id(timer) not in timers]
    assert not running, f"timers left running: {running}"
    assert not set(threading.enumerate()) - threads, "threads left behind"


def active_timers() -> list[QTimer]:
    """All running timers of Python, whatever owns them."""
    import shiboken6

    timers = [thing for thing in gc.get_objects() if type(thing) is QTimer]
    return [timer for timer in timers if shiboken6.isValid(timer) and timer.isActive()]


def _is_qt_s_own(thing: QObject) -> bool:
    return not isinstance(thing, QWidget) or type(thing).__module__.startswith("PySide6")


@pytest.fixture(scope="session")
def theme(qapp: QApplication) -> Theme:
    """The window's fonts and style sheet, dark; offscreen there is no system to follow."""
    return Theme(qapp, "dark")


Wear = Callable[[Preference], None]


@pytest.fixture
def wear(theme: Theme) -> Iterator[Wear]:
    """Lets everything wear another theme, until the test ends."""
    yield theme.set_preference
    theme.set_preference("dark")


MakeBatchscope = Callable[..., Batchscope]


@pytest.fixture
def make_batchscope(qtbot: QtBot, qapp: QApplication) -> Iterator[MakeBatchscope]:
    """Opens the real window on a scripted service; it is closed, with all that it started, when the test is over."""
    opened: list[Batchscope] = []

    def make(
        start: ServiceStart | None = None,
        arguments: Arguments = Arguments(theme="dark"),  # noqa: B008  frozen
        preferences: PreferencesFile | None = None,
    ) -> Batchscope:
        batchscope = Batchscope(qapp, arguments, preferences, start or scripted())
        opened.append(batchscope)
        with qtbot.waitSignal(batchscope.completed):
            batchscope.show()
        return batchscope

    yield make
    for batchscope in opened:
        if batchscope.is_complete:
            with qtbot.waitSignal(batchscope.closed):
                batchscope.close()
        batchscope.window.deleteLater()
        batchscope.deleteLater()


@pytest.fixture
def batchscope(make_batchscope: MakeBatchscope) -> Batchscope:
    """The window, nothing started."""
    return make_batchscope()


@pytest.fixture
def running(qtbot: QtBot, batchscope: Batchscope) -> Batchscope:
    """The window with a service that answers."""
    start_service(qtbot, batchscope)
    return batchscope


def start_service(qtbot: QtBot, batchscope: Batchscope) -> None:
    """Press Start, and wait until the service runs and its settings are known."""
    batchscope.window.toolbar.step_wanted.emit("start")
    session, history = batchscope.composition.session, batchscope.composition.history
    qtbot.waitUntil(lambda: session.state is LifeCycle.RUNNING and history.in_force is not None)
