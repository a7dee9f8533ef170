"""A heading that folds what stands below it, into one line where that says enough."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton, QSizePolicy, QWidget

from gui.look import tokens
from gui.look.theme import current, font
from gui.widgets.buttons import paint_caret
from gui.widgets.labels import draw_text, set_role
from gui.widgets.layouts import column


class Collapsible(QWidget):
    """Folded, its heading shows a summary instead of the body."""

    folded = Signal(bool)  # by the user

    def __init__(self, title: str, body: QWidget) -> None:
        super().__init__()
        self._head = _Head(title)
        self._body = body
        self.setLayout(column(self._head, body, gap=tokens.GAP_SLIDER))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self._head.clicked.connect(self._on_head_clicked)

    @property
    def is_folded(self) -> bool:
        return self._body.isHidden()

    def set_folded(self, is_folded: bool) -> None:
        self._body.setVisible(not is_folded)
        self._head.show_folded(is_folded)

    @property
    def summary(self) -> str:
        """What it says folded."""
        return self._head.summary

    def set_summary(self, summary: str) -> None:
        self._head.show_summary(summary)

    def _on_head_clicked(self) -> None:
        self.set_folded(not self.is_folded)
        self.folded.emit(self.is_folded)


class _Head(QPushButton):
    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.summary = ""
        self._is_folded = False
        set_role(self, "quiet")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def show_folded(self, is_folded: bool) -> None:
        self._is_folded = is_folded
        self.setAccessibleDescription("folded" if is_folded else "unfolded")
        self.update()

    def show_summary(self, summary: str) -> None:
        if summary != self.summary:
            self.summary = summary
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(tokens.WIDTH_NUMBER, tokens.HEIGHT_CONTROL)

    def paintEvent(self, _event: QPaintEvent) -> None:
        palette = current()
        painter = QPainter(self)
        paint_caret(painter, tokens.CARET / 2, self.height() / 2, palette.t2, points_right=self._is_folded)
        words = self.rect().adjusted(tokens.GAP_4, 0, 0, 0)
        ink = palette.t1 if self.underMouse() else palette.t2
        draw_text(painter, words, self.text(), font(tokens.FONT_TEXT, tokens.WEIGHT_MEDIUM), ink)
        if self._is_folded:
            draw_text(painter, self.rect(), self.summary, font(), palette.t3, Qt.AlignmentFlag.AlignRight)
