"""Writes a recording in a thread of its own, so that no frame of the window waits for the disk."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Thread
from typing import Final, TypeAlias

from PySide6.QtCore import QObject, Signal

from service.recording.format import RecordedEvent, RecordingError, RecordingHeader
from service.recording.writer import FLUSH_EVERY_S, RecordingWriter

MOST_WAITING: Final = 20_000  # events; that many minutes of a disk that stands still are not kept in memory
Heard: TypeAlias = tuple[float, RecordedEvent]


@dataclass(frozen=True)
class _Underway:
    """One file that is being written; ``None`` in its queue ends it."""

    path: Path
    began_s: float
    heard: Queue[Heard | None]
    thread: Thread


class RecordingFile(QObject):
    """At most one file at a time.

    Signals:
        ended: a recording has come to its end; its path.
        failed: a sentence that says why it ended before that.
    """

    ended = Signal(str)
    failed = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._underway: _Underway | None = None
        self.failed.connect(self._on_failed)

    @property
    def is_recording(self) -> bool:
        return self._underway is not None

    @property
    def lasted_s(self) -> float:
        """How long it has been recording."""
        return time.monotonic() - self._underway.began_s if self._underway else 0.0

    @property
    def path(self) -> Path | None:
        return self._underway.path if self._underway else None

    def start(self, path: Path, header: RecordingHeader) -> None:
        """Record to `path` what is taken from now on; a file that is there already is replaced."""
        heard: Queue[Heard | None] = Queue(MOST_WAITING)
        thread = Thread(target=self._write, args=(path, header, heard), name="recording", daemon=True)
        self._underway = _Underway(path, header.at_s, heard, thread)
        thread.start()

    def take(self, event: RecordedEvent) -> None:
        """Record what was heard just now, if anything is to be recorded."""
        if self._underway is None:
            return
        try:
            self._underway.heard.put_nowait((time.monotonic(), event))
        except Full:
            path = self._underway.path
            self.failed.emit(f"The recording {path} ended early: its disk takes no more data.")

    def stop(self) -> None:
        """End the recording in order; returns when the file is whole."""
        underway, self._underway = self._underway, None
        if underway is not None:
            underway.heard.put(None)
            underway.thread.join()

    def _write(self, path: Path, header: RecordingHeader, heard: Queue[Heard | None]) -> None:
        try:
            with RecordingWriter(path, header, overwrite=True) as writer:
                _copy(heard, writer)
                writer.close(time.monotonic())
        except RecordingError as error:
            self.failed.emit(str(error))
        else:
            self.ended.emit(str(path))

    def _on_failed(self) -> None:
        self._underway = None


def _copy(heard: Queue[Heard | None], writer: RecordingWriter) -> None:
    while True:
        try:
            entry = heard.get(timeout=FLUSH_EVERY_S)
        except Empty:
            writer.flush()
            continue
        if entry is None:
            return
        writer.add(*entry)
