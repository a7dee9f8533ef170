"""Where the time of requests and of the engine goes, as bars, with a table of the seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from gui.look.tokens import (
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
from gui.plots.header import Header
from gui.plots.paint import bold, draw_text, font, pen, text_width
from gui.plots.stage_inks import paint_stages, segments, stage_inks
from gui.series.declaration import Declaration, Readout
from gui.series.scale import StepScale
from gui.series.stage_breakdown import ENTRIES, StageBreakdown
from service.analysis.observed.columns import Floats
from service.analysis.observed.stages import STAGES
from service.messages.text import format_number


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
            text = format_number(value, 3)
            used, ink = (bold(), palette.t1) if n == 0 else (font(), palette.t2)
            draw_text(painter, edge - text_width(text, used), middle, text, used, ink)


PLOT: Final = Declaration(
    name="stage-breakdown",
    title="Where the time goes",
    unit="stages of a request, from its intended send to the end of its answer",
    entries=ENTRIES,
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
        self.show_engine({})
        self.bars = StageBars(palette)
        self.setAccessibleName(PLOT.title)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.header)
        layout.addWidget(self.bars, 1)

    def show_engine(self, shares: Readout) -> None:
        """What the engine did meanwhile; nothing where that is not known."""
        self.header.show_readout(shares, hides_missing=True)

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
        self._scale.fit(max((float(bar.spans_s.sum()) for bar in self._bars()), default=0.0), now_s)
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
            self.setToolTip("" if stage is None else self._explained(stage))
            self.update()

    def _explained(self, place: int) -> str:
        stage = (STAGES if self._now is None else self._now.stages)[place]
        return f"{stage.title}: {stage.meaning}"

    def _stage_at(self, place: QPointF) -> int | None:
        table = self._table
        if place.x() >= table.left:
            return table.stage_at(place)
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
            self._table.paint(painter, self._palette, self._pointed)
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
        placed = segments(bar.spans_s.tolist(), STAGE_GUTTER, self._pixels_per_s())
        paint_stages(painter, placed, bar.top, bar.height, stage_inks(self._palette))
        self._paint_words(painter, bar, placed[-1][1])
        if self._pointed is not None:
            left, right = placed[self._pointed]
            if right > left:
                painter.setPen(pen(self._palette.t1, LINE_MARKER))
                painter.drawRect(QRectF(left - 0.5, bar.top - 1.5, right - left, bar.height + 2))

    def _paint_words(self, painter: QPainter, bar: Bar, end: int) -> None:
        """The name before the bar, the sum after it."""
        middle, quiet = bar.top + bar.height / 2, self._palette.t3
        name = font(FONT_CAPTION if bar.is_before else FONT_TEXT)
        left = STAGE_GUTTER - GAP_2 - text_width(bar.name, name)
        draw_text(painter, left, middle, bar.name, name, quiet if bar.is_before else self._palette.t2)
        number = font(FONT_CAPTION) if bar.is_before else bold(FONT_TEXT)
        total = f"{bar.spans_s.sum():.2f} s"
        draw_text(painter, end + GAP_2, middle, total, number, quiet if bar.is_before else self._palette.t1)

    # ------------------------------------------------------------------------------------------------------ geometry

    @property
    def _table(self) -> StageTable:
        return StageTable(self.size(), self._now, self._before, self._before_name)

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
        room = self._table.left - GAP_4 - STAGE_TOTAL - STAGE_GUTTER
        return max(room, 1) / self._scale.axis.ceiling
