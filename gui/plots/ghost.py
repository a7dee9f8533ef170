"""The ghost: where the settings that a slider is dragged to would lead, dashed at the right edge."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPolygonF
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.tokens import DASH_GHOST, GHOST_ALPHA, GHOST_ARROW, GHOST_WIDTH, LINE_GHOST, Palette
from gui.plots.frame import Layout
from gui.plots.overlay import Overlay
from gui.plots.paint import color, pen
from gui.series.ghost import GhostLevel


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
