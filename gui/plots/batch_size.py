"""The plot of batch sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyqtgraph as pg

from gui.plots.canvas import curve
from gui.plots.columns import ColumnsItem, Ink, Layer, bars_layer
from gui.plots.frame import Layout
from gui.plots.paint import brush, color, pen
from gui.plots.panel import PlotPanel
from gui.series import batch_size
from gui.series.batch_size import Bars, BatchSizes
from gui.series.declaration import Readout
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from gui.tokens import BAR_GAP, DASH_CAP, LINE_MARKER, MARK_SIZES, Palette
from service.messages.settings import ReleaseReason
from service.observed.batches import REASONS
from service.observed.history import History

SYMBOLS: Final[Mapping[ReleaseReason, str]] = {"full": "s", "timeout": "o", "drained": "t1"}


class BatchSizePanel(PlotPanel):
    """Bars behind, the cap above them, a mark for every batch on top."""

    def __init__(self, history: History, palette: Palette, has_axis: bool = False) -> None:
        scale = StepScale(most_ticks=5, least_step=1)
        super().__init__(batch_size.PLOT, [scale], history, palette, has_axis)
        self._sizes: BatchSizes | None = None
        self._bars = ColumnsItem()
        self._cap = curve()
        self._cap.opts["antialias"] = False
        self._marks = {
            reason: pg.ScatterPlotItem(symbol=SYMBOLS[reason], size=MARK_SIZES[reason], pen=None, antialias=True)
            for reason in REASONS
        }
        for item in (self._bars, self._cap, *self._marks.values()):
            self.canvas.add_data(item)
        self.set_colors(palette)

    @property
    def hides_missing_under_pointer(self) -> bool:
        return True

    def set_colors(self, palette: Palette) -> None:
        self._inks = {}
        for reason in REASONS:
            ink = palette.release_reasons[reason]
            self._inks[reason] = Ink.of(color(ink, palette.bar_alpha))
            self._marks[reason].setBrush(brush(ink))
        self._cap.setPen(pen(palette.t2, LINE_MARKER, DASH_CAP))

    def compute(self, view: TimeRange, height: int) -> tuple[float, ...]:
        self._sizes = batch_size.batch_sizes(self.history, view)
        return (self._sizes.peak,)

    def draw(self, layout: Layout) -> None:
        assert self._sizes is not None
        layers = [self._draw_bars(layout, reason, bars) for reason, bars in self._sizes.bars.items()]
        self._bars.set_layers(layout, layout.strips[0], layers)
        times, caps = self._sizes.cap
        self._cap.setData(np.floor(layout.x(times)) + 0.5, np.floor(layout.strips[0].y(caps)) + 0.5)

    def readout_now(self) -> Readout:
        return batch_size.summary(self.history, self._sizes) if self._sizes is not None else {}

    def readout_at(self, at_s: float) -> Readout:
        return batch_size.readout(self.history, at_s)

    def _draw_bars(self, layout: Layout, reason: ReleaseReason, bars: Bars) -> Layer:
        """Set the marks of one release reason; returns the layer of its bars."""
        strip, view = layout.strips[0], layout.view
        left = np.floor(view.positions(bars.left)).astype(np.int64)
        right = np.floor(view.positions(bars.right)).astype(np.int64)
        right = np.maximum(right - BAR_GAP, left + 1)
        middles = np.floor((left + right) / 2)[bars.marks] + layout.left + 0.5
        if len(middles) or len(self._marks[reason].data):
            self._marks[reason].setData(middles, np.round(strip.y(bars.size[bars.marks])) + 0.5)
        return bars_layer(self._inks[reason], strip, view.columns, left, right, bars.size)
