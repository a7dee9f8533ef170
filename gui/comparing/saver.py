"""Saves reports and config files where the user chooses."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from gui.widgets.dialogs import ask_where_to_save
from service.analysis.compare.comparison import Comparison
from service.analysis.compare.html import comparison_page, sweep_page
from service.analysis.compare.serve_config import measured_config
from service.analysis.compare.sweep import Sweep
from service.messages.files import NotWrittenError, write_whole
from service.messages.settings import Settings

KINDS = {"html": "Web page (*.html)", "yaml": "Ray Serve config (*.yaml)"}


class Saver(QObject):
    """Asks for a path, then writes a report or a config file.

    Signals:
        written: the path.
        failed: a sentence with the cause.
    """

    written = Signal(str)
    failed = Signal(str)

    def __init__(self, window: QWidget, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._window = window

    def save_comparison(self, comparison: Comparison) -> None:
        """Save the report of a comparison."""
        self._ask("comparison", "html", comparison_page(comparison))

    def save_sweep(self, sweep: Sweep) -> None:
        """Save the report of a sweep."""
        self._ask("sweep", "html", sweep_page(sweep))

    def save_b(self, comparison: Comparison) -> None:
        """Save B's settings as a config file."""
        settings = comparison.plan.b.settings
        self._ask("serve", "yaml", measured_config(comparison.service, settings, comparison.verdict))

    def save_point(self, sweep: Sweep, settings: Settings, evidence: str) -> None:
        """Save the settings of a point as a config file."""
        self._ask("serve", "yaml", measured_config(sweep.service, settings, evidence))

    def write(self, path: Path, text: str) -> None:
        """Write `text`; `written` or `failed` follows."""
        try:
            write_whole(path, text.encode())
        except NotWrittenError as error:
            self.failed.emit(str(error))
        else:
            self.written.emit(str(path))

    def _ask(self, stem: str, suffix: str, text: str) -> None:
        """Let the user choose a file for `text`, then write it."""
        write = partial(self.write, text=text)
        ask_where_to_save(self._window, "Save", f"batchscope-{stem}", suffix, KINDS[suffix], write)
