"""The plot of batch sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyqtgraph as pg

from gui.history import History
from gui.plots.canvas import curve
from gui.plots.frame import Layout
from gui.plots.paint import brush, pen
from gui.plots.panel import PlotPanel
from gui.series import batch_size
from gui.series.batch_size import Bars, BatchSizes
from gui.series.declaration import Readout
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from gui.store.batches import REASONS
from gui.tokens import BAR_GAP, DASH_CAP, LINE_MARKER, MARK_SIZES, Palette
from service.messages import ReleaseReason

SYMBOLS: Final[Mapping[ReleaseReason, str]] = {"full": "s", "timeout": "o", "drained": "t1"}


class BatchSizePanel(PlotPanel):
    """Bars behind, the cap above them, a mark for every batch on top."""

    def __init__(self, history: History, palette: Palette, has_axis: bool = False) -> None:
        scale = StepScale(most_ticks=5, least_step=1)
        super().__init__(batch_size.PLOT, [scale], history, palette, has_axis)
        self._sizes: BatchSizes | None = None
        self._bars = {reason: pg.BarGraphItem(x0=[], x1=[], y0=[], y1=[], pen=None) for reason in REASONS}
        self._cap = curve()
        self._cap.opts["antialias"] = False
        self._marks = {
            reason: pg.ScatterPlotItem(symbol=SYMBOLS[reason], size=MARK_SIZES[reason], pen=None, antialias=True)
            for reason in REASONS
        }
        for item in (*self._bars.values(), self._cap, *self._marks.values()):
            self.canvas.add_data(item)
        self.set_colors(palette)

    @property
    def hides_missing_under_pointer(self) -> bool:
        return True

    def set_colors(self, palette: Palette) -> None:
        for reason in REASONS:
            ink = palette.release_reasons[reason]
            self._bars[reason].setOpts(brush=brush(ink, palette.bar_alpha), pen=None)
            self._marks[reason].setBrush(brush(ink))
        self._cap.setPen(pen(palette.t2, LINE_MARKER, DASH_CAP))

    def compute(self, view: TimeRange, height: int) -> tuple[float, ...]:
        self._sizes = batch_size.batch_sizes(self.history, view)
        return (self._sizes.peak,)

    def draw(self, layout: Layout) -> None:
        assert self._sizes is not None
        for reason, bars in self._sizes.bars.items():
            self._draw_bars(layout, reason, bars)
        times, caps = self._sizes.cap
        self._cap.setData(np.floor(layout.x(times)) + 0.5, np.floor(layout.strips[0].y(caps)) + 0.5)

    def readout_now(self) -> Readout:
        return batch_size.summary(self.history, self._sizes) if self._sizes is not None else {}

    def readout_at(self, at_s: float) -> Readout:
        return batch_size.readout(self.history, at_s)

    def _draw_bars(self, layout: Layout, reason: ReleaseReason, bars: Bars) -> None:
        strip = layout.strips[0]
        left, right = np.floor(layout.x(bars.left)), np.floor(layout.x(bars.right))
        right = np.maximum(right - BAR_GAP, left + 1)
        tops = np.round(strip.y(bars.size))
        self._bars[reason].setOpts(x0=left, x1=right, y0=tops, y1=np.full(len(tops), float(strip.bottom)))
        middles = np.floor((left + right) / 2)[bars.marks] + 0.5
        self._marks[reason].setData(middles, tops[bars.marks] + 0.5)
