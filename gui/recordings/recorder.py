"""Records the events of the history, from now on or of the last minutes, where the user chooses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Final, TypeAlias

from PySide6.QtCore import QObject, Signal

from gui.main_window import MainWindow
from gui.session.session import Session
from gui.widgets.dialogs import ask_where_to_save
from service.analysis.recording.format import MEMBER_S, SUFFIX, RecordedEvent, RecordingError, RecordingHeader
from service.analysis.recording.writer import RecordingBuffer, RecordingWriter
from service.messages.clock import monotonic_clock_id
from service.messages.files import NotWrittenError
from service.messages.installation import VERSION
from service.messages.text import format_duration

FILTER: Final = f"Recordings (*{SUFFIX})"
MOST_WAITING: Final = 20_000  # events; beyond them a disk that stands still leaves a gap
DRAIN_TIMEOUT_S: Final = 5.0  # for a disk that stands still, when the window closes
Job: TypeAlias = Callable[[], None]


class Recorder(QObject):
    """Asks for a path, drives the `RecordingFile`, and shows how long it has recorded."""

    failed = Signal(str)  # a sentence that says why something could not be recorded
    written = Signal(str)  # the path of a complete recording

    def __init__(self, window: MainWindow, session: Session, known: Callable[[], Sequence[RecordedEvent]]) -> None:
        """`known` returns what was known before, in order; a recording begins with it."""
        super().__init__(window)
        self._known = known
        self._window = window
        self._session = session
        self.file = RecordingFile(self)
        window.toolbar.record_action.triggered.connect(self.record_or_stop)
        window.toolbar.save_action.triggered.connect(self.ask_where_to_save)
        window.status.recording_button.clicked.connect(self.record_or_stop)
        session.heard.connect(self.file.take)
        self.file.ended.connect(self.written)
        self.file.broke_off.connect(self.failed)
        self.file.complained.connect(self.failed)

    def record_or_stop(self) -> None:
        """Ask where to record, or end the running recording."""
        if self.file.is_recording:
            self.file.stop()
            self.show_state()
        else:
            self._ask_where("Record to a file", self.record)

    def record(self, path: Path) -> None:
        """Record every event from now on; an existing file is replaced."""
        self.file.start(path, self._header(), self._known()[-1:])
        self.show_state()

    def ask_where_to_save(self) -> None:
        """Let the user save the last minutes."""
        if self.file.has_heard:
            self._ask_where("Save the last ten minutes", self.save)
        else:
            self._window.status.set_activity("There is nothing to save yet: no service has run")

    def save(self, path: Path) -> None:
        """Write the events of the last ten minutes; an existing file is replaced."""
        self.file.save(path, self._header(), self._known())

    def show_state(self) -> None:
        is_recording = self.file.is_recording
        self._window.toolbar.set_recording(is_recording)
        self._window.status.set_recording(f"Recording {format_duration(self.file.lasted_s)}" if is_recording else None)

    def _ask_where(self, title: str, write: Callable[[Path], None]) -> None:
        ask_where_to_save(self._window, title, "batchscope", SUFFIX.removeprefix("."), FILTER, write)

    def _header(self) -> RecordingHeader:
        ready = self._session.ready
        return RecordingHeader(
            at_s=time.monotonic(),
            clock=monotonic_clock_id(),
            recorded_at=time.time(),
            program_version=VERSION,
            url=ready.url if ready else None,
            model=ready.model if ready else None,
            device=ready.device if ready else None,
            dtype=ready.dtype if ready else None,
        )


class RecordingFile(QObject):
    """Holds the events of the last minutes, and records to one file at a time.

    A thread, which the first event starts, keeps and writes them, so that no frame waits for the disk.

    Attributes:
        has_heard: whether there are events to save.
    """

    ended = Signal(str)  # the path of a complete recording
    broke_off = Signal(str)  # a sentence that says why a recording broke off
    complained = Signal(str)  # a sentence that says what is not kept; a running recording goes on

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._began_s: float | None = None
        self.has_heard = False
        self._has_gap = False
        self._jobs: Queue[Job | None] = Queue()
        self._thread: Thread | None = None
        self._buffer = RecordingBuffer()
        self._writer: RecordingWriter | None = None
        self.broke_off.connect(self._on_broke_off)

    @property
    def is_recording(self) -> bool:
        return self._began_s is not None

    @property
    def lasted_s(self) -> float:
        """Seconds since the recording began."""
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    def take(self, event: RecordedEvent) -> None:
        """Keep an event, and record it if a recording runs."""
        self.has_heard = True
        self._begin_thread()
        if self._jobs.qsize() < MOST_WAITING:
            self._jobs.put(partial(self._keep, time.monotonic(), event))
        elif self.is_recording and not self._has_gap:
            self._has_gap = True
            self.complained.emit("The recording has a gap: its disk does not take what is to be written.")

    def start(self, path: Path, header: RecordingHeader, known: Sequence[RecordedEvent] = ()) -> None:
        """Record to `path` what is `known`, and events from now on; an existing file is replaced."""
        self.stop()
        self._began_s, self._has_gap = header.at_s, False
        self._ask(partial(self._begin, path, header, known))

    def stop(self) -> None:
        """End the recording in order; `ended` follows."""
        if self._began_s is not None:
            self._began_s = None
            self._ask(partial(self._end, time.monotonic()))

    def save(self, path: Path, header: RecordingHeader, known: Sequence[RecordedEvent] = ()) -> None:
        """Write what was `known` and the last minutes to `path`; `ended` or `complained` follows."""
        self._ask(self._flush)
        self._ask(partial(self._save, path, header, known))

    def finish(self) -> None:
        """End the recording; returns when every file is whole, or after `DRAIN_TIMEOUT_S`."""
        self.stop()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(DRAIN_TIMEOUT_S)
            self._thread = None

    def _on_broke_off(self) -> None:
        self._began_s = None

    def _ask(self, job: Job) -> None:
        self._begin_thread()
        self._jobs.put(job)

    def _begin_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():  # an error that nobody foresaw ends it
            self._thread = Thread(target=self._run, name="recording", daemon=True)
            self._thread.start()

    # In the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=MEMBER_S)
            except Empty:
                job = self._flush
            if job is None:
                return
            try:
                job()
            except RecordingError as error:
                self._writer = None
                self.broke_off.emit(str(error))
            except Exception as error:
                self._writer = None
                self.broke_off.emit(f"Recording ended: {error!r}.")
                raise

    def _keep(self, at_s: float, event: RecordedEvent) -> None:
        self._write(self._buffer.add(at_s, event))

    def _begin(self, path: Path, header: RecordingHeader, known: Sequence[RecordedEvent]) -> None:
        self._buffer.flush()  # what was heard before does not belong into it
        self._writer = RecordingWriter(path, header, overwrite=True)
        for event in known:
            self._writer.add(header.at_s, event)
        self._writer.flush()

    def _end(self, at_s: float) -> None:
        self._flush()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close(at_s)
            self.ended.emit(str(writer.path))

    def _save(self, path: Path, header: RecordingHeader, known: Sequence[RecordedEvent]) -> None:
        if self._writer is not None and self._writer.path.resolve() == path.resolve():
            self.complained.emit(f"{path} is what is being recorded. Choose another name.")
            return
        try:
            self._buffer.save(path, header, known)
        except NotWrittenError as error:
            self.complained.emit(str(error))
        else:
            self.ended.emit(str(path))

    def _flush(self) -> None:
        self._write(self._buffer.flush())

    def _write(self, member: bytes | None) -> None:
        if self._writer is not None:
            self._writer.append(member)
