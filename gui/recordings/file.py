"""Keeps events and writes recordings; a thread does both, so that no frame waits for the disk."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Thread
from typing import Final, TypeAlias

from PySide6.QtCore import QObject, Signal

from service.analysis.recording.format import MEMBER_S, RecordedEvent, RecordingError, RecordingHeader
from service.analysis.recording.writer import RecordingBuffer, RecordingWriter
from service.messages.files import NotWrittenError

MOST_WAITING: Final = 20_000  # events; beyond them a disk that stands still leaves a gap
DRAIN_TIMEOUT_S: Final = 5.0  # for a disk that stands still, when the window closes
Job: TypeAlias = Callable[[], None]


class RecordingFile(QObject):
    """Holds the events of the last minutes, and records to one file at a time.

    Attributes:
        has_heard: whether there are events to save.

    Signals:
        ended: the path of a complete recording.
        failed: a sentence that says why a recording broke off.
        not_saved: a sentence that says why the last minutes could not be saved; a running recording is not harmed.
        fell_behind: a sentence that says that the running recording has a gap.
    """

    ended = Signal(str)
    failed = Signal(str)
    not_saved = Signal(str)
    fell_behind = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._began_s: float | None = None
        self.has_heard = False
        self._has_gap = False
        self._worker = _Worker(self.ended.emit, self.failed.emit, self.not_saved.emit)
        self.failed.connect(self._on_failed)

    @property
    def is_recording(self) -> bool:
        return self._began_s is not None

    @property
    def lasted_s(self) -> float:
        """Seconds since the recording began."""
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    def take(self, event: RecordedEvent) -> None:
        """Keep an event, and record it if a recording runs."""
        at_s = time.monotonic()
        self.has_heard = True
        if not self._worker.try_ask(lambda: self._worker.take(at_s, event)):
            self._note_gap()

    def start(self, path: Path, header: RecordingHeader) -> None:
        """Record events to `path` from now on; an existing file is replaced."""
        self.stop()
        self._began_s, self._has_gap = header.at_s, False
        self._worker.ask(lambda: self._worker.begin(path, header))

    def stop(self) -> None:
        """End the recording in order; `ended` follows."""
        if self._began_s is not None:
            self._began_s = None
            at_s = time.monotonic()
            self._worker.ask(lambda: self._worker.end(at_s))

    def save(self, path: Path, header: RecordingHeader) -> None:
        """Write the last minutes to `path`; `ended` or `not_saved` follows."""
        self._worker.ask(self._worker.flush)
        self._worker.ask(lambda: self._worker.save(path, header))

    def finish(self) -> None:
        """End the recording; returns when every file is whole."""
        self.stop()
        self._worker.finish()

    def _note_gap(self) -> None:
        if self.is_recording and not self._has_gap:
            self._has_gap = True
            self.fell_behind.emit("The recording has a gap: its disk does not take what is to be written.")

    def _on_failed(self) -> None:
        self._began_s = None


class _Worker:
    """Runs jobs one after the other in a thread, which the first job starts."""

    def __init__(
        self, ended: Callable[[str], None], failed: Callable[[str], None], not_saved: Callable[[str], None]
    ) -> None:
        self._ended = ended
        self._failed = failed
        self._not_saved = not_saved
        self._jobs: Queue[Job | None] = Queue(MOST_WAITING)
        self._thread: Thread | None = None
        self._buffer = RecordingBuffer()
        self._writer: RecordingWriter | None = None

    def ask(self, job: Job) -> None:
        self._begin_thread()
        self._jobs.put(job)

    def try_ask(self, job: Job) -> bool:
        """Queue a job; returns whether there was room for it."""
        self._begin_thread()
        try:
            self._jobs.put_nowait(job)
        except Full:
            return False
        return True

    def finish(self) -> None:
        """Return when all jobs are done, or after `DRAIN_TIMEOUT_S`."""
        if self._thread is not None:
            with contextlib.suppress(Full):
                self._jobs.put(None, timeout=DRAIN_TIMEOUT_S)
            self._thread.join(DRAIN_TIMEOUT_S)
            self._thread = None

    def _begin_thread(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="recording", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=MEMBER_S)
            except Empty:
                job = self.flush
            if job is None:
                return
            try:
                job()
            except RecordingError as error:
                self._writer = None
                self._failed(str(error))
            except Exception as error:
                self._failed(f"Recording ended: {error!r}.")
                raise

    def take(self, at_s: float, event: RecordedEvent) -> None:
        self._write(self._buffer.add(at_s, event))

    def begin(self, path: Path, header: RecordingHeader) -> None:
        self._buffer.flush()  # what was heard before does not belong into it
        self._writer = RecordingWriter(path, header, overwrite=True)

    def end(self, at_s: float) -> None:
        self.flush()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close(at_s)
            self._ended(str(writer.path))

    def save(self, path: Path, header: RecordingHeader) -> None:
        if self._writer is not None and self._writer.path.resolve() == path.resolve():
            self._not_saved(f"{path} is what is being recorded. Choose another name.")
            return
        try:
            self._buffer.save(path, header)
        except NotWrittenError as error:
            self._not_saved(str(error))
        else:
            self._ended(str(path))

    def flush(self) -> None:
        self._write(self._buffer.flush())

    def _write(self, member: bytes | None) -> None:
        if self._writer is not None:
            self._writer.append(member)
