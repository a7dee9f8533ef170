"""What every test of the window needs: Qt without a screen, one theme, and nothing left behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QThread, QTimer
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

from gui.theme import Theme


@pytest.fixture(scope="session")
def theme(qapp: QApplication) -> Theme:
    """The window's fonts and style sheet, dark; offscreen there is no system to follow."""
    return Theme(qapp, "dark")


@pytest.fixture(autouse=True)
def nothing_is_left(qapp: QApplication) -> Iterator[None]:
    """No top-level widget, no running timer and no thread outlives its test."""
    widgets, threads = set(map(id, qapp.topLevelWidgets())), set(threading.enumerate())
    yield
    _let_go()
    assert [w for w in qapp.topLevelWidgets() if id(w) not in widgets and not _is_qts_own(w)] == []
    assert [t for t in threading.enumerate() if t not in threads and t.is_alive() and not t.daemon] == []
    assert [timer for timer in _live(QTimer) if timer.isActive()] == []
    assert [thread for thread in _live(QThread) if thread.isRunning() and thread is not qapp.thread()] == []


def _let_go() -> None:
    for _ in range(3):
        gc.collect()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
        QCoreApplication.processEvents()


def _live(kind: type) -> list:  # type: ignore[type-arg]
    return [each for each in gc.get_objects() if isinstance(each, kind) and isValid(each)]


def _is_qts_own(widget: QWidget) -> bool:
    return widget.metaObject().className() in ("QTipLabel", "QComboBoxPrivateContainer")
