"""Items that stand over a whole canvas; the ghost of a prediction is one."""

from __future__ import annotations

from collections.abc import Sequence

import pyqtgraph as pg
from PySide6.QtCore import QLineF, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPolygonF
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.tokens import DASH_GHOST, GHOST_ALPHA, GHOST_ARROW, GHOST_WIDTH, LINE_GHOST, Palette
from gui.plots.frame import Layout
from gui.plots.paint import color, pen
from gui.series.prediction import GhostLevel


class Overlay(pg.GraphicsObject):
    """As large as its canvas; subclasses paint where the layout says, once there is one."""

    def __init__(self, palette: Palette, z: float = 0.0) -> None:
        super().__init__()
        self.setZValue(z)
        self._palette = palette
        self._layout: Layout | None = None

    def set_palette(self, palette: Palette) -> None:
        self._palette = palette
        self.update()

    def boundingRect(self) -> QRectF:
        size = self._layout.size if self._layout else QSize(0, 0)
        return QRectF(0, 0, size.width(), size.height())

    def _lie(self, layout: Layout) -> None:
        """Lie as `layout` says, and be painted anew."""
        if self._layout is None or layout.size != self._layout.size:
            self.prepareGeometryChange()
        self._layout = layout
        self.update()


class GhostItem(Overlay):
    """A dashed level on a band as high as it is unsure; a small arrow where it lies above the plot."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette, z=20)
        self.levels: Sequence[GhostLevel] = ()

    def set_levels(self, layout: Layout, levels: Sequence[GhostLevel]) -> None:
        self.levels = levels
        self._lie(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        if self._layout is not None:
            for level in self.levels:
                self._paint_level(painter, self._layout, level)

    def _paint_level(self, painter: QPainter, layout: Layout, level: GhostLevel) -> None:
        strip, ink = layout.strips[level.strip], getattr(self._palette, level.ink)
        left, right = layout.right - GHOST_WIDTH, layout.right
        low, high = (min(max(round(strip.y_of(value)), strip.top), strip.bottom) for value in (level.low, level.high))
        painter.fillRect(QRectF(left, high, GHOST_WIDTH, low - high), color(ink, GHOST_ALPHA))
        y = round(strip.y_of(level.value)) + 0.5
        if y >= strip.top:
            painter.setPen(pen(ink, LINE_GHOST, DASH_GHOST))
            painter.drawLine(QLineF(left, y, right, y))
        else:
            _paint_arrow(painter, QPointF(right - GHOST_ARROW, strip.top + 1), QColor(ink))


def _paint_arrow(painter: QPainter, tip: QPointF, ink: QColor) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(ink)
    feet = (QPointF(GHOST_ARROW, 1.5 * GHOST_ARROW), QPointF(-GHOST_ARROW, 1.5 * GHOST_ARROW))
    painter.drawPolygon(QPolygonF([tip, *(tip + foot for foot in feet)]))
