"""Runs the program: the application, its window, and what happens on signals and on errors."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from PySide6.QtWidgets import QApplication

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.control.bugs import Bugs, FailedStart
from gui.control.desktop_entry import NAME
from gui.control.preferences import PreferencesFile, default_path
from gui.demo.run import Demo
from service.messages.heap import set_heap_aside


def run(arguments: Arguments) -> int:
    """Open the window and run until it is closed; returns the exit code of the program."""
    app = QApplication([])
    app.setApplicationName("Batchscope")
    app.setDesktopFileName(NAME)
    app.setQuitOnLastWindowClosed(False)
    is_demo = arguments.demo_s is not None
    failed_start = FailedStart(app.exit, is_attended=not is_demo)
    sys.excepthook = failed_start.report
    batchscope = Batchscope(app, arguments, None if is_demo else PreferencesFile(default_path()))
    batchscope.closed.connect(app.quit)
    batchscope.completed.connect(set_heap_aside)
    _close_on_signals(batchscope)
    bugs = Bugs(batchscope.complain)
    batchscope.completed.connect(lambda: setattr(sys, "excepthook", bugs.report))
    batchscope.show()
    if is_demo:
        demo = Demo(batchscope, arguments)
        app.exec()
        return demo.exit_code
    return app.exec() or failed_start.exit_code


def _close_on_signals(batchscope: Batchscope) -> None:
    """Close the window on SIGINT and SIGTERM; the frame clock lets Python notice them."""

    def close(_number: int, _frame: FrameType | None) -> None:
        batchscope.close()

    signal.signal(signal.SIGINT, close)
    signal.signal(signal.SIGTERM, close)
