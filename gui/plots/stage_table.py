"""The seconds of each stage as a table, drawn beside the bars of stages."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter

from gui.look.tokens import (
    FONT_TEXT,
    GAP_1,
    GAP_2,
    LEGEND_SWATCH,
    PANEL_PADDING,
    PLOT_MARGIN_RIGHT,
    RADIUS_INNER,
    STAGE_LINE,
    STAGE_NUMBER,
    STAGE_TABLE,
    Palette,
)
from gui.plots.paint import bold, draw_text, font, text_width
from gui.plots.stage_inks import stage_inks
from gui.series.stage_breakdown import StageBreakdown
from service.analysis.observed.stages import STAGES


class StageTable:
    """Stands at the right edge of its room, centred from top to bottom; a column more where there is a side before."""

    def __init__(
        self, room: QSize, now: StageBreakdown | None, before: StageBreakdown | None, before_name: str
    ) -> None:
        self._stages = STAGES if now is None else now.stages
        numbers = [(None, None)] * len(STAGES) if now is None else list(zip(now.mean, now.at_p95, strict=True))
        extra = [()] * len(STAGES) if before is None else [(mean,) for mean in before.mean]
        self._lines: list[Sequence[float | None]] = [(*a, *b) for a, b in zip(numbers, extra, strict=True)]
        self._heads = ("mean", "p95") if before is None else ("mean", "p95", f"{before_name} mean")
        right = room.width() - PANEL_PADDING
        self._edges = [right - n * STAGE_NUMBER for n in reversed(range(len(self._heads)))]
        self.left = room.width() - PLOT_MARGIN_RIGHT - STAGE_TABLE - (0 if before is None else STAGE_NUMBER)
        self._line = min(STAGE_LINE, room.height() / (len(STAGES) + 1))
        self._top = (room.height() - (len(STAGES) + 1) * self._line) / 2

    def stage_at(self, place: QPointF) -> int | None:
        """The stage whose line is at a place, as its place in `STAGES`."""
        line = int((place.y() - self._top) // self._line) - 1
        return line if place.x() >= self.left and 0 <= line < len(STAGES) else None

    def paint(self, painter: QPainter, palette: Palette, pointed: int | None) -> None:
        middle = self._top + self._line / 2
        for head, edge in zip(self._heads, self._edges, strict=True):
            draw_text(painter, edge - text_width(head, font()), middle, head, font(), palette.t3)
        for n, (stage, ink) in enumerate(zip(self._stages, stage_inks(palette), strict=True)):
            middle += self._line
            if n == pointed:
                self._paint_ground(painter, middle, palette)
            painter.fillRect(QRectF(self.left, round(middle) - LEGEND_SWATCH // 2, LEGEND_SWATCH, LEGEND_SWATCH), ink)
            draw_text(painter, self.left + LEGEND_SWATCH + GAP_2, middle, stage.title, font(FONT_TEXT), palette.t2)
            self._paint_numbers(painter, self._lines[n], middle, palette)

    def _paint_ground(self, painter: QPainter, middle: float, palette: Palette) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(palette.hover))
        left, top = self.left - GAP_1, middle - self._line / 2
        ground = QRectF(left, top, self._edges[-1] + GAP_1 - left, self._line)
        painter.drawRoundedRect(ground, RADIUS_INNER, RADIUS_INNER)

    def _paint_numbers(
        self, painter: QPainter, values: Sequence[float | None], middle: float, palette: Palette
    ) -> None:
        """The mean of the present settings stands out."""
        for n, (value, edge) in enumerate(zip(values, self._edges, strict=True)):
            text = "–" if value is None else f"{value:.3f}"
            used, ink = (bold(), palette.t1) if n == 0 else (font(), palette.t2)
            draw_text(painter, edge - text_width(text, used), middle, text, used, ink)
