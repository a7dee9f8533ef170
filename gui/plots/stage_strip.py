"""The stages of one request: a bar over its whole latency, and below it a line a stage with its seconds."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look.tokens import FONT_TEXT, GAP_2, HAIRLINE, LEGEND_SWATCH, STAGE_STRIP, STAGE_STRIP_LINE, Palette
from gui.plots.paint import bold, draw_text, font, text_width
from gui.plots.stage_inks import paint_stages, segments, stage_inks
from service.analysis.observed.stages import STAGES, Stage
from service.messages.settings import ReleaseReason

SHOWN_S = 0.0005  # what is shorter reads as nothing


class StageStrip(QWidget):
    """Running is in the colour of why its batch was released, as in the timeline."""

    def __init__(self, palette: Palette, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._palette = palette
        self._stages: Sequence[Stage] = STAGES
        self._spans_s: Sequence[float] = ()
        self._reason: ReleaseReason | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(STAGE_STRIP + GAP_2 + (len(STAGES) + 1) * STAGE_STRIP_LINE + HAIRLINE)

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """What it says, as pairs of left and right: the stages, then their sum."""
        spans = [(stage.title, f"{span:.3f} s") for stage, span in zip(self._stages, self._spans_s, strict=False)]
        return (*spans, ("Latency", f"{sum(self._spans_s):.3f} s")) if spans else ()

    def set_palette(self, palette: Palette) -> None:
        self._palette = palette
        self.update()

    def show_stages(self, stages: Sequence[Stage], spans_s: Sequence[float], reason: ReleaseReason | None) -> None:
        if (stages, spans_s, reason) != (self._stages, self._spans_s, self._reason):
            self._stages, self._spans_s, self._reason = stages, spans_s, reason
            self.setAccessibleName(", ".join(f"{name} {value}" for name, value in self.lines))
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(0, self.height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        total_s = sum(self._spans_s)
        if not total_s:
            return
        painter = QPainter(self)
        inks = stage_inks(self._palette, self._reason)
        paint_stages(painter, segments(self._spans_s, 0.0, self.width() / total_s), 0.0, STAGE_STRIP, inks)
        middle = STAGE_STRIP + GAP_2 + STAGE_STRIP_LINE / 2
        for (name, value), span_s, ink in zip(self.lines, self._spans_s, inks, strict=False):
            is_there = span_s >= SHOWN_S
            painter.fillRect(QRectF(0, round(middle) - LEGEND_SWATCH // 2, LEGEND_SWATCH, LEGEND_SWATCH), ink)
            self._paint_line(painter, middle, (name, value), self._palette.t1 if is_there else self._palette.t3)
            middle += STAGE_STRIP_LINE
        line = QPointF(0, round(middle - STAGE_STRIP_LINE / 2))
        painter.fillRect(QRectF(line.x(), line.y(), self.width(), HAIRLINE), QColor(self._palette.line))
        self._paint_line(painter, middle + HAIRLINE, self.lines[-1], self._palette.t1, is_sum=True)
        painter.end()

    def _paint_line(
        self, painter: QPainter, middle: float, line: tuple[str, str], ink: str, is_sum: bool = False
    ) -> None:
        name, value = line
        used = bold(FONT_TEXT) if is_sum else font(FONT_TEXT)
        left = 0 if is_sum else LEGEND_SWATCH + GAP_2
        draw_text(painter, left, middle, name, used, ink if is_sum else self._palette.t2)
        draw_text(painter, self.width() - text_width(value, used), middle, value, used, ink)
