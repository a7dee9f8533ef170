"""The capacity line over the plot of throughput, dotted from the moment on from which the settings hold."""

from __future__ import annotations

from PySide6.QtCore import QLineF
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.tokens import CAPACITY_TEXT, DASH_CAPACITY, FONT_CAPTION, GAP_4, LINE_EDGE, Palette
from gui.plots.frame import Layout, Strip
from gui.plots.overlay import Overlay
from gui.plots.paint import draw_text, font, pen, text_width
from gui.series.capacity import CapacityLevel, CapacityLine


class CapacityItem(Overlay):
    """A line in each strip with its value on it; where it lies above the strip, only the value, with an arrow."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette, z=15)
        self._line: CapacityLine | None = None

    def set_line(self, layout: Layout, line: CapacityLine | None) -> None:
        self._line = line
        self._lie(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        layout, line = self._layout, self._line
        if layout is None or line is None:
            return
        left = max(int(layout.x_of(line.since_s)), layout.left)
        if left >= layout.right:
            return
        for strip, level in zip(layout.strips, line.levels, strict=True):
            self._paint_level(painter, layout, strip, level, left)

    def _paint_level(self, painter: QPainter, layout: Layout, strip: Strip, level: CapacityLevel, left: int) -> None:
        y, half = round(strip.y_of(level.per_s)), FONT_CAPTION / 2 + CAPACITY_TEXT
        is_above = y < strip.top
        if is_above:
            middle = strip.top + half
        else:
            painter.setPen(pen(self._palette.t2, LINE_EDGE, DASH_CAPACITY))
            painter.drawLine(QLineF(left, y + 0.5, layout.right, y + 0.5))
            middle = y - half if y - 2 * half >= strip.top else y + half
        words = f"↑ {level.words}" if is_above else level.words
        start = left + GAP_4  # clear of a flag that stands over the line's beginning
        if start + text_width(words, font()) < layout.right:
            draw_text(painter, start, middle, words, font(), self._palette.t2)
