"""The plot of throughput: two strips, each with a scale of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gui.look.tokens import DASH_CAP, LINE_EDGE, LINE_MARKER, THROUGHPUT_FILL_ALPHA, Palette
from gui.plots.canvas import curve
from gui.plots.capacity import CapacityItem
from gui.plots.columns import ColumnsItem, Ink, plain_layer
from gui.plots.frame import Layout
from gui.plots.marks import Marks
from gui.plots.paint import color, pen
from gui.plots.panel import Moment, PlotPanel
from gui.plots.pointer import Dot
from gui.series import throughput
from gui.series.capacity import CapacityLine, with_capacity
from gui.series.declaration import Readout
from gui.series.scale import StepScale
from gui.series.throughput import Throughput
from gui.series.time_range import TimeRange
from service.analysis.observed.history import History

TOKENS, REQUESTS = 0, 1


class ThroughputPanel(PlotPanel):
    """Grey curves on a faint ground, below what the engine could do.

    Attributes:
        capacity: the line to be drawn, if it is known.
    """

    def __init__(self, history: History, palette: Palette, has_axis: bool = True) -> None:
        scales = [StepScale(most_ticks=3, least_step=1) for _ in (TOKENS, REQUESTS)]
        super().__init__(throughput.PLOT, scales, history, palette, has_axis)
        self._rates: Throughput | None = None
        self.capacity: CapacityLine | None = None
        self._capacity = CapacityItem(palette)
        self._curves = (curve(), curve())
        self._grounds = (ColumnsItem(), ColumnsItem())
        self._offered = curve()
        self._offered.opts["antialias"] = False
        for strip in (TOKENS, REQUESTS):
            self.canvas.add_data(self._grounds[strip], strip)
        self.canvas.add_data(self._offered, REQUESTS)
        for strip in (TOKENS, REQUESTS):
            self.canvas.add_data(self._curves[strip], strip)
        self.canvas.addItem(self._capacity)
        self.set_colors(palette)

    def follow(self, moment: Moment, marks: Marks) -> None:
        self.declare(throughput.declared(self.history.unit))
        super().follow(moment, marks)

    def set_colors(self, palette: Palette) -> None:
        self._ground = Ink.of(color(palette.running, THROUGHPUT_FILL_ALPHA))
        for line in self._curves:
            line.setPen(pen(palette.running, LINE_EDGE))
        self._capacity.set_palette(palette)
        self._offered.setPen(pen(palette.t3, LINE_MARKER, DASH_CAP))

    def compute(self, view: TimeRange, height: int) -> tuple[float, ...]:
        self._rates = throughput.throughput(self.history, view)
        return self._rates.peaks if self.capacity is None else with_capacity(self._rates.peaks, self.capacity)

    def draw(self, layout: Layout) -> None:
        assert self._rates is not None
        for strip, (times, values) in ((TOKENS, self._rates.tokens), (REQUESTS, self._rates.requests)):
            axis = layout.strips[strip]
            is_known = len(values) > 0 and not np.isnan(values).all()
            self._curves[strip].setVisible(is_known)
            self._grounds[strip].setVisible(is_known)
            if is_known:
                self._curves[strip].setData(layout.x(times), axis.y(values))
                middles = layout.view.start_s + (np.arange(layout.view.columns) + 0.5) * layout.view.column_s
                heights = np.interp(middles, times, values, left=np.nan, right=np.nan)
                sharp = layout.sharp_strip(strip)
                self._grounds[strip].set_layers(layout, sharp, [plain_layer(self._ground, sharp, heights)])
        self._draw_offered(layout)
        self._capacity.set_line(layout, self.capacity)

    @property
    def besides(self) -> object:
        return self.capacity

    def readout_now(self) -> Readout:
        at_s = self.end_s if self.end_s is not None else self.history.now_s()
        return throughput.readout(self.history, at_s, self.seconds_per_pixel())

    def readout_at(self, at_s: float) -> Readout:
        return throughput.readout(self.history, at_s, self.seconds_per_pixel())

    def dots_at(self, layout: Layout, at_s: float) -> Sequence[Dot]:
        tokens, requests, _ = throughput.values_at(self.history, at_s, layout.view.pixel_s)
        values = ((TOKENS, tokens), (REQUESTS, requests))
        return [Dot(layout.strips[n].y_of(value), self.palette_.running) for n, value in values if value == value]

    def _draw_offered(self, layout: Layout) -> None:
        assert self._rates is not None
        times, rates = self._rates.offered
        is_known = len(rates) > 0 and not np.isnan(rates).all()
        self._offered.setVisible(is_known)
        if is_known:
            self._offered.setData(np.floor(layout.x(times)) + 0.5, np.floor(layout.strips[REQUESTS].y(rates)) + 0.5)
