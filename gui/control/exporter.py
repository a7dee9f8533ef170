"""Exports tables and pictures; a thread encodes and writes them, so that no frame waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from PySide6.QtCore import QBuffer, QCoreApplication, QIODevice, QObject, QThreadPool, QTimer, Signal
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QWidget

from gui.widgets.dialogs import ask_where_to_save
from service.analysis.observed.history import History
from service.analysis.recording.tables import SUBJECTS, ExportError, Subject, as_file, has_parquet
from service.messages.files import NotWrittenError, write_whole


@dataclass(frozen=True)
class Kind:
    """A kind of export: the stem and suffixes of its file, and the title of its dialog."""

    stem: str
    suffixes: tuple[str, ...]
    title: str

    @property
    def filters(self) -> str:
        """The formats of the dialog, as Qt writes them."""
        offered = [suffix for suffix in self.suffixes if suffix != "parquet" or has_parquet()]
        return ";;".join(f"{_FORMATS[suffix]} (*.{suffix})" for suffix in offered)


_FORMATS: Final = {"csv": "CSV", "parquet": "Parquet", "png": "PNG"}
KINDS: Final = {
    "figures": Kind("figures", ("csv", "parquet"), "Export figures"),
    "requests": Kind("requests", ("csv", "parquet"), "Export requests"),
    "batches": Kind("batches", ("csv", "parquet"), "Export batches"),
    "plots_png": Kind("plots", ("png",), "Export plots"),
    "window_png": Kind("window", ("png",), "Export the window"),
}
SLICE_S: Final = 0.004  # between two turns of the event loop
PIECE: Final = 4
LONGEST_END_MS: Final = 30_000  # that a window which is being closed waits for its exports
LONGEST_WRITE_MS: Final = 2_000  # that it waits for the disk, once they are given up


@dataclass(eq=False)
class Export:
    """A file that is being gathered or written."""

    path: Path
    is_given_up: bool = False


class Exporter(QObject):
    """Writes each file whole or not at all, also if the window closes meanwhile."""

    written = Signal(str)  # the path
    failed = Signal(str)  # a sentence with the cause
    came_to_rest = Signal()  # no export is under way any more
    _ended = Signal(Export, str)  # emitted by the thread that writes: why it failed, or nothing

    def __init__(self, window: QWidget, history: History, plots: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._history = history
        self._plots = plots
        self._under_way: list[Export] = []
        self._pool = QThreadPool(self)
        self._pool.setMaxThreadCount(1)
        self._limit = QTimer(self, singleShot=True, interval=LONGEST_END_MS)
        self._limit.timeout.connect(self.give_up)
        self._ended.connect(self._on_ended)

    @property
    def under_way(self) -> tuple[Path, ...]:
        return tuple(export.path for export in self._under_way)

    def ask(self, kind: str) -> None:
        """Let the user choose a file for `kind`, then write it."""
        chosen = KINDS[kind]
        stem, suffix, write = f"batchscope-{chosen.stem}", chosen.suffixes[0], partial(self.write, kind)
        ask_where_to_save(self._window, chosen.title, stem, suffix, chosen.filters, write)

    def write(self, kind: str, path: Path) -> None:
        """Write `kind` to `path`; `written` or `failed` follows."""
        export = Export(path)
        self._under_way.append(export)
        match kind:
            case "plots_png":
                self._write_picture(export, self._plots)
            case "window_png":
                self._write_picture(export, self._window)
            case _:
                self._write_table(export, SUBJECTS[kind])

    def finish(self) -> None:
        """Complete exports, or give them up after `LONGEST_END_MS`; `came_to_rest` follows."""
        if self._under_way:
            self._limit.start()

    def give_up(self) -> None:
        """Finish only the file that is being written."""
        self._limit.stop()
        self._pool.clear()
        self._pool.waitForDone(LONGEST_WRITE_MS)
        QCoreApplication.sendPostedEvents(self)  # what the thread has just written is not lost
        for export in tuple(self._under_way):
            export.is_given_up = True
            self._on_ended(export, f"{export.path} was not written: the window closed before it was complete.")

    def _write_table(self, export: Export, subject: Subject) -> None:
        """Look the rows up in slices of `SLICE_S`, between turns of the event loop, then write them."""
        history, suffix = self._history, export.path.suffix or ".csv"
        offset_s = history.wall_time(0.0)  # for the thread that writes: the history belongs to the window's
        found: list[Any] = []
        ahead = subject.items(history)

        def go_on() -> None:
            nonlocal ahead
            if export.is_given_up:
                return
            until_s = time.monotonic() + SLICE_S
            while ahead and time.monotonic() < until_s:
                found.extend(subject.look(history, ahead[:PIECE]))
                ahead = ahead[PIECE:]
            if ahead:
                QTimer.singleShot(0, self, lambda: self._attempt(export, go_on))
            else:
                self._write(export, lambda: as_file(subject.table(found, lambda at_s: at_s + offset_s), suffix))

        self._attempt(export, go_on)

    def _attempt(self, export: Export, step: Callable[[], None]) -> None:
        """Run a step of an export; an exception ends the export."""
        try:
            step()
        except Exception as error:
            self._on_ended(export, f"Could not write {export.path}: {error!r}.")
            raise

    def _write_picture(self, export: Export, widget: QWidget) -> None:
        image = widget.grab().toImage()
        self._write(export, lambda: png(image))

    def _write(self, export: Export, content: Callable[[], bytes]) -> None:
        def work() -> None:
            problem = ""
            try:
                write_whole(export.path, content())
            except (NotWrittenError, ExportError) as error:
                problem = str(error)
            except Exception as error:
                problem = f"Could not write {export.path}: {error!r}."
                raise
            finally:
                self._ended.emit(export, problem)

        self._pool.start(work)

    def _on_ended(self, export: Export, problem: str) -> None:
        if export not in self._under_way:
            return
        self._under_way.remove(export)
        if problem:
            self.failed.emit(problem)
        else:
            self.written.emit(str(export.path))
        if not self._under_way:
            self._limit.stop()
            self.came_to_rest.emit()


def png(image: QImage) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # PySide6's types want bytes here, PySide6 does not
    return bytes(buffer.data().data())
