"""The plot of batch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyqtgraph as pg

from gui.look.theme import colour, current
from gui.look.tokens import BAR_GAP, DASH_CAP, LINE_MARKER, MARK_SIZES, Palette
from gui.plots.canvas import Curve
from gui.plots.columns import ColumnsItem, Ink, bars_layer, plain_layer, stepped_layer
from gui.plots.layout import Layout
from gui.plots.paint import blended, pen
from gui.plots.panel import PlotPanel
from gui.series import batch_size
from gui.series.batch_size import Bars, BatchSizes
from gui.series.declaration import SWATCHES, Readout, Swatch
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from service.analysis.observed.batches import REASONS
from service.analysis.observed.columns import Ints
from service.analysis.observed.history import History
from service.messages.settings import ReleaseReason
from service.messages.text import UNKNOWN

SYMBOLS: Final[Mapping[Swatch, str]] = {"square": "s", "circle": "o", "triangle": "t1", "diamond": "d", "caret": "t"}
"""What pyqtgraph calls them."""


class BatchSizePanel(PlotPanel):
    """Bars behind, the cap above them, a mark for every batch on top."""

    hides_missing_under_pointer = True

    def __init__(self, history: History) -> None:
        super().__init__(batch_size.PLOT, [StepScale()], history, has_axis=False)
        self._sizes: BatchSizes | None = None
        self._bars = ColumnsItem()
        self._cap, self._budget = Curve(is_sharp=True), Curve(is_sharp=True)
        self._marks = {
            reason: pg.ScatterPlotItem(
                symbol=SYMBOLS[SWATCHES[reason]], size=MARK_SIZES[reason], pen=None, antialias=True
            )
            for reason in REASONS
        }
        for item in (self._bars, self._cap, self._budget, *self._marks.values()):
            self.canvas.add_data(item)
        self.set_colors(current())

    def set_colors(self, palette: Palette) -> None:
        self._inks = {}
        for reason in REASONS:
            ink = palette.release_reasons[reason]
            self._inks[reason] = Ink.of(colour(ink, palette.bar_alpha))
            self._marks[reason].setBrush(colour(ink))
        area = Ink.of(colour(palette.joined, 2 * palette.bar_alpha))
        ground = blended(palette.joined, palette.plot, 2 * palette.bar_alpha).name()
        self._mean = replace(area, edge=palette.joined, ground=ground)
        self._most = Ink.of(colour(palette.joined, palette.bar_alpha))
        self._cap.setPen(pen(palette.t2, LINE_MARKER, DASH_CAP))
        self._budget.setPen(pen(palette.t1, LINE_MARKER, DASH_CAP))

    def compute(self, view: TimeRange) -> tuple[float, ...]:
        self._sizes = batch_size.batch_sizes(self.history, view)
        return (self._sizes.peak,)

    def draw(self, layout: Layout) -> None:
        assert self._sizes is not None
        self.header.declare(batch_size.declared(self._sizes, self.history.knows_cap))
        pane, active = layout.sharp_pane(), self._sizes.active
        layers = []
        if active is not None:  # at most behind on average: they differ where a column holds many changes
            layers.append(plain_layer(self._most, pane, active.most))
            layers.append(stepped_layer(self._mean, pane, active.mean, active.mean))
        for reason, bars in self._sizes.bars.items():
            left, right = _edges(layout, bars)
            layers.append(bars_layer(self._inks[reason], pane, layout.view.columns, left, right, bars.size))
        self._bars.set_layers(layout, pane, layers)
        for reason in REASONS:
            self._draw_marks(layout, reason, (self._sizes.bars[reason], self._sizes.marked[reason]))
        for line, (times, values) in ((self._cap, self._sizes.cap), (self._budget, self._sizes.budget)):
            line.show_line(layout.x(times), layout.panes[0].y(values))

    def readout_now(self) -> Readout:
        if self._sizes is None:
            return {}
        is_live = self._moment is None or self._moment.is_live
        counts = batch_size.summary(self.history, self._sizes, is_live)
        return counts if self._is_heard(self.edge_s) else {**counts, "cap": UNKNOWN}

    def readout_at(self, at_s: float) -> Readout:
        return batch_size.readout(self.history, at_s)

    def _draw_marks(self, layout: Layout, reason: ReleaseReason, kinds: Sequence[Bars]) -> None:
        xs, ys = [], []
        for bars in kinds:
            left, right = _edges(layout, bars)
            xs.append(np.floor((left + right) / 2 / layout.ratio)[bars.marks] + layout.left + 0.5)
            ys.append(np.round(layout.panes[0].y(bars.size[bars.marks])) + 0.5)
        middles = np.concatenate(xs)
        if len(middles) or len(self._marks[reason].data):
            self._marks[reason].setData(middles, np.concatenate(ys))


def _edges(layout: Layout, bars: Bars) -> tuple[Ints, Ints]:
    """The columns of pixels in which the batches begin, and the columns before which they end."""
    left, right = (np.floor(layout.view.positions(times)).astype(np.int64) for times in (bars.left, bars.right))
    return left, np.maximum(right - round(BAR_GAP * layout.ratio), left + round(layout.ratio))
