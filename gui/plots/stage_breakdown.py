"""Where the time of requests and of the engine goes, as bars, with a table of the seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from gui.look import tokens
from gui.look.theme import colour, current
from gui.look.tokens import Palette
from gui.plots.header import Header
from gui.plots.paint import bold, draw_text, draw_text_before, font, pen, swatch_rect, text_width
from gui.plots.stage_strip import paint_stages, segments, stage_inks
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
        self._heads = NAMES if before is None else (*NAMES, f"{before_name} mean")
        right = room.width() - tokens.PANEL_PADDING
        self._edges = [right - n * tokens.STAGE_NUMBER for n in reversed(range(len(self._heads)))]
        self.left = (
            room.width()
            - tokens.PLOT_MARGIN_RIGHT
            - tokens.STAGE_TABLE
            - (0 if before is None else tokens.STAGE_NUMBER)
        )
        self._line = min(tokens.STAGE_LINE, room.height() / (len(STAGES) + 1))
        self._top = (room.height() - (len(STAGES) + 1) * self._line) / 2

    def stage_at(self, place: QPointF) -> int | None:
        """The stage whose line is at a place, as its place in `STAGES`."""
        line = int((place.y() - self._top) // self._line) - 1
        return line if place.x() >= self.left and 0 <= line < len(STAGES) else None

    def paint(self, painter: QPainter, palette: Palette, pointed: int | None) -> None:
        middle = self._top + self._line / 2
        for head, edge in zip(self._heads, self._edges, strict=True):
            draw_text_before(painter, edge, middle, head, font(), palette.t3)
        for n, (stage, ink) in enumerate(zip(self._stages, stage_inks(palette), strict=True)):
            middle += self._line
            if n == pointed:
                self._paint_ground(painter, middle, palette)
            painter.fillRect(swatch_rect(self.left, middle), ink)
            title_left = self.left + tokens.LEGEND_SWATCH + tokens.GAP_2
            draw_text(painter, title_left, middle, stage.title, font(tokens.FONT_TEXT), palette.t2)
            self._paint_numbers(painter, self._lines[n], middle, palette)

    def _paint_ground(self, painter: QPainter, middle: float, palette: Palette) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour(palette.hover))
        left, top = self.left - tokens.GAP_1, middle - self._line / 2
        ground = QRectF(left, top, self._edges[-1] + tokens.GAP_1 - left, self._line)
        painter.drawRoundedRect(ground, tokens.RADIUS_INNER, tokens.RADIUS_INNER)

    def _paint_numbers(
        self, painter: QPainter, values: Sequence[float | None], middle: float, palette: Palette
    ) -> None:
        """The mean of the present settings stands out."""
        for n, (value, edge) in enumerate(zip(values, self._edges, strict=True)):
            used, ink = (bold(), palette.t1) if n == 0 else (font(), palette.t2)
            draw_text_before(painter, edge, middle, format_number(value, 3), used, ink)


PLOT: Final = Declaration(
    name="stage-breakdown",
    title="Where the time goes",
    unit="stages of a request, from its intended send to the end of its answer",
    entries=ENTRIES,
    empty_text="How long requests spend in each of their stages",
)
NAMES: Final = ("mean", "near p95")  # the mean of the requests about p95, which is not quite p95


@dataclass(frozen=True)
class Bar:
    """One line of stages, and its place."""

    name: str
    spans_s: Floats
    top: float
    height: float
    is_before: bool


class StageBreakdownPlot(QWidget):
    """The present settings as full bars, the settings before as thinner bars below; the stage under the pointer is
    highlighted in the table."""

    def __init__(self) -> None:
        super().__init__()
        self.header = Header(PLOT)
        self.show_engine({})
        self.bars = StageBars()
        self.setAccessibleName(PLOT.title)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.header)
        layout.addWidget(self.bars, 1)

    def show_engine(self, shares: Readout) -> None:
        """What the engine did meanwhile; nothing where that is not known."""
        self.header.show_readout(shares, hides_missing=True)


class StageBars(QWidget):
    """Painted anew when the figures change, four times a second.

    Attributes:
        pointed: the stage under the pointer, as its place in `STAGES`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now: StageBreakdown | None = None
        self._before: StageBreakdown | None = None
        self._before_name = ""
        self._is_empty = False
        self.pointed: int | None = None
        self._scale = StepScale(most_ticks=6, least_step=0.1)
        self.setMouseTracking(True)

    def set_empty(self, is_empty: bool) -> None:
        self._is_empty = is_empty
        self.update()

    def show_stages(
        self, now: StageBreakdown | None, before: StageBreakdown | None, before_name: str, now_s: float
    ) -> None:
        self._now, self._before, self._before_name = now, before, before_name
        self._scale.fit(max((float(bar.spans_s.sum()) for bar in self._bars()), default=0.0), now_s)
        self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self._stage_at(event.position()))

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._point(None)

    def _point(self, stage: int | None) -> None:
        if stage != self.pointed:
            self.pointed = stage
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
                placed = segments(bar.spans_s.tolist(), tokens.STAGE_GUTTER, self._pixels_per_s())
                return next((n for n, (left, right) in enumerate(placed) if left <= place.x() < right), None)
        return None

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, palette = QPainter(self), current()
        painter.fillRect(self.rect(), colour(palette.plot))
        if self._is_empty:
            painter.setFont(font(tokens.FONT_TEXT))
            painter.setPen(colour(palette.t3))
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, PLOT.empty_text)
        else:
            self._paint_grid(painter, palette)
            for bar in self._bars():
                self._paint_bar(painter, bar, palette)
            self._table.paint(painter, palette, self.pointed)
        painter.end()

    def _paint_grid(self, painter: QPainter, palette: Palette) -> None:
        bottom = self.height() - tokens.PLOT_AXIS
        for value in self._scale.axis.ticks:
            x = round(tokens.STAGE_GUTTER + value * self._pixels_per_s())
            painter.setPen(pen(palette.grid if value else palette.line, tokens.LINE_GRID))
            painter.drawLine(x, 0, x, bottom)
            text = f"{self._scale.axis.label(value)} s"
            left = x - text_width(text, font()) / 2
            draw_text(painter, left, bottom + tokens.PLOT_AXIS / 2, text, font(), palette.t3)

    def _paint_bar(self, painter: QPainter, bar: Bar, palette: Palette) -> None:
        placed = segments(bar.spans_s.tolist(), tokens.STAGE_GUTTER, self._pixels_per_s())
        paint_stages(painter, placed, bar.top, bar.height, stage_inks(palette))
        name = number = (font(), palette.t3)
        if not bar.is_before:
            name, number = (font(tokens.FONT_TEXT), palette.t2), (bold(tokens.FONT_TEXT), palette.t1)
        middle = bar.top + bar.height / 2
        draw_text_before(painter, tokens.STAGE_GUTTER - tokens.GAP_2, middle, bar.name, *name)
        draw_text(painter, placed[-1][1] + tokens.GAP_2, middle, f"{bar.spans_s.sum():.2f} s", *number)
        if self.pointed is not None:
            left, right = placed[self.pointed]
            if right > left:
                painter.setPen(pen(palette.t1, tokens.LINE_MARKER))
                painter.drawRect(QRectF(left - 0.5, bar.top - 1.5, right - left, bar.height + 2))

    @property
    def _table(self) -> StageTable:
        return StageTable(self.size(), self._now, self._before, self._before_name)

    def _bars(self) -> list[Bar]:
        """From top to bottom, centred about the middle of their room."""
        each = tokens.STAGE_BAR + (tokens.GAP_1 + tokens.STAGE_BAR_BEFORE if self._before is not None else 0)
        top = max((self.height() - tokens.PLOT_AXIS - len(NAMES) * each - tokens.GAP_4) / 2, 0.0)
        bars = []
        for name in NAMES:
            for found, before in ((self._now, False), (self._before, True)):
                if found is not None:
                    spans = found.mean if name == "mean" else found.at_p95
                    shift = tokens.STAGE_BAR + tokens.GAP_1 if before else 0
                    height = tokens.STAGE_BAR_BEFORE if before else tokens.STAGE_BAR
                    title = self._before_name if before else name
                    bars.append(Bar(title, spans, round(top + shift), height, before))
            top += each + tokens.GAP_4
        return bars

    def _pixels_per_s(self) -> float:
        room = self._table.left - tokens.GAP_4 - tokens.STAGE_TOTAL - tokens.STAGE_GUTTER
        return max(room, 1) / self._scale.axis.ceiling
