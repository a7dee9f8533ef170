"""What is predicted, right of what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from PySide6.QtCore import QLineF, QPointF, Qt
from PySide6.QtGui import QPainter, QPolygonF
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look import tokens
from gui.look.theme import colour, current
from gui.plots.layout import Layout, Overlay
from gui.plots.paint import bold, draw_text_before, font, pen, polygon, text_width
from gui.series.prediction import GhostLevel


class GhostItem(Overlay):
    """Right of what is measured: what is predicted, dashed, on a band as high as it is unsure.

    An arrow where that comes to lie above the plot, and a line where the present ends. Two lines of words stand at the
    far edge, above the curves or below them, where there is room for both.
    """

    def __init__(self) -> None:
        super().__init__(z=20)
        self.levels: Sequence[GhostLevel] = ()

    def set_levels(self, layout: Layout, levels: Sequence[GhostLevel]) -> None:
        self.levels = levels
        self._lay_out(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        layout = self._layout
        if layout is None or not layout.has_ahead:
            return
        painter.setPen(pen(current().t3, tokens.LINE_MARKER))
        for pane in layout.panes:
            painter.drawLine(QLineF(layout.right + 0.5, pane.top, layout.right + 0.5, pane.bottom))
        for level in self.levels:
            self._paint_level(painter, layout, level)
        for level in self.levels:
            if level.words is not None:
                self._paint_words(painter, layout, level.pane, level.words)

    def _paint_words(self, painter: QPainter, layout: Layout, number: int, lines: tuple[str, str]) -> None:
        pane, right = layout.panes[number], layout.far - tokens.GAP_1
        width = max(map(text_width, lines, (bold(), font())))
        if width > right - layout.right - tokens.GAP_2:
            return
        upper, lower = self._taken(layout, number, right - width - tokens.GAP_2)
        height = 2 * tokens.GHOST_LINE
        top = upper - tokens.GAP_1 - height if upper - tokens.GAP_1 - height >= pane.top else lower + tokens.GAP_1
        if top + height <= pane.bottom:
            middles = (top + tokens.GHOST_LINE / 2, top + 3 * tokens.GHOST_LINE / 2)
            draw_text_before(painter, right, middles[0], lines[0], bold(), current().t1)
            draw_text_before(painter, right, middles[1], lines[1], font(), current().t2)

    def _taken(self, layout: Layout, number: int, left: float) -> tuple[float, float]:
        """Between which heights the bands of a pane lie from `left` on."""
        pane, since = layout.panes[number], (left - layout.right) / max(layout.far - layout.right, 1)
        ends = [
            pane.y_of(value)
            for level in self.levels
            if level.pane == number
            for point, following in pairwise(level.course)
            if following.share >= since
            for value in (point.low, point.high, following.low, following.high)
        ]
        return min(ends, default=pane.bottom), max(ends, default=pane.bottom)

    def _paint_level(self, painter: QPainter, layout: Layout, level: GhostLevel) -> None:
        pane, ink = layout.panes[level.pane], getattr(current(), level.ink)
        left, right = layout.right, layout.far

        def place(share: float, value: float) -> QPointF:
            y = min(max(round(pane.y_of(value)), pane.top), pane.bottom)
            return QPointF(left + share * (right - left), y + 0.5)

        points, is_grey = level.course, level.ink == "t1"
        lower, upper = [place(p.share, p.low) for p in points], [place(p.share, p.high) for p in points]
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour(ink, tokens.GHOST_ALPHA_GREY if is_grey else tokens.GHOST_ALPHA))
        painter.drawPolygon(QPolygonF([*lower, *reversed(upper)]))
        if pane.y_of(level.value) >= pane.top:
            painter.setPen(pen(ink, tokens.LINE_GHOST, tokens.DASH_GHOST))
            painter.drawPolyline(QPolygonF([place(p.share, p.value) for p in points]))
        else:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour(ink))
            half, tip_y = tokens.GHOST_ARROW, pane.top + 1
            base_y = tip_y + 1.5 * half
            painter.drawPolygon(polygon((right - half, tip_y), (right, base_y), (right - 2 * half, base_y)))
