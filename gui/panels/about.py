"""About Batchscope: what runs here, and a button that copies it with what a report of a fault needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QDialog, QGridLayout, QLabel, QWidget

from gui.look import tokens
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import column, row

WHAT: Final = "An oscilloscope for dynamic batching"
COPY_TIP: Final = "These lines, the state of the service, and the end of its log; no prompts, no tokens"


class About(QDialog):
    """Shows facts by their names; `diagnostics` returns what is copied."""

    def __init__(self, parent: QWidget, facts: Mapping[str, str], diagnostics: Callable[[], str]) -> None:
        super().__init__(parent)
        self.setWindowTitle("About Batchscope")
        self._diagnostics = diagnostics
        self.copy_button = Button("Copy diagnostics", "ph.copy", tip=COPY_TIP)
        self.copy_button.clicked.connect(self._copy)
        close = Button("Close")
        close.clicked.connect(self.accept)
        self._said = label("", "caption")
        head = column(None, label("Batchscope", "heading"), label(WHAT, "text"), None, gap=tokens.GAP_HALF)
        top = row(_picture(), head, None, gap=tokens.GAP_4)
        buttons = row(self.copy_button, self._said, None, close)
        margins = (tokens.NOTICE_PADDING,) * 4
        self.setLayout(column(top, _grid(facts), buttons, gap=tokens.NOTICE_PADDING, margins=margins))
        self.setFixedWidth(tokens.WIDTH_ABOUT)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._diagnostics())
        self._said.setText("Copied")


def _picture() -> QLabel:
    made, size = QLabel(), QSize(tokens.ABOUT_ICON, tokens.ABOUT_ICON)
    made.setPixmap(QApplication.windowIcon().pixmap(size, made.devicePixelRatio()))
    return made


def _grid(facts: Mapping[str, str]) -> QGridLayout:
    grid = QGridLayout()
    grid.setHorizontalSpacing(tokens.GAP_4)
    grid.setVerticalSpacing(tokens.GAP_1)
    grid.setColumnStretch(1, 1)
    for line, (name, value) in enumerate(facts.items()):
        shown = label(value, "text", wrap=True)
        shown.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        grid.addWidget(label(name, "dim"), line, 0, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(shown, line, 1)
    return grid
