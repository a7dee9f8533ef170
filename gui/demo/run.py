"""The script of a demo: start, load, move a slider half-way, take a picture, stop, report.

The script acts as a user does: with the load panel's button, the slider's keys, and the same processes. The settings of
a service that ran before are left alone, and where it takes no requests it is only looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.control.exporter import png
from gui.demo.report import Measurements
from gui.session.lifecycle import LifeCycle
from gui.widgets.setting import Setting
from service.messages.files import NotWrittenError, write_whole
from service.messages.load import LoadFrame, Poisson
from service.messages.telemetry import TelemetryFrame

LOAD: Final = Poisson(rate_per_s=4.0)
MAX_TOKENS: Final = 24
SLIDER: Final = "max_batch_size"
HALVE: Final = Qt.Key.Key_PageDown
DOUBLE: Final = Qt.Key.Key_PageUp
TIMES: Final = 2  # 16 → 4 before the start, and back half-way: a queue that grows, then drains
WINDOWS_S: Final = (30.0, 60.0, 300.0, 600.0)
LONGEST_START_MS: Final = 15 * 60_000
LONGEST_DRAIN_MS: Final = 5 * 60_000


class Demo(QObject):
    """Waits for the window to be complete, runs the script, and closes the window.

    Attributes:
        exit_code: 0 only if every request was answered and no error was shown.
    """

    def __init__(self, batchscope: Batchscope, arguments: Arguments) -> None:
        super().__init__(batchscope)
        assert arguments.demo_s is not None
        self.exit_code = 1
        self._app = batchscope
        self._demo_s = arguments.demo_s
        self._report, self._screenshot = arguments.report, arguments.screenshot
        self._measured = Measurements()
        self._started_s = 0.0
        self._is_under_load = False
        self._is_draining = False
        self._is_over = False
        self._limit = self._timer(self._on_limit)
        self._moves = arguments.attachment is None
        self._half_way = self._timer(lambda: self._move_slider(DOUBLE))
        self._end = self._timer(self._end_load)
        self._limit.start(LONGEST_START_MS)
        batchscope.completed.connect(self._start)
        batchscope.closed.connect(self._on_closed)

    def _timer(self, slot: Callable[[], None]) -> QTimer:
        timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        timer.timeout.connect(slot)
        return timer

    # The script ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        session = self._app.composition.session
        session.life_cycle_changed.connect(self._on_life_cycle_changed)
        session.died.connect(self._finish)
        session.load_changed.connect(self._on_load_changed)
        session.telemetry_came.connect(self._on_telemetry_came)
        self._app.composition.look_at(next((s for s in WINDOWS_S if s >= self._demo_s), WINDOWS_S[-1]))
        self._move_slider(HALVE)
        self._started_s = time.monotonic()
        self._app.composition.start_service()

    def _on_life_cycle_changed(self, state: LifeCycle) -> None:
        if state is LifeCycle.RUNNING:
            self._measured.ready = self._app.composition.session.ready
            self._measured.ready_after_s = time.monotonic() - self._started_s
            self._limit.start(round(self._demo_s * 1e3) + LONGEST_DRAIN_MS)
            self._app.composition.meter.reset()
            if self._is_closed:
                self._end.start(round(self._demo_s * 1e3))
            else:
                self._app.window.load.set_load(LOAD, MAX_TOKENS)
                self._app.window.load.toggle()

    def _move_slider(self, key: Qt.Key) -> None:
        if not self._moves:
            return
        setting = self._app.window.batching.control(SLIDER)
        assert isinstance(setting, Setting)
        assert setting.slider is not None
        for kind in TIMES * (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
            QApplication.sendEvent(setting.slider, QKeyEvent(kind, key, Qt.KeyboardModifier.NoModifier))

    def _end_load(self) -> None:
        if self._is_over:
            return
        # Frames count up to here: to draw the picture is the demo's doing, not the window's.
        self._measured.frames = self._app.composition.meter.times()
        if self._screenshot is not None:
            self._write(self._screenshot, png(self._app.window.grab().toImage()))
        self._is_draining = True
        if self._is_closed:
            self._finish()
        else:
            self._app.window.load.toggle()

    @property
    def _is_closed(self) -> bool:
        return self._measured.ready is not None and bool(self._measured.ready.closed)

    def _on_limit(self) -> None:
        self._app.complain("The demo waited too long and gave up.")
        self._finish()

    def _finish(self) -> None:
        """Stop everything; the report follows when all has stopped."""
        if not self._is_over:
            self._is_over = True
            self._limit.stop()
            self._app.close()

    def _on_closed(self) -> None:
        self._measured.window_after_s = self._app.window_after_s
        report = self._measured.report()
        if self._report is not None:
            self._write(self._report, report.as_json())
        is_done = self._is_closed or (report.requests.sent > 0 and report.requests.failed == 0)
        self.exit_code = 0 if is_done and not self._app.errors else 1

    def _write(self, path: Path, content: bytes) -> None:
        try:
            write_whole(path, content)
        except NotWrittenError as error:
            self._app.complain(str(error))

    # What it measures ------------------------------------------------------------------------------------------------

    def _on_load_changed(self, frame: LoadFrame) -> None:
        self._measured.totals = frame.totals
        self._measured.add_requests(frame.requests)
        if frame.pattern is not None and not self._is_under_load:
            # The load's time starts with the generator's first frame, without the start of its process.
            self._is_under_load = True
            self._half_way.start(round(self._demo_s / 2 * 1e3))
            self._end.start(round(self._demo_s * 1e3))
        is_drained = self._is_draining and frame.pattern is None and not frame.totals.outstanding
        if is_drained and not self._is_over:
            if not frame.totals.sent:  # arrivals are random: the first may be due later
                self._app.complain(f"No request was due within the demo's {self._demo_s:g} s: run it for longer.")
            self._finish()

    def _on_telemetry_came(self, frame: TelemetryFrame) -> None:
        self._measured.add_batches(frame.batches)
        self._measured.add_changes(frame.changes)
