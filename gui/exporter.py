"""Asks where to, then writes: encoding and the disk in a thread of their own, so that no frame waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from PySide6.QtCore import QBuffer, QIODevice, QObject, Qt, QThreadPool, QTimer, Signal
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QFileDialog, QWidget

from service.files import NotWrittenError, write_whole
from service.observed.history import History
from service.recording.export import ExportError, as_file, has_parquet
from service.recording.tables import SUBJECTS, Subject


@dataclass(frozen=True)
class Kind:
    """One thing that can be exported: how its file is called, and what the dialog says."""

    stem: str
    suffixes: tuple[str, ...]
    title: str

    @property
    def filters(self) -> str:
        """The dialog's choice of formats."""
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

Item = TypeVar("Item")
Found = TypeVar("Found")


class Exporter(QObject):
    """
    Signals:
        written: where to.
        failed: a sentence that says why not.
    """

    written = Signal(str)
    failed = Signal(str)

    def __init__(self, window: QWidget, history: History, plots: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._history = history
        self._plots = plots
        self._pool = QThreadPool(self)
        self._pool.setMaxThreadCount(1)

    def ask(self, kind: str) -> None:
        """Let the user choose a file for `kind`, then write it."""
        chosen = KINDS[kind]
        name = f"batchscope-{chosen.stem}-{datetime.now():%Y%m%d-%H%M%S}.{chosen.suffixes[0]}"
        dialog = QFileDialog(self._window, chosen.title, name, chosen.filters)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(chosen.suffixes[0])
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(lambda path: self.write(kind, Path(path)))
        dialog.filterSelected.connect(lambda chosen: dialog.setDefaultSuffix(chosen.rpartition(".")[2].rstrip(")")))
        dialog.open()

    def write(self, kind: str, path: Path) -> None:
        """Write `kind` to `path`; `written` or `failed` follows."""
        match kind:
            case "plots_png":
                self._write_picture(path, self._plots)
            case "window_png":
                self._write_picture(path, self._window)
            case _:
                self._write_table(path, SUBJECTS[kind])

    def wait(self) -> None:
        """Return when nothing is being written."""
        self._pool.waitForDone()

    def _gather(
        self, wanted: Sequence[Item], look: Callable[[Sequence[Item]], list[Found]], then: Callable[[list[Found]], None]
    ) -> None:
        """Look things up for as long as a frame can wait, again and again: the window goes on meanwhile."""
        found: list[Found] = []
        ahead = wanted

        def go_on() -> None:
            nonlocal ahead
            until_s = time.monotonic() + SLICE_S
            while ahead and time.monotonic() < until_s:
                found.extend(look(ahead[:PIECE]))
                ahead = ahead[PIECE:]
            if ahead:
                QTimer.singleShot(0, self, go_on)
            else:
                then(found)

        go_on()

    def _write_table(self, path: Path, subject: Subject) -> None:
        history = self._history
        self._gather(
            subject.items(history),
            lambda items: subject.look(history, items),
            lambda found: self._write_found(path, subject, found),
        )

    def _write_found(self, path: Path, subject: Subject, found: list[Any]) -> None:
        wall_time = self._wall_time()
        self._write(path, lambda: as_file(subject.table(found, wall_time), path.suffix or ".csv"))

    def _wall_time(self) -> Callable[[float], float]:
        """A conversion that a thread may use: the history itself belongs to the window's."""
        offset_s = self._history.wall_time(0.0)
        return lambda at_s: at_s + offset_s

    def _write_picture(self, path: Path, widget: QWidget) -> None:
        image = widget.grab().toImage()
        self._write(path, lambda: png(image))

    def _write(self, path: Path, content: Callable[[], bytes]) -> None:
        def work() -> None:
            try:
                write_whole(path, content())
            except (NotWrittenError, ExportError) as error:
                self.failed.emit(str(error))
            except Exception as error:
                self.failed.emit(f"Could not write {path}: {error!r}.")
                raise
            else:
                self.written.emit(str(path))

        self._pool.start(work)


def png(image: QImage) -> bytes:
    """The picture as the content of a PNG file."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # PySide6's types want bytes here, PySide6 does not
    return bytes(buffer.data().data())
