"""Records the events of the history, from now on or of the last minutes, where the user chooses."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from PySide6.QtCore import QObject, Signal

from gui.main_window import MainWindow
from gui.recordings.file import RecordingFile
from gui.session.session import Session
from gui.widgets.dialogs import ask_where_to_save
from service.analysis.recording.format import SUFFIX, RecordingHeader, program_version
from service.messages.clock import monotonic_clock_id
from service.messages.text import format_duration

FILTER: Final = f"Recordings (*{SUFFIX})"


class Recorder(QObject):
    """Asks for a path, drives the `RecordingFile`, and shows how long it has recorded.

    Signals:
        failed: a sentence that says why something could not be recorded.
        written: the path of a complete recording.
    """

    failed = Signal(str)
    written = Signal(str)

    def __init__(self, window: MainWindow, session: Session) -> None:
        super().__init__(window)
        self._window = window
        self._session = session
        self.file = RecordingFile(self)
        toolbar, file = self._window.toolbar, self.file
        toolbar.record_wanted.connect(self.record_or_stop)
        toolbar.save_wanted.connect(self.ask_where_to_save)
        self._window.status.recording_clicked.connect(self.record_or_stop)
        self._session.heard.connect(file.take)
        file.ended.connect(self.written)
        for sentence in (file.failed, file.not_saved, file.fell_behind):
            sentence.connect(self.failed)

    def record_or_stop(self) -> None:
        """Ask where to record, or end the running recording."""
        if self.file.is_recording:
            self.file.stop()
            self.show_state()
        else:
            self._ask_where("Record to a file", self.record)

    def record(self, path: Path) -> None:
        """Record every event from now on; an existing file is replaced."""
        self.file.start(path, self._header())
        self.show_state()

    def ask_where_to_save(self) -> None:
        """Let the user save the last minutes."""
        if self.file.has_heard:
            self._ask_where("Save the last ten minutes", self.save)
        else:
            self._window.status.set_activity("There is nothing to save yet: no service has run")

    def save(self, path: Path) -> None:
        """Write the events of the last ten minutes; an existing file is replaced."""
        self.file.save(path, self._header())

    def show_state(self) -> None:
        """Show how long it has recorded."""
        is_recording = self.file.is_recording
        self._window.toolbar.set_recording(is_recording)
        self._window.status.set_recording(f"Recording {format_duration(self.file.lasted_s)}" if is_recording else None)

    def finish(self) -> None:
        """End the running recording; returns when it is written."""
        self.file.finish()

    def _ask_where(self, title: str, write: Callable[[Path], None]) -> None:
        ask_where_to_save(self._window, title, "batchscope", SUFFIX.removeprefix("."), FILTER, write)

    def _header(self) -> RecordingHeader:
        ready = self._session.ready
        return RecordingHeader(
            at_s=time.monotonic(),
            clock=monotonic_clock_id(),
            recorded_at=time.time(),
            program_version=program_version(),
            url=ready.url if ready else None,
            model=ready.model if ready else None,
            device=ready.device if ready else None,
            dtype=ready.dtype if ready else None,
        )
