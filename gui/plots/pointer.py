"""The line under the pointer, the dots where it meets the curves, and the moment it stands at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.tokens import CHIP_HEIGHT, CHIP_PADDING, GAP_1, HOVER_EDGE, LINE_MARKER, MARK_HOVER, RADIUS_INNER, Palette
from gui.plots.frame import Layout
from gui.plots.overlay import Overlay
from gui.plots.paint import bold, draw_text, pen, text_width


@dataclass(frozen=True)
class Dot:
    """A value under the pointer: where it lies and the colour of its line."""

    y: float
    color: str


class PointerItem(Overlay):
    """Nothing as long as no moment is pointed at."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette, z=30)
        self._at_s: float | None = None
        self._dots: Sequence[Dot] = ()
        self._chip = ""
        self._ticks: Sequence[QRectF] = ()

    def point(
        self,
        layout: Layout,
        at_s: float | None,
        dots: Sequence[Dot] = (),
        chip: str = "",
        ticks: Sequence[QRectF] = (),
    ) -> None:
        """Stand at `at_s`; `chip` is shown on the axis in place of those of `ticks` that it covers."""
        if at_s is None and self._at_s is None:
            return
        self._at_s, self._dots, self._chip, self._ticks = at_s, dots, chip, ticks
        self._lie(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        layout, at_s = self._layout, self._at_s
        if layout is None or at_s is None or not layout.view.contains(at_s):
            return
        x = int(layout.x_of(at_s)) + 0.5
        painter.setPen(pen(self._palette.t2, LINE_MARKER))
        for strip in layout.strips:
            painter.drawLine(QLineF(x, strip.top, x, strip.bottom))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for dot in self._dots:
            painter.setPen(pen(self._palette.plot, HOVER_EDGE))
            painter.setBrush(QColor(dot.color))
            radius = MARK_HOVER / 2 + HOVER_EDGE / 2
            painter.drawEllipse(QPointF(x, dot.y), radius, radius)
        if self._chip:
            self._paint_chip(painter, layout, x)

    def _paint_chip(self, painter: QPainter, layout: Layout, x: float) -> None:
        used = bold()
        width = round(text_width(self._chip, used)) + 2 * CHIP_PADDING
        left = round(min(max(x - width / 2, 0), layout.size.width() - width - GAP_1))
        middle = layout.bottom + (layout.size.height() - layout.bottom) / 2
        chip = QRectF(left + 0.5, round(middle - CHIP_HEIGHT / 2) + 0.5, width, CHIP_HEIGHT)
        for tick in self._ticks:
            if tick.intersects(chip):
                painter.fillRect(tick, QColor(self._palette.plot))
        painter.setPen(pen(self._palette.border))
        painter.setBrush(QColor(self._palette.raised))
        painter.drawRoundedRect(chip, RADIUS_INNER, RADIUS_INNER)
        painter.setPen(Qt.PenStyle.NoPen)
        draw_text(painter, left + CHIP_PADDING + 0.5, chip.center().y(), self._chip, used, self._palette.t1)
