"""A bar that shows how far something is."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import tokens
from gui.look.theme import colour, current


class Progress(QWidget):
    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._fraction = 0.0
        self.setFixedHeight(tokens.PROGRESS_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_fraction(self, fraction: float) -> None:
        fraction = min(1.0, max(0.0, fraction))
        if fraction != self._fraction:
            self._fraction = fraction
            self.setAccessibleDescription(f"{fraction:.0%}")
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(tokens.WIDTH_NUMBER, tokens.PROGRESS_HEIGHT)

    def paintEvent(self, _event: QPaintEvent) -> None:
        palette = current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        bar = QRectF(self.rect())
        radius = bar.height() / 2
        painter.setBrush(colour(palette.track))
        painter.drawRoundedRect(bar, radius, radius)
        bar.setWidth(max(bar.height(), bar.width() * self._fraction))
        painter.setBrush(colour(palette.t1))
        painter.drawRoundedRect(bar, radius, radius)
