"""Reports unexpected errors: Qt swallows exceptions that a slot or a paint event raises."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from PySide6.QtWidgets import QMessageBox

Place: TypeAlias = tuple[type[BaseException], str, int]

UNSEEN: Final = ("offscreen", "minimal")  # Qt's platforms without a screen
SIGNALS_EVERY_MS: Final = 100


class Bugs:
    """Reports an error once for each place that raises it, then counts: painting may fail thirty times a second.

    `report` has the signature of `sys.excepthook`.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._counts: Counter[Place] = Counter()

    def report(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        place = _place(kind, trace)
        self._counts[place] += 1
        count = self._counts[place]
        if count == 1:
            traceback.print_exception(kind, error, trace)
            self._complain(f"Something in the window went wrong: {_in_words(error)}")
        elif str(count).strip("0") == "1":  # a power of ten
            print(f"batchscope: {count:,} times by now: {_in_words(error)}", file=sys.stderr)


class FailedStart:
    """Ends the program with exit code 1 and a message if the window cannot be completed.

    Attributes:
        exit_code: 1 once it has failed.
    """

    def __init__(self, exit_with: Callable[[int], None], is_attended: bool) -> None:
        self.exit_code = 0
        self._exit_with = exit_with
        self._is_attended = is_attended

    def report(self, _kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        if not self.exit_code:  # what fails later fails because of this
            self.exit_code = 1
            report_failed_start(error, self._is_attended)
            self._exit_with(1)


def report_failed_start(error: BaseException, is_attended: bool) -> None:
    """Report a failed start on standard error, and in a message box if Qt has a screen and a user."""
    traceback.print_exception(error)
    print(f"batchscope: The window could not be opened: {_in_words(error)}", file=sys.stderr)
    if is_attended and _has_screen():
        failure_box(error).exec()


def failure_box(error: BaseException) -> QMessageBox:
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QMessageBox

    box = QMessageBox(QMessageBox.Icon.Critical, "Batchscope", "The window could not be opened.")
    box.setInformativeText(_in_words(error))
    box.setDetailedText("".join(traceback.format_exception(error)))
    alive = QTimer(box)
    alive.timeout.connect(lambda: None)  # Python sees signals only when it runs
    alive.start(SIGNALS_EVERY_MS)
    return box


def _has_screen() -> bool:
    if "PySide6.QtWidgets" not in sys.modules:
        return False
    from PySide6.QtWidgets import QApplication

    return isinstance(QApplication.instance(), QApplication) and QApplication.platformName() not in UNSEEN


def _place(kind: type[BaseException], trace: TracebackType | None) -> Place:
    """Type, file and line of an error, without its message."""
    frames = list(traceback.walk_tb(trace))
    return (kind, frames[-1][0].f_code.co_filename, frames[-1][1]) if frames else (kind, "", 0)


def _in_words(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()
