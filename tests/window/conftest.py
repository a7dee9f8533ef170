"""What every test of the window has: no screen, and nothing left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtWidgets import QApplication, QWidget


@pytest.fixture(autouse=True)
def nothing_is_left_behind(qapp: QApplication) -> Iterator[None]:
    """Fails a test that leaves a window, a running timer or a thread."""
    widgets = set(map(id, qapp.topLevelWidgets()))
    threads = set(threading.enumerate())
    yield
    qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    qapp.processEvents()
    left = [widget for widget in qapp.topLevelWidgets() if id(widget) not in widgets and not _is_qt_s_own(widget)]
    assert not left, f"widgets left behind: {left}"
    timers = [timer for timer in qapp.findChildren(QTimer) if timer.isActive()]
    assert not timers, f"timers left running: {timers}"
    assert not set(threading.enumerate()) - threads, "threads left behind"


def _is_qt_s_own(thing: QObject) -> bool:
    return not isinstance(thing, QWidget) or type(thing).__module__.startswith("PySide6")
