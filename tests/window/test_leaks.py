"""Opening, using and closing windows leaves the process as it was."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable

import psutil
import pytest
import shiboken6
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.session.lifecycle import LifeCycle
from service.messages.load import Poisson
from tests.window.children import scripted
from tests.window.conftest import start_service
from tests.window.test_app import children, kill_service

HOUR_S = 3600.0
RATE_PER_S = 50.0
MOST_GROWTH_BYTES = 10_000_000


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


@pytest.mark.parametrize("times", [5, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
@pytest.mark.promise("T22")
def test_that_restarting_many_times_leaves_nothing_behind(
    qtbot: QtBot, qapp: QApplication, batchscope: Batchscope, times: int
) -> None:
    after_first: tuple[int, ...] = ()
    for _ in range(times):
        start_service(qtbot, batchscope)
        kill_service(batchscope)
        qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.FAILED)
        after_first = after_first or held(qapp)
    qtbot.waitUntil(lambda: all(now <= before for now, before in zip(held(qapp), after_first, strict=True)))
    assert sum("killed by signal 9" in error for error in batchscope.errors) == times
    with qtbot.waitSignal(batchscope.closed):
        batchscope.close()
    assert children() == []


@pytest.mark.long
@pytest.mark.timeout(2 * HOUR_S)
@pytest.mark.promise("T22")
def test_that_an_hour_under_load_leaves_the_window_as_large_as_after_half_of_it(
    qtbot: QtBot, running: Batchscope, record_property: Callable[[str, object], None]
) -> None:
    running.window.load.set_load(Poisson(rate_per_s=RATE_PER_S), 4)
    running.window.load.toggle()
    own, begun_s = psutil.Process(), time.monotonic()
    held_bytes = []
    for share in (0.5, 1.0):
        qtbot.waitUntil(lambda s=share: time.monotonic() - begun_s > s * HOUR_S, timeout=round(HOUR_S * 1e3))
        held_bytes.append(own.memory_info().rss)
    asked, grown_bytes = running.composition.session.requests_seen, held_bytes[1] - held_bytes[0]
    shown = f"a window for {HOUR_S / 60:.0f} minutes: {asked:,} requests"
    record_property("T22", f"{shown}, {grown_bytes / 1e6:+.1f} MB in half of them")
    assert asked > 0.9 * RATE_PER_S * HOUR_S
    assert running.errors == []
    assert grown_bytes <= MOST_GROWTH_BYTES
