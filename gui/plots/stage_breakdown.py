"""Where the time went, as bars of stages for the mean and for p95, with a table of the seconds beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from gui.plots.header import Header
from gui.plots.paint import bold, draw_text, font, pen, text_width
from gui.plots.stage_inks import paint_stages, segments, stage_inks
from gui.series.declaration import Declaration
from gui.series.scale import StepScale
from gui.series.stage_breakdown import StageBreakdown
from gui.tokens import (
    FONT_CAPTION,
    FONT_TEXT,
    GAP_1,
    GAP_2,
    GAP_4,
    LEGEND_SWATCH,
    LINE_GRID,
    LINE_MARKER,
    PANEL_PADDING,
    PLOT_AXIS,
    PLOT_MARGIN_RIGHT,
    RADIUS_INNER,
    STAGE_BAR,
    STAGE_BAR_BEFORE,
    STAGE_GUTTER,
    STAGE_LINE,
    STAGE_NUMBER,
    STAGE_TABLE,
    STAGE_TOTAL,
    Palette,
)
from service.observed.columns import Floats
from service.observed.stages import STAGES

PLOT: Final = Declaration(
    name="stage-breakdown",
    title="Where the time goes",
    unit="stages of a request, from its intended send to its last token",
    entries=(),
    empty_text="How long requests spend in each of their stages",
)
NAMES: Final = ("mean", "p95")


@dataclass(frozen=True)
class Bar:
    """One line of stages, and its place."""

    name: str
    spans_s: Floats
    top: float
    height: float
    is_before: bool


class StageBreakdownPlot(QWidget):
    """The present settings in full, those before as thinner bars below; a stage pointed at stands out in the table."""

    def __init__(self, palette: Palette, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.header = Header(PLOT, palette)
        self.bars = StageBars(palette)
        self.setAccessibleName(PLOT.title)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.header)
        layout.addWidget(self.bars, 1)

    def set_palette(self, palette: Palette) -> None:
        self.header.set_palette(palette)
        self.bars.set_palette(palette)


class StageBars(QWidget):
    """Painted anew when the figures change, four times a second."""

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self._palette = palette
        self._now: StageBreakdown | None = None
        self._before: StageBreakdown | None = None
        self._before_name = ""
        self._is_empty = False
        self._pointed: int | None = None
        self._scale = StepScale(most_ticks=6, least_step=0.1)
        self.setMouseTracking(True)

    @property
    def pointed(self) -> int | None:
        """The stage under the pointer, as its place in `STAGES`."""
        return self._pointed

    def set_palette(self, palette: Palette) -> None:
        self._palette = palette
        self.update()

    def set_empty(self, is_empty: bool) -> None:
        self._is_empty = is_empty
        self.update()

    def show_stages(
        self, now: StageBreakdown | None, before: StageBreakdown | None, before_name: str, now_s: float
    ) -> None:
        self._now, self._before, self._before_name = now, before, before_name
        sums = [float(each.at_p95.sum()) for each in (now, before) if each is not None]
        means = [float(each.mean.sum()) for each in (now, before) if each is not None]
        self._scale.fit(max((*sums, *means), default=0.0), now_s)
        self.update()

    # ------------------------------------------------------------------------------------------------------- pointer

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self._stage_at(event.position()))

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._point(None)

    def _point(self, stage: int | None) -> None:
        if stage != self._pointed:
            self._pointed = stage
            self.setToolTip("" if stage is None else f"{STAGES[stage].title}: {STAGES[stage].meaning}")
            self.update()

    def _stage_at(self, place: QPointF) -> int | None:
        line = int((place.y() - self._table_top()) // STAGE_LINE) - 1
        if place.x() >= self._table_left():
            return line if 0 <= line < len(STAGES) else None
        for bar in self._bars():
            if bar.top <= place.y() < bar.top + bar.height:
                placed = segments(bar.spans_s.tolist(), STAGE_GUTTER, self._pixels_per_s())
                return next((n for n, (left, right) in enumerate(placed) if left <= place.x() < right), None)
        return None

    # ------------------------------------------------------------------------------------------------------ painting

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._palette.plot))
        if self._is_empty:
            painter.setFont(font(FONT_TEXT))
            painter.setPen(QColor(self._palette.t3))
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, PLOT.empty_text)
        else:
            self._paint_grid(painter)
            for bar in self._bars():
                self._paint_bar(painter, bar)
            self._paint_table(painter)
        painter.end()

    def _paint_grid(self, painter: QPainter) -> None:
        bottom = self.height() - PLOT_AXIS
        for value in self._scale.axis.ticks:
            x = round(STAGE_GUTTER + value * self._pixels_per_s())
            painter.setPen(pen(self._palette.grid if value else self._palette.line, LINE_GRID))
            painter.drawLine(x, 0, x, bottom)
            text = f"{self._scale.axis.label(value)} s"
            draw_text(painter, x - text_width(text, font()) / 2, bottom + PLOT_AXIS / 2, text, font(), self._palette.t3)

    def _paint_bar(self, painter: QPainter, bar: Bar) -> None:
        inks = stage_inks(self._palette)
        placed = segments(bar.spans_s.tolist(), STAGE_GUTTER, self._pixels_per_s())
        used = font(FONT_CAPTION) if bar.is_before else font(FONT_TEXT)
        middle = bar.top + bar.height / 2
        name_left = STAGE_GUTTER - GAP_2 - text_width(bar.name, used)
        draw_text(painter, name_left, middle, bar.name, used, self._palette.t3 if bar.is_before else self._palette.t2)
        paint_stages(painter, placed, bar.top, bar.height, inks)
        total = f"{bar.spans_s.sum():.2f} s"
        strong = font(FONT_CAPTION) if bar.is_before else bold(FONT_TEXT)
        draw_text(
            painter,
            placed[-1][1] + GAP_2,
            middle,
            total,
            strong,
            self._palette.t3 if bar.is_before else self._palette.t1,
        )
        if self._pointed is not None and placed[self._pointed][1] > placed[self._pointed][0]:
            left, right = placed[self._pointed]
            painter.setPen(pen(self._palette.t1, LINE_MARKER))
            painter.drawRect(QRectF(left - 0.5, bar.top - 1.5, right - left, bar.height + 2))

    def _paint_table(self, painter: QPainter) -> None:
        left, middle = self._table_left(), self._table_top() + STAGE_LINE / 2
        edges = self._number_edges()
        heads = ("mean", "p95") if self._before is None else ("mean", "p95", f"{self._before_name} mean")
        for head, edge in zip(heads, edges, strict=False):
            draw_text(painter, edge - text_width(head, font()), middle, head, font(), self._palette.t3)
        for n, (stage, ink) in enumerate(zip(STAGES, stage_inks(self._palette), strict=True)):
            middle += STAGE_LINE
            if n == self._pointed:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(QColor(self._palette.hover))
                ground = QRectF(left - GAP_1, middle - STAGE_LINE / 2, edges[-1] - left + 2 * GAP_1, STAGE_LINE)
                painter.drawRoundedRect(ground, RADIUS_INNER, RADIUS_INNER)
            painter.fillRect(QRectF(left, round(middle) - LEGEND_SWATCH // 2, LEGEND_SWATCH, LEGEND_SWATCH), ink)
            draw_text(painter, left + LEGEND_SWATCH + GAP_2, middle, stage.title, font(FONT_TEXT), self._palette.t2)
            self._paint_numbers(painter, n, middle, edges)

    def _paint_numbers(self, painter: QPainter, stage: int, middle: float, edges: Sequence[float]) -> None:
        values = [None, None] if self._now is None else [self._now.mean[stage], self._now.at_p95[stage]]
        if self._before is not None:
            values.append(self._before.mean[stage])
        for n, (value, edge) in enumerate(zip(values, edges, strict=False)):
            text = "–" if value is None else f"{value:.3f}"
            used = bold() if n == 0 else font()
            draw_text(
                painter,
                edge - text_width(text, used),
                middle,
                text,
                used,
                self._palette.t1 if n == 0 else self._palette.t2,
            )

    # ------------------------------------------------------------------------------------------------------ geometry

    def _bars(self) -> list[Bar]:
        """From top to bottom, centred about the middle of their room."""
        each = STAGE_BAR + (GAP_1 + STAGE_BAR_BEFORE if self._before is not None else 0)
        top = max((self.height() - PLOT_AXIS - len(NAMES) * each - GAP_4) / 2, 0.0)
        bars = []
        for name in NAMES:
            for found, before in ((self._now, False), (self._before, True)):
                if found is not None:
                    spans = found.mean if name == "mean" else found.at_p95
                    shift = STAGE_BAR + GAP_1 if before else 0
                    height = STAGE_BAR_BEFORE if before else STAGE_BAR
                    title = self._before_name if before else name
                    bars.append(Bar(title, spans, round(top + shift), height, before))
            top += each + GAP_4
        return bars

    def _pixels_per_s(self) -> float:
        room = self._table_left() - GAP_4 - STAGE_TOTAL - STAGE_GUTTER
        return max(room, 1) / self._scale.axis.ceiling

    def _table_left(self) -> int:
        extra = STAGE_NUMBER if self._before is not None else 0
        return self.width() - PLOT_MARGIN_RIGHT - STAGE_TABLE - extra

    def _table_top(self) -> float:
        return max((self.height() - (len(STAGES) + 1) * STAGE_LINE) / 2, 0.0)

    def _number_edges(self) -> list[float]:
        right = self.width() - PANEL_PADDING
        count = 3 if self._before is not None else 2
        return [right - (count - 1 - n) * STAGE_NUMBER for n in range(count)]
