"""Throughput as curves, with the capacity as a line from the moment on from which the settings hold."""

from __future__ import annotations

from collections.abc import Sequence

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
from gui.plots.overlay import Dot, Marks
from gui.plots.paint import draw_text, font, pen, text_width
from gui.plots.panel import Moment, PlotPanel
from gui.series import throughput
from gui.series.declaration import Readout
from gui.series.prediction import CapacityLevel, CapacityLine, with_capacity
from gui.series.scale import StepScale
from gui.series.throughput import Throughput
from gui.series.time_range import TimeRange
from service.analysis.observed.history import History


class CapacityItem(Overlay):
    """A line in each pane with its value on it; where it lies above the pane, only the value, with an arrow."""

    def __init__(self) -> None:
        super().__init__(z=15)
        self._line: CapacityLine | None = None

    def set_line(self, layout: Layout, line: CapacityLine | None) -> None:
        self._line = line
        self._lay_out(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        layout, line = self._layout, self._line
        if layout is None or line is None:
            return
        left = max(int(layout.x_of(line.since_s)), layout.left)
        if left >= layout.right:
            return
        for pane, level in zip(layout.panes, line.levels, strict=True):
            self._paint_level(painter, layout, pane, level, left)

    def _paint_level(self, painter: QPainter, layout: Layout, pane: Pane, level: CapacityLevel, left: int) -> None:
        y, half = round(pane.y_of(level.per_s)), tokens.FONT_CAPTION / 2 + tokens.CAPACITY_TEXT
        is_above = y < pane.top
        if is_above:
            middle = pane.top + half
        else:
            painter.setPen(pen(current().t2, tokens.LINE_EDGE, tokens.DASH_CAPACITY))
            painter.drawLine(QLineF(left, y + 0.5, layout.right, y + 0.5))
            middle = y - half if y - 2 * half >= pane.top else y + half
        words = f"↑ {level.words}" if is_above else level.words
        start = left + tokens.GAP_4  # clear of a flag that stands over the line's beginning
        width = text_width(words, font())
        if start + width < layout.right:
            plate = QRectF(start - tokens.GAP_1, middle - half + 1, width + 2 * tokens.GAP_1, 2 * half - 2)
            painter.fillRect(plate, colour(current().plot, tokens.CAPACITY_PLATE_ALPHA))  # the curve may pass behind
            draw_text(painter, start, middle, words, font(), current().t2)


TOKENS, REQUESTS = 0, 1


class ThroughputPanel(PlotPanel):
    """Grey curves on a faint ground, below what the engine could do.

    Attributes:
        capacity: the line to be drawn, if it is known.
    """

    def __init__(self, history: History) -> None:
        super().__init__(throughput.PLOT, [StepScale(), StepScale()], history, has_axis=True)
        self._rates: Throughput | None = None
        self.capacity: CapacityLine | None = None
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
        for pane, (times, values) in ((TOKENS, self._rates.tokens), (REQUESTS, self._rates.requests)):
            self._curves[pane].show_line(layout.x(times), layout.panes[pane].y(values))
            middles = layout.view.middles()
            heights = np.interp(middles, times, values, left=np.nan, right=np.nan) if len(times) else unknown
            sharp = layout.sharp_pane(pane)
            self._grounds[pane].set_layers(layout, sharp, [plain_layer(self._ground, sharp, heights)])
        times, rates = self._rates.offered
        self._offered.show_line(layout.x(times), layout.panes[REQUESTS].y(rates))
        self._capacity.set_line(layout, self.capacity)

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
