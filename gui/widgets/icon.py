"""An icon on its own."""

from __future__ import annotations

from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gui.look import tokens
from gui.look.theme import current
from gui.widgets import icons


class Icon(QWidget):
    def __init__(self, name: str = "", ink: str = "t2", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._ink = ink
        self.setFixedSize(tokens.ICON, tokens.ICON)

    def show_icon(self, name: str, ink: str = "t2") -> None:
        if (name, ink) != (self._name, self._ink):
            self._name, self._ink = name, ink
            self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        if not self._name:
            return
        drawn = icons.pixmap(self._name, getattr(current(), self._ink), tokens.ICON, self.devicePixelRatioF())
        if drawn is not None:
            QPainter(self).drawPixmap(0, 0, drawn)
