"""Throughput as curves, with the capacity as a line from the moment on from which the settings hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from PySide6.QtCore import QLineF, QRectF
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look import tokens
from gui.look.theme import colour, current
from gui.look.tokens import Palette
from gui.plots.canvas import Curve
from gui.plots.columns import ColumnsItem, Ink, plain_layer
from gui.plots.layout import Layout, Overlay, Pane
from gui.plots.marks import Marks, spans_taken
from gui.plots.overlay import Dot
from gui.plots.paint import draw_text, font, pen, text_width
from gui.plots.panel import Moment, PlotPanel
from gui.series import throughput
from gui.series.declaration import Readout
from gui.series.prediction import CapacityLevel, CapacityLine, with_capacity
from gui.series.scale import StepScale
from gui.series.throughput import Throughput
from gui.series.time_range import TimeRange
from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History

Points: TypeAlias = tuple[Floats, Floats]  # of a curve, in pixels
Span: TypeAlias = tuple[int, int]  # the first and the last pixel of what stands there
HALF: Final = tokens.FONT_CAPTION / 2 + tokens.CAPACITY_TEXT  # the height of a value, with the room around it


@dataclass(frozen=True)
class Label:
    """What stands beside a line, with its left end and its middle in pixels."""

    words: str
    left: float
    middle: float


class CapacityItem(Overlay):
    """A line in each pane with its value beside it; where it lies above the pane, only the value, with an arrow.

    The value stands where neither a curve nor a mark passes, or nowhere.
    """

    def __init__(self) -> None:
        super().__init__(z=15)
        self._lines: list[QLineF] = []
        self._labels: list[Label] = []

    @property
    def labels(self) -> list[QRectF]:
        """The places of the values."""
        height = 2 * HALF - 2
        return [
            QRectF(each.left, each.middle - height / 2, text_width(each.words, font()), height) for each in self._labels
        ]

    def set_line(
        self, layout: Layout, line: CapacityLine | None, curves: Sequence[Sequence[Points]], marks: Sequence[Span]
    ) -> None:
        """Lie where `curves`, those of each pane in pixels, and `marks` on all of them leave room."""
        self._lines, self._labels = [], []
        left = layout.right if line is None else max(int(layout.x_of(line.since_s)), layout.left)
        if line is not None and left < layout.right:
            for pane, level, crossing in zip(layout.panes, line.levels, curves, strict=True):
                self._set_level(layout, pane, level, left, crossing, marks)
        self._lay_out(layout)

    def _set_level(
        self,
        layout: Layout,
        pane: Pane,
        level: CapacityLevel,
        left: int,
        curves: Sequence[Points],
        marks: Sequence[Span],
    ) -> None:
        y = round(pane.y_of(level.per_s))
        is_above = y < pane.top
        middles = [pane.top + HALF]
        if not is_above:
            self._lines.append(QLineF(left, y + 0.5, layout.right, y + 0.5))
            middles = [y - HALF] * (y - 2 * HALF >= pane.top) + [y + HALF] * (y + 2 * HALF <= pane.bottom)
        words = f"↑ {level.words}" if is_above else level.words
        begin = left + tokens.GAP_4  # clear of a flag over its begin
        width = text_width(words, font())
        for middle in middles:
            free = _free_left(curves, marks, begin, int(layout.right), width, middle)
            if free is not None:
                self._labels.append(Label(words, free, middle))
                return

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        painter.setPen(pen(current().t2, tokens.LINE_EDGE, tokens.DASH_CAPACITY))
        painter.drawLines(self._lines)
        for each in self._labels:
            draw_text(painter, each.left, each.middle, each.words, font(), current().t2)


def _free_left(
    curves: Sequence[Points], marks: Sequence[Span], begin: int, end: int, width: float, middle: float
) -> int | None:
    """The leftmost place between both x for words of this width, in pixels; ``None`` where nothing leaves room."""
    count, room = end - begin + 1, math.ceil(width) + 2 * tokens.GAP_1
    if count <= room:
        return None
    columns = np.arange(begin - tokens.GAP_1, end + 1 - tokens.GAP_1, dtype=float)
    crossed = np.zeros(count, np.bool_)
    for first, last in marks:
        crossed[max(first - begin + tokens.GAP_1, 0) : max(last + 1 - begin + tokens.GAP_1, 0)] = True
    for xs, ys in curves:
        if not len(xs):
            continue
        heights = np.interp(columns, xs, ys, left=np.nan, right=np.nan)
        low, high = heights.copy(), heights.copy()  # of the curve from each column to the next, its corners included
        low[:-1], high[:-1] = np.fmin(heights[:-1], heights[1:]), np.fmax(heights[:-1], heights[1:])
        column = np.floor(xs - columns[0])
        inside = (column >= 0) & (column < count) & ~np.isnan(ys)
        np.fmin.at(low, column[inside].astype(int), ys[inside])
        np.fmax.at(high, column[inside].astype(int), ys[inside])
        crossed |= (low <= middle + HALF) & (high >= middle - HALF)
    before = np.concatenate([[0], np.cumsum(crossed)])
    free = np.flatnonzero(before[room:] == before[:-room])
    return begin + int(free[0]) if len(free) else None


TOKENS, REQUESTS = 0, 1


class ThroughputPanel(PlotPanel):
    """Grey curves on a faint ground, below what the engine could do.

    Attributes:
        capacity: the line to be drawn, if it is known.
        drawn_capacity: the line that is drawn.
    """

    def __init__(self, history: History) -> None:
        super().__init__(throughput.PLOT, [StepScale(), StepScale()], history, has_axis=True)
        self._rates: Throughput | None = None
        self.capacity: CapacityLine | None = None
        self.drawn_capacity: CapacityLine | None = None
        self._marks = Marks()
        self._capacity = CapacityItem()
        self._curves = (Curve(), Curve())
        self._grounds = (ColumnsItem(), ColumnsItem())
        self._offered = Curve(is_sharp=True)
        for pane in (TOKENS, REQUESTS):
            self.canvas.add_data(self._grounds[pane], pane)
        self.canvas.add_data(self._offered, REQUESTS)
        for pane in (TOKENS, REQUESTS):
            self.canvas.add_data(self._curves[pane], pane)
        self.canvas.addItem(self._capacity)
        self.set_colors(current())

    def follow(self, moment: Moment, marks: Marks) -> None:
        self.declare(throughput.declared(self.history.unit))
        self._marks = marks
        super().follow(moment, marks)

    def set_colors(self, palette: Palette) -> None:
        self._ground = Ink.of(colour(palette.running, tokens.THROUGHPUT_FILL_ALPHA))
        for line in self._curves:
            line.setPen(pen(palette.running, tokens.LINE_EDGE))
        self._offered.setPen(pen(palette.t3, tokens.LINE_MARKER, tokens.DASH_CAP))

    def compute(self, view: TimeRange) -> tuple[float, ...]:
        self._rates = throughput.throughput(self.history, view)
        return self._rates.peaks if self.capacity is None else with_capacity(self._rates.peaks, self.capacity)

    def draw(self, layout: Layout) -> None:
        assert self._rates is not None
        unknown = np.full(layout.view.columns, np.nan)
        drawn: list[list[Points]] = [[], []]
        for pane, (times, values) in ((TOKENS, self._rates.tokens), (REQUESTS, self._rates.requests)):
            drawn[pane].append((layout.x(times), layout.panes[pane].y(values)))
            self._curves[pane].show_line(*drawn[pane][0])
            middles = layout.view.middles()
            heights = np.interp(middles, times, values, left=np.nan, right=np.nan) if len(times) else unknown
            sharp = layout.sharp_pane(pane)
            self._grounds[pane].set_layers(layout, sharp, [plain_layer(self._ground, sharp, heights)])
        times, rates = self._rates.offered
        drawn[REQUESTS].append((layout.x(times), layout.panes[REQUESTS].y(rates)))
        self._offered.show_line(*drawn[REQUESTS][1])
        self._capacity.set_line(layout, self.capacity, drawn, spans_taken(layout, self._marks))
        self.drawn_capacity = self.capacity

    @property
    def besides(self) -> object:
        return self.capacity

    def readout_now(self) -> Readout:
        return throughput.readout_of(self.figures, self.history.unit)

    def readout_at(self, at_s: float) -> Readout:
        return throughput.readout_at(self.history, at_s, self.seconds_per_pixel())

    def dots_at(self, layout: Layout, at_s: float) -> Sequence[Dot]:
        tokens, requests, _ = throughput.values_at(self.history, at_s, layout.view.pixel_s)
        values = ((TOKENS, tokens), (REQUESTS, requests))
        return [Dot(layout.panes[n].y_of(value), current().running) for n, value in values if value == value]
