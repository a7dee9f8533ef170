from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from gui.control.clocks import FrameClock, FrameMeter


class Canvas(QWidget):
    """Takes its time to paint."""

    def __init__(self, paint_s: float) -> None:
        super().__init__()
        self.paint_s = paint_s
        self.painted = 0

    def paintEvent(self, _: QPaintEvent) -> None:
        self.painted += 1
        time.sleep(self.paint_s)


@pytest.fixture
def clock() -> Iterator[Callable[[QWidget, FrameMeter], FrameClock]]:
    clocks: list[FrameClock] = []

    def make(canvas: QWidget, meter: FrameMeter) -> FrameClock:
        clocks.append(FrameClock(canvas.update, meter))
        return clocks[-1]

    yield make
    for made in clocks:
        made.stop()
        made.deleteLater()


def test_that_painting_counts_into_the_frame(qtbot: QtBot, clock: Callable[[QWidget, FrameMeter], FrameClock]) -> None:
    canvas, meter = Canvas(paint_s=0.02), FrameMeter()
    qtbot.addWidget(canvas)
    canvas.show()
    qtbot.waitExposed(canvas)

    clock(canvas, meter).start()
    qtbot.waitUntil(lambda: meter.times().count >= 10)

    p50_ms = meter.times().p50_ms
    assert p50_ms is not None
    assert p50_ms >= 20


def test_that_a_stall_counts_for_every_frame_that_was_due_in_it(
    qtbot: QtBot, clock: Callable[[QWidget, FrameMeter], FrameClock]
) -> None:
    canvas, meter = Canvas(paint_s=0), FrameMeter()
    qtbot.addWidget(canvas)
    slow: list[float] = []
    record = meter.record
    meter.record = lambda ms: (slow.append(ms) if ms > 30 else None, record(ms))[1]  # type: ignore[method-assign]

    clock(canvas, meter).start()
    QTimer.singleShot(100, lambda: time.sleep(0.3))
    qtbot.waitUntil(lambda: meter.times().count >= 25)

    assert len(slow) >= 6
    assert max(slow) >= 250


def test_that_a_stopped_clock_paints_nothing(qtbot: QtBot, clock: Callable[[QWidget, FrameMeter], FrameClock]) -> None:
    meter = FrameMeter()
    canvas = Canvas(0)
    qtbot.addWidget(canvas)
    frames = clock(canvas, meter)
    frames.start()
    qtbot.waitUntil(lambda: meter.times().count >= 2)

    frames.stop()
    before = meter.times().count
    qtbot.wait(100)

    assert meter.times().count == before


def test_that_a_frame_that_fails_is_not_the_last(qtbot: QtBot) -> None:
    frames: list[int] = []

    def paint() -> None:
        frames.append(len(frames))
        if len(frames) == 2:
            raise ValueError("the second frame")

    clock = FrameClock(paint, FrameMeter())
    with qtbot.captureExceptions() as raised:
        clock.start()
        qtbot.waitUntil(lambda: len(frames) > 3)
    clock.stop()
    clock.deleteLater()
    assert [str(error) for _, error, _ in raised] == ["the second frame"]
