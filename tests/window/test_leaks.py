"""Opening, using and closing windows leaves the process as it was."""

from __future__ import annotations

import gc
import os
import threading

import pytest
import shiboken6
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control.arguments import Arguments
from tests.window.children import scripted
from tests.window.conftest import start_service


def use_and_close(qtbot: QtBot, qapp: QApplication) -> None:
    batchscope = Batchscope(qapp, Arguments(theme="dark"), service_start=scripted())
    with qtbot.waitSignal(batchscope.completed):
        batchscope.show()
    try:
        start_service(qtbot, batchscope)
        batchscope.window.prompts.fire()
        load = batchscope.composition.history
        qtbot.waitUntil(lambda: load.load is not None and load.load.totals.ok > 10)
    finally:  # what this test leaves, every test after it would be blamed for
        with qtbot.waitSignal(batchscope.closed):
            batchscope.close()
        batchscope.window.deleteLater()
        batchscope.deleteLater()


def held(qapp: QApplication) -> tuple[int, int, int]:
    """Objects of Qt, open files and threads."""
    for _ in range(3):
        qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        qapp.processEvents()
        gc.collect()
    objects = [thing for thing in gc.get_objects() if issubclass(type(thing), QObject) and shiboken6.isValid(thing)]
    return len(objects), len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.promise("T22")
def test_that_windows_leave_no_objects_files_or_threads(qtbot: QtBot, qapp: QApplication) -> None:
    use_and_close(qtbot, qapp)
    after_first = held(qapp)

    for _ in range(3):
        use_and_close(qtbot, qapp)

    objects, files, threads = held(qapp)
    assert objects <= after_first[0]
    assert files <= after_first[1]
    assert threads <= after_first[2]
