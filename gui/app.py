"""The composition root: first the window, and after its first frame everything behind it (`gui.composition`)."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QApplication

from gui.control.arguments import Arguments
from gui.control.choices import Choices
from gui.control.preferences import Preferences, PreferencesFile
from gui.look.theme import Theme
from gui.main_window import MainWindow
from gui.session.processes.service import ServiceStart
from gui.widgets.layouts import box, column
from service.messages.files import NotWrittenError

if TYPE_CHECKING:
    from gui.composition import Composition


class Batchscope(QObject):
    """The program behind one window.

    Attributes:
        errors: every error that the window has shown.
        window_after_s: from the creation of the process to the first painted frame.
        composition: exists from `completed` on.
    """

    completed = Signal()  # the plots are in their place and the clocks run
    closed = Signal()  # the window is closed and no child process runs

    composition: Composition

    def __init__(
        self,
        app: QApplication,
        arguments: Arguments,
        preferences_file: PreferencesFile | None = None,
        service_start: ServiceStart | None = None,
    ) -> None:
        """Without `preferences_file` nothing is remembered; `service_start` is run instead of the real service."""
        super().__init__()
        self._service_start = service_start or ServiceStart(port=arguments.port, extra=arguments.service)
        self._preferences_file = preferences_file
        self._file = arguments.file
        self._attaches = arguments.attachment is not None and arguments.demo_s is None  # a demo does so itself
        self.errors: list[str] = []
        self.window_after_s: float | None = None
        self.is_complete = False
        self._is_leaving = False
        preferences = preferences_file.load() if preferences_file else Preferences()
        self.theme = Theme(app, arguments.theme or preferences.theme, self)
        self._layout = column()  # the plots need libraries that are loaded after the first frame
        self.window = MainWindow(box(self._layout), self.theme)
        self.choices = Choices(self.window, self.theme, arguments, preferences)
        self.window.notice.show_empty(*self.choices.invitation)
        self.window.installEventFilter(self)
        self.window.first_shown.connect(self._on_first_shown)

    def show(self) -> None:
        self.window.show()

    def close(self) -> None:
        """Close the window; `closed` follows when all processes have ended. A second call kills them."""
        self.window.close()

    def complain(self, sentence: str) -> None:
        """Show an error that belongs to no panel."""
        if self.is_complete:
            self.composition.complain(sentence)
        else:
            self._on_complained(sentence)

    def _on_complained(self, sentence: str) -> None:
        self.errors.append(sentence)
        with suppress(OSError):  # a full disk may be what the sentence is about
            print(f"batchscope: {sentence}", file=sys.stderr)  # the window may be about to close

    def _on_first_shown(self) -> None:
        self.window_after_s = process_age_s()
        QTimer.singleShot(0, self, self._complete)

    def _complete(self) -> None:
        from gui.composition import Composition

        self.composition = Composition(self.window, self.choices, self._service_start)
        self.composition.complained.connect(self._on_complained)
        self.composition.came_to_rest.connect(self._on_came_to_rest)
        self._layout.addWidget(self.composition.plots)
        if self._attaches:
            self.composition.start_service()
        if self._file is not None:
            self.composition.open(self._file)
        self.composition.frame_clock.start()
        self.is_complete = True
        if self._preferences_file and self._preferences_file.complaint:
            self.complain(self._preferences_file.complaint)
        self.completed.emit()

    # Its end ---------------------------------------------------------------------------------------------------------

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Keep the window open until its processes and exports have ended."""
        if watched is self.window and event.type() == QEvent.Type.Close:
            self._leave()
            if self.is_complete and not self.composition.is_at_rest:
                event.ignore()
                return True
            self._end()
        return super().eventFilter(watched, event)

    def _leave(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            if self.is_complete:
                self.composition.show_me.end()  # the settings that are kept are the user's
                self.composition.lessons.end()
            self._save()
            if self.is_complete:
                self.composition.leave()
        elif self.is_complete:
            self.composition.leave_at_once()

    def _end(self) -> None:
        if self.is_complete:
            self.is_complete = False
            self.composition.finish()
        self.closed.emit()

    def _on_came_to_rest(self) -> None:
        if self._is_leaving:
            QTimer.singleShot(0, self, self._close_again)

    def _close_again(self) -> None:
        if self.is_complete:
            self.window.close()

    def _save(self) -> None:
        if self._preferences_file is None:
            return
        try:
            self._preferences_file.save(self.choices.preferences())
        except NotWrittenError as error:
            self.complain(str(error))


def process_age_s() -> float:
    """Seconds since this process was created."""
    if sys.platform.startswith("linux"):
        # psutil adds the time of boot, which Linux reports in whole seconds.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - psutil.Process().create_time()  # type: ignore[unreachable]  # mypy reads this file for Linux only
