"""Four lines on the batch under the pointer, beside it."""

from __future__ import annotations

from collections.abc import Sequence

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.tokens import (
    CARD_DISTANCE,
    CARD_LINE,
    CARD_PADDING,
    CARD_WIDTH,
    FONT_TEXT,
    GAP_2,
    MARK_SIZES,
    RADIUS_CONTROL,
    Palette,
)
from gui.plots.frame import Layout
from gui.plots.paint import bold, caret, diamond, draw_text, font, pen, text_width, triangle
from service.analysis.observed.one_batch import BatchSummary
from service.messages.text import UNKNOWN, format_number


class BatchCard(pg.GraphicsObject):
    """Invisible as long as there is no batch to tell of."""

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.setZValue(40)
        self._palette = palette
        self._batch: BatchSummary | None = None
        self._corner = QPointF()
        self._size = QSize(0, 0)

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """What it says, as pairs of left and right."""
        return lines_of(self._batch) if self._batch is not None else ()

    def set_palette(self, palette: Palette) -> None:
        self._palette = palette
        self.update()

    def tell(self, batch: BatchSummary | None, layout: Layout, outline: Sequence[QRectF]) -> None:
        """Stand beside the outline, on the right where there is room."""
        if self._batch is None and batch is None:
            return
        self.prepareGeometryChange()
        self._batch = batch if outline else None
        if self._batch is not None:
            self._corner = self._place(layout, outline[-1])
        self._size = layout.size
        self.update()

    def boundingRect(self) -> QRectF:
        if self._batch is None:
            return QRectF()
        return QRectF(self._corner.x() - 1, self._corner.y() - 1, CARD_WIDTH + 2, _height() + 2)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        batch = self._batch
        if batch is None:
            return
        card = QRectF(self._corner.x() + 0.5, self._corner.y() + 0.5, CARD_WIDTH - 1, _height() - 1)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(pen(self._palette.border))
        painter.setBrush(QColor(self._palette.raised))
        painter.drawRoundedRect(card, RADIUS_CONTROL, RADIUS_CONTROL)
        middle = self._corner.y() + CARD_PADDING + CARD_LINE / 2 - 1
        left = self._corner.x() + CARD_PADDING
        self._paint_glyph(painter, batch, left, middle)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        right = self._corner.x() + CARD_WIDTH - CARD_PADDING
        for number, (name, value) in enumerate(lines_of(batch)):
            is_title = number == 0
            name_font = bold(FONT_TEXT) if is_title else font(FONT_TEXT)
            value_font = font(FONT_TEXT) if is_title else bold(FONT_TEXT)
            start = left + (MARK_SIZES["timeout"] + GAP_2 if is_title else 0)
            draw_text(painter, start, middle, name, name_font, self._palette.t1 if is_title else self._palette.t2)
            ink = self._palette.t2 if is_title else self._palette.t1
            draw_text(painter, right - text_width(value, value_font), middle, value, value_font, ink)
            middle += CARD_LINE + (2 if is_title else 0)

    def _paint_glyph(self, painter: QPainter, batch: BatchSummary, left: float, middle: float) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self._palette.release_reasons[batch.reason]))
        size = MARK_SIZES["timeout"]
        box = QRectF(round(left), round(middle) - size // 2, size, size)
        match batch.reason:
            case "full":
                painter.drawRect(box)
            case "timeout":
                painter.drawEllipse(box)
            case "drained":
                painter.drawPolygon(triangle(box.left(), box.center().y(), size))
            case "joined":
                painter.drawPolygon(diamond(box.left(), box.center().y(), size))
            case "left":
                painter.drawPolygon(caret(box.left(), box.center().y(), size))

    def _place(self, layout: Layout, beside: QRectF) -> QPointF:
        x = beside.right() + CARD_DISTANCE
        if x + CARD_WIDTH > layout.size.width() - CARD_DISTANCE:
            x = beside.left() - CARD_DISTANCE - CARD_WIDTH
        highest, lowest = layout.top, layout.bottom - _height()
        y = max(min(beside.bottom() - _height(), lowest), highest)
        return QPointF(round(max(x, CARD_DISTANCE)), round(y))


def lines_of(batch: BatchSummary) -> tuple[tuple[str, str], ...]:
    """The card in words."""
    rate = f", {batch.tokens / batch.ran_s:.0f}/s" if batch.ran_s else ""
    return (
        (f"Batch {batch.number}", f"{batch.reason}, {batch.size} of {batch.cap}"),
        ("waited", _span(batch.waited_s)),
        ("ran" if batch.finished_s is not None else "runs for", format_number(batch.ran_s, 2, "s")),
        (batch.unit, f"{batch.tokens}{rate}"),
    )


def _height() -> int:
    return 2 * CARD_PADDING + 4 * CARD_LINE


def _span(waited_s: tuple[float, float] | None) -> str:
    if waited_s is None:
        return UNKNOWN
    low, high = waited_s
    decimals = 2 if high < 1 else 1
    shortest, longest = f"{low:.{decimals}f}", f"{high:.{decimals}f}"
    return f"{longest} s" if shortest == longest else f"{shortest} to {longest} s"
