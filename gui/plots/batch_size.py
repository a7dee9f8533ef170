"""The plot of batch sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyqtgraph as pg

from gui.look.tokens import BAR_GAP, DASH_CAP, LINE_MARKER, MARK_SIZES, Palette
from gui.plots.canvas import curve
from gui.plots.columns import ColumnsItem, Ink, Layer, bars_layer, plain_layer, stepped_layer
from gui.plots.frame import Layout, Strip
from gui.plots.paint import blended, brush, color, pen
from gui.plots.panel import PlotPanel
from gui.series import batch_size
from gui.series.batch_size import ActiveRows, Bars, BatchSizes
from gui.series.declaration import Readout
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from service.analysis.observed.batches import REASONS
from service.analysis.observed.columns import Ints
from service.analysis.observed.history import History
from service.messages.settings import ReleaseReason

SYMBOLS: Final[Mapping[ReleaseReason, str]] = {
    "full": "s",
    "timeout": "o",
    "drained": "t1",
    "joined": "d",
    "left": "t",
}


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
        area = Ink.of(color(palette.joined, 2 * palette.bar_alpha))
        ground = blended(palette.joined, palette.plot, 2 * palette.bar_alpha).name()
        self._mean = replace(area, edge=palette.joined, ground=ground)
        self._most = Ink.of(color(palette.joined, palette.bar_alpha))
        self._cap.setPen(pen(palette.t2, LINE_MARKER, DASH_CAP))

    def compute(self, view: TimeRange, height: int) -> tuple[float, ...]:
        self._sizes = batch_size.batch_sizes(self.history, view)
        return (self._sizes.peak,)

    def draw(self, layout: Layout) -> None:
        assert self._sizes is not None
        self.header.declare(batch_size.declared(self._sizes))
        strip, active = layout.sharp_strip(), self._sizes.active
        layers = [] if active is None else self._rows_layers(strip, active)
        layers += [self._bars_of(layout, strip, reason, bars) for reason, bars in self._sizes.bars.items()]
        self._bars.set_layers(layout, strip, layers)
        for reason in REASONS:
            self._draw_marks(layout, reason)
        times, caps = self._sizes.cap
        self._cap.setData(np.floor(layout.x(times)) + 0.5, np.floor(layout.strips[0].y(caps)) + 0.5)

    def readout_now(self) -> Readout:
        return batch_size.summary(self.history, self._sizes) if self._sizes is not None else {}

    def readout_at(self, at_s: float) -> Readout:
        return batch_size.readout(self.history, at_s)

    def _rows_layers(self, strip: Strip, active: ActiveRows) -> list[Layer]:
        """How many ran at most behind how many did on average; the two differ where a column holds many changes."""
        return [plain_layer(self._most, strip, active.most), stepped_layer(self._mean, strip, active.mean, active.mean)]

    def _bars_of(self, layout: Layout, strip: Strip, reason: ReleaseReason, bars: Bars) -> Layer:
        left, right = _edges(layout, bars)
        return bars_layer(self._inks[reason], strip, layout.view.columns, left, right, bars.size)

    def _draw_marks(self, layout: Layout, reason: ReleaseReason) -> None:
        assert self._sizes is not None
        xs, ys = [], []
        for bars in (self._sizes.bars[reason], self._sizes.marked[reason]):
            left, right = _edges(layout, bars)
            xs.append(np.floor((left + right) / 2 / layout.ratio)[bars.marks] + layout.left + 0.5)
            ys.append(np.round(layout.strips[0].y(bars.size[bars.marks])) + 0.5)
        middles = np.concatenate(xs)
        if len(middles) or len(self._marks[reason].data):
            self._marks[reason].setData(middles, np.concatenate(ys))


def _edges(layout: Layout, bars: Bars) -> tuple[Ints, Ints]:
    """The columns of pixels in which they begin, and those before which they end."""
    left, right = (np.floor(layout.view.positions(times)).astype(np.int64) for times in (bars.left, bars.right))
    return left, np.maximum(right - round(BAR_GAP * layout.ratio), left + round(layout.ratio))
