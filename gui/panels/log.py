"""The service's log: bounded, in the system's fixed type, at the bottom of the centre."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from gui.look import tokens
from gui.look.theme import fixed_font
from gui.panels import shortcuts
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import box, column, row

MOST_LINES: Final = 2000
INTERVAL_MS: Final = 100


class LogPanel(QWidget):
    """Adds lines in groups, and follows the end unless the user has scrolled away from it."""

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[str] = []
        self._lines = QPlainTextEdit()
        self._lines.setObjectName("log")
        self._lines.setReadOnly(True)
        self._lines.setMaximumBlockCount(MOST_LINES)
        self._lines.setUndoRedoEnabled(False)
        self._lines.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self._lines.setFont(fixed_font())
        self._lines.setAccessibleName("Service log")
        self._lines.setTabChangesFocus(True)
        self._lines.setProperty("focus_radius", 0)
        copy = Button("Copy", role="quiet")
        closes = "Close the log"
        self.close_button = Button(icon="ph.x", role="icon", name=closes, tip=shortcuts.LOG.tip(closes))
        self._timer = QTimer(self, singleShot=True, interval=INTERVAL_MS)
        margins = (tokens.PANEL_PADDING, 0, tokens.GAP_2, 0)
        head = row(label("Service log", "title"), None, copy, self.close_button, margins=margins)
        self.setLayout(column(box(head, height=tokens.HEIGHT_PANEL_HEADER), self._lines, gap=0))
        self._timer.timeout.connect(self._flush)
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.text()))

    def append(self, text: str) -> None:
        self._pending.extend(text.rstrip("\n").split("\n"))
        del self._pending[:-MOST_LINES]
        if not self._timer.isActive():
            self._timer.start()

    def text(self) -> str:
        self._flush()
        return self._lines.toPlainText()

    def _flush(self) -> None:
        if not self._pending:
            return
        lines, self._pending = self._pending, []
        bar = self._lines.verticalScrollBar()
        follows = bar.value() >= bar.maximum() - 1
        self._lines.appendPlainText("\n".join(lines))
        if follows:
            bar.setValue(bar.maximum())
