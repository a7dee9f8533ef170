"""Run or cancel, how far it is, and what went wrong."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from gui.look import tokens
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import column
from gui.widgets.progress import Progress as Bar
from service.analysis.compare.progress import Progress
from service.messages.text import format_time


class RunControls(QWidget):
    """
    Signals:
        run_wanted, stop_wanted: the button was clicked, in one of its two states.
    """

    run_wanted = Signal()
    stop_wanted = Signal()

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._title = title
        self._is_running = False
        self.button = Button(title, "ph.play-fill", large=True)
        self._bar = Bar()
        self._note = label("", "caption", wrap=True)
        self.setLayout(column(self.button, self._bar, self._note, gap=tokens.GAP_2))
        self.button.clicked.connect(self._on_clicked)
        self._bar.hide()

    @property
    def note(self) -> str:
        return self._note.text()

    def set_can_run(self, can_run: bool, why: str = "") -> None:
        """`why` says what it waits for."""
        self.button.setEnabled(can_run or self._is_running)
        self.button.setToolTip(why)

    def show_running(self, is_running: bool) -> None:
        self._is_running = is_running
        self.button.setText("Cancel" if is_running else self._title)
        self.button.set_icon("ph.stop-fill" if is_running else "ph.play-fill")
        self._bar.setVisible(is_running)
        self._bar.show_fraction(0.0)
        self.set_note("")

    def show_progress(self, progress: Progress) -> None:
        """Runs that are done, the present one, and the time left."""
        self._bar.show_fraction(progress.done / progress.total if progress.total else 0.0)
        left = f", {format_time(progress.left_s)} left" if progress.left_s else ""
        self.set_note(f"{progress.doing}{left}")

    def set_note(self, text: str) -> None:
        self._note.setText(text[:1].upper() + text[1:])

    def _on_clicked(self) -> None:
        (self.stop_wanted if self._is_running else self.run_wanted).emit()
