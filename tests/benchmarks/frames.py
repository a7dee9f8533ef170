"""How long the window's frames take with so many requests in the timeline while the stream goes on.

python -m tests.benchmarks.frames [requests [seconds [live | distributions]]]

A made-up run fills the last minute; then its next frames, as the service and the load process would spell them, come 20
times a second into the real window, which decodes and draws them, offscreen. Every frame counts from when it was due.
Where other programs keep the processors busy, the time that the window's thread worked between two frames tells more.
"""

from __future__ import annotations

import os
import sys
import time

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import msgspec
from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtWidgets import QApplication

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.control.clocks import FrameMeter, FrameTimes
from gui.session.clients.telemetry import TelemetryClient
from gui.session.lifecycle import LifeCycle
from gui.session.processes.load import LoadProcess
from service.analysis.observed.history import History
from service.messages.heap import set_heap_aside
from service.messages.load import LoadFrame
from service.messages.settings import Settings
from service.messages.telemetry import TelemetryFrame
from tests.synthetic_run import FRAME_S, Step, SyntheticRun

WINDOW_S = 60.0
SIZE = (1440, 900)
WARM_UP_S = 3.0
BATCH = 48
STEPS = 32
SPREAD = 8

Line = tuple[bytes, bytes]  # a frame of telemetry and one of the load


class Work:
    """How long the window's thread worked from the end of one frame to the end of the next."""

    def __init__(self, batchscope: Batchscope) -> None:
        self._last_s = time.thread_time()
        self.meter = FrameMeter()
        batchscope.composition.frame_clock.painted.connect(self._on_painted)

    def _on_painted(self) -> None:
        now_s = time.thread_time()
        self.meter.record((now_s - self._last_s) * 1e3)
        self._last_s = now_s


class Feed(QObject):
    """Hands on what has come by now, as the clients of the window would."""

    def __init__(self, batchscope: Batchscope, lines: list[Line]) -> None:
        super().__init__(batchscope)
        self._telemetry_client = batchscope.composition.session.findChild(TelemetryClient)
        self._load_process = batchscope.composition.findChild(LoadProcess)
        self._lines = lines
        self._next = 0
        self._begun_s = time.monotonic()
        self._telemetry = msgspec.json.Decoder(TelemetryFrame)
        self._load = msgspec.json.Decoder(LoadFrame)
        self._timer = QTimer(self, interval=round(FRAME_S * 1e3), timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_due)
        self._timer.start()

    def _on_due(self) -> None:
        due = int((time.monotonic() - self._begun_s) / FRAME_S)
        for telemetry, load in self._lines[self._next : due]:
            self._telemetry_client.frame_received.emit(self._telemetry.decode(telemetry))
            self._load_process.frame_received.emit(self._load.decode(load))
        self._next = max(self._next, due)


def busy_run(requests: int, seconds: float) -> SyntheticRun:
    """So many requests a minute, in batches that keep up with them, and a change of settings in the midst."""
    rate = requests / WINDOW_S
    step_s = 0.8 * BATCH / rate / STEPS
    settings = Settings(max_batch_size=64, max_queued_requests=4096)
    changed = Step(WINDOW_S / 2, settings=settings.revised({"max_batch_size": 63}))
    return SyntheticRun(
        WINDOW_S + seconds,
        (Step(0.0, rate, settings), changed),
        tokens=STEPS - SPREAD,
        tokens_spread=SPREAD,
        step_s=step_s / 2,
        per_request_s=step_s / 2 / BATCH,
    )


def tell_past(history: History, run: SyntheticRun) -> list[Line]:
    """Let the history hear of the first minute, and its clock stand there now; returns what is yet to come."""
    coming = []
    for telemetry, load in run.frames():
        if telemetry.at_s > run.start_s + WINDOW_S:
            coming.append((msgspec.json.encode(telemetry), msgspec.json.encode(load)))
        else:
            history._clock = lambda at_s=telemetry.at_s: at_s
            history.add_telemetry(telemetry)
            history.add_load(load)
    shift_s = time.monotonic() - run.start_s - WINDOW_S
    history._clock = lambda: time.monotonic() - shift_s
    return coming


def measure(batchscope: Batchscope, run: SyntheticRun, seconds: float, view: str) -> None:
    """Feed the window, measure once it has warmed up, say what came of it and close the window."""
    composition, window = batchscope.composition, batchscope.window
    coming = tell_past(composition.history, run)
    window.views.show_view(view)
    window.notice.clear()
    window.show_life_cycle(LifeCycle.RUNNING, has_data=True)
    set_heap_aside()
    Feed(batchscope, coming)
    work = Work(batchscope)

    def start() -> None:
        for meter in (composition.meter, work.meter):
            meter.reset()

    def end() -> None:
        now_s = composition.history.now_s()
        columns = composition.history.requests.columns
        in_view = int((columns["received"] > now_s - WINDOW_S).sum())
        print(f"{view}, {in_view:,} requests in view")
        print(f"frames {formatted(composition.meter.times())}")
        print(f"work   {formatted(work.meter.times())}")
        batchscope.close()

    QTimer.singleShot(round(WARM_UP_S * 1e3), start)
    QTimer.singleShot(round((WARM_UP_S + seconds) * 1e3), end)


def formatted(times: FrameTimes) -> str:
    return f"{times.count:5}   p50 {times.p50_ms} ms   p99 {times.p99_ms} ms   max {times.max_ms} ms"


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    view = sys.argv[3] if len(sys.argv) > 3 else "live"
    run = busy_run(requests, seconds + 2 * WARM_UP_S)
    app = QApplication([])
    app.setQuitOnLastWindowClosed(False)
    batchscope = Batchscope(app, Arguments(theme="dark"))
    batchscope.window.resize(*SIZE)
    batchscope.completed.connect(lambda: measure(batchscope, run, seconds, view))
    batchscope.closed.connect(app.quit)
    batchscope.show()
    app.exec()


if __name__ == "__main__":
    main()
