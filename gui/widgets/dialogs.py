"""Asks the user for a file, or for a line. A dialog never blocks: the answer comes by a call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QInputDialog, QWidget

from service.analysis.recording.format import OPENED

RECORDINGS: Final = f"Recordings and results ({' '.join(f'*{suffix}' for suffix in OPENED)})"
"""The filter for what is opened as a recording."""


def ask_where_to_save(
    parent: QWidget, title: str, stem: str, suffix: str, filters: str, write: Callable[[Path], None]
) -> None:
    """Propose a name with today's date and time; call `write` with the path that the user chooses.

    Args:
        stem: the name's beginning.
        suffix: of the proposed name, without its dot; another filter brings its own.
        filters: formats to choose from, as Qt writes them: ``"CSV (*.csv);;PNG (*.png)"``.
    """
    name = f"{stem}-{datetime.now():%Y%m%d-%H%M%S}.{suffix}"
    dialog = _dialog(parent, title, name, filters, write)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix(suffix)
    dialog.filterSelected.connect(lambda chosen: dialog.setDefaultSuffix(chosen.rpartition(".")[2].rstrip(")")))
    dialog.open()


def ask_for_file(parent: QWidget, title: str, filters: str, use: Callable[[Path], None]) -> None:
    """Let the user choose a file that exists; call `use` with its path."""
    dialog = _dialog(parent, title, "", filters, use)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    dialog.open()


def ask_for_files(parent: QWidget, title: str, filters: str, use: Callable[[list[Path]], None]) -> None:
    """Let the user choose files that exist; call `use` with their paths."""
    dialog = QFileDialog(parent, title, "", filters)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
    dialog.filesSelected.connect(lambda paths: use([Path(path) for path in paths]))
    dialog.open()


def ask_for_folder(parent: QWidget, title: str, use: Callable[[Path], None]) -> None:
    """Let the user choose a folder that exists; call `use` with its path."""
    dialog = _dialog(parent, title, "", "", use)
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    dialog.open()


def ask_for_line(parent: QWidget, title: str, question: str, use: Callable[[str], None]) -> None:
    """Let the user write a line; call `use` with it unless it is empty."""
    dialog = QInputDialog(parent)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setWindowTitle(title)
    dialog.setLabelText(question)
    dialog.textValueSelected.connect(lambda text: use(text.strip()) if text.strip() else None)
    dialog.open()


def _dialog(parent: QWidget, title: str, name: str, filters: str, use: Callable[[Path], None]) -> QFileDialog:
    dialog = QFileDialog(parent, title, name, filters)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.fileSelected.connect(lambda path: use(Path(path)))
    return dialog
