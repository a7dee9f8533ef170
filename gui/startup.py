"""Runs the program: the application, its window, and what happens on signals and on errors."""

from __future__ import annotations

import gc
import signal
import sys
from types import FrameType

from PySide6.QtWidgets import QApplication

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.control.bugs import Bugs, FailedStart
from gui.control.preferences import PreferencesFile, default_path
from gui.demo.run import Demo


def run(arguments: Arguments) -> int:
    """Open the window and stay until it is closed; the exit code of the program."""
    app = QApplication([])
    app.setApplicationName("Batchscope")
    app.setQuitOnLastWindowClosed(False)
    is_demo = arguments.demo_s is not None
    failed_start = FailedStart(app.exit, is_attended=not is_demo)
    sys.excepthook = failed_start.report
    batchscope = Batchscope(app, arguments, None if is_demo else PreferencesFile(default_path()))
    batchscope.closed.connect(app.quit)
    batchscope.completed.connect(spare_what_stays)
    _close_on_signals(batchscope)
    bugs = Bugs(batchscope.complain)
    batchscope.completed.connect(lambda: setattr(sys, "excepthook", bugs.report))
    batchscope.show()
    if is_demo:
        demo = Demo(batchscope, arguments)
        app.exec()
        return demo.exit_code
    return app.exec() or failed_start.exit_code


def spare_what_stays() -> None:
    """Let garbage collections pass over all that has been made by now: else one takes as long as two frames."""
    gc.collect()
    gc.freeze()


def _close_on_signals(batchscope: Batchscope) -> None:
    """Ctrl-C and a polite kill close the window as its button does; the frame clock lets Python see them."""

    def close(_number: int, _frame: FrameType | None) -> None:
        batchscope.close()

    signal.signal(signal.SIGINT, close)
    signal.signal(signal.SIGTERM, close)
