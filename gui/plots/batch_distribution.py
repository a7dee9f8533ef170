"""The distribution of batch sizes: bars by release reason, the cap, and the settings before as an outline."""

from __future__ import annotations

from typing import Final

import numpy as np

from gui.look.theme import colour, current
from gui.look.tokens import BAR_GAP, DASH_CAP, LINE_MARKER, Palette
from gui.plots.canvas import Curve
from gui.plots.chart import Chart
from gui.plots.columns import ColumnsItem, Ink, Layer, bars_layer
from gui.plots.layout import Layout
from gui.plots.paint import pen
from gui.series import batch_distribution
from gui.series.batch_distribution import BatchDistribution
from gui.series.batch_size import LEAST_VIEW
from gui.series.scale import StepScale, axis_for
from gui.series.time_axis import Tick
from gui.series.time_range import step_line
from service.analysis.observed.batches import REASONS
from service.analysis.observed.columns import Ints

MOST_TICKS: Final = 9


class BatchDistributionPlot(Chart):
    """A bar a size, stacked by why the batches were released."""

    def __init__(self) -> None:
        super().__init__(batch_distribution.PLOT)
        self._sizes: BatchDistribution | None = None
        self._before: BatchDistribution | None = None
        self._largest = LEAST_VIEW
        self._scale = StepScale()
        self._bars, self._outline, self._cap = ColumnsItem(), Curve(is_sharp=True), Curve(is_sharp=True)
        for item in (self._bars, self._outline, self._cap):
            self.canvas.add_data(item)
        self.set_colors(current())

    def show_sizes(
        self, sizes: BatchDistribution | None, before: BatchDistribution | None, largest: int, now_s: float
    ) -> None:
        self._sizes, self._before, self._largest = sizes, before, largest
        self.header.declare(batch_distribution.declared(sizes))
        shown = [each.outline for each in (sizes, before) if each is not None]
        self._scale.fit(max((float(outline.max(initial=0.0)) for outline in shown), default=0.0), now_s)
        self.draw_anew()

    def set_colors(self, palette: Palette) -> None:
        self._inks = {reason: Ink.of(colour(palette.release_reasons[reason])) for reason in REASONS}
        self._outline.setPen(pen(palette.t2, LINE_MARKER, DASH_CAP))
        self._cap.setPen(pen(palette.t1, LINE_MARKER, DASH_CAP))

    def draw_anew(self) -> None:
        layout = self.laid_out(self._ticks(), self._scale.axis)
        self._bars.set_layers(layout, layout.sharp_pane(), self._layers(layout))
        self._draw_outline(layout)
        self._draw_cap(layout)

    def show_readout(self, pointed: float | None) -> None:
        if self._sizes is None:
            self.header.show_readout({})
        else:
            bar = None if pointed is None else self._bar_at(pointed)
            self.header.show_readout(batch_distribution.readout(self._sizes, bar), hides_missing=bar is not None)

    def chip_at(self, pointed: float) -> str:
        return self._sizes.sizes_of(self._bar_at(pointed)) if self._sizes is not None else ""

    @property
    def _bar_count(self) -> int:
        return len(self._sizes.outline) if self._sizes is not None and self._sizes.total else self._largest

    def _bar_at(self, pointed: float) -> int:
        return min(int(pointed * self._bar_count), self._bar_count - 1)

    def _ticks(self) -> list[Tick]:
        """Below the middles of bars: 1, then round sizes."""
        step = int(axis_for(self._largest, MOST_TICKS, 1).step)
        sizes = [1, *(size for size in range(step, self._largest + 1, step) if size > 1)]
        return [Tick((size - 0.5) / self._largest, str(size)) for size in sizes]

    def _edges(self, layout: Layout) -> tuple[Ints, Ints]:
        edges = np.round(np.linspace(0, layout.view.columns, self._bar_count + 1)).astype(np.int64)
        return edges[:-1], edges[1:] - round(BAR_GAP * layout.ratio)

    def _layers(self, layout: Layout) -> list[Layer]:
        """Cumulated, the tallest behind."""
        if self._sizes is None or not self._sizes.total:
            return []
        left, right = self._edges(layout)
        top = np.cumsum(np.stack(list(self._sizes.by_reason.values())), axis=0)
        pane, columns = layout.sharp_pane(), layout.view.columns
        layers = [bars_layer(self._inks[r], pane, columns, left, right, top[n]) for n, r in enumerate(REASONS)]
        return layers[::-1]

    def _draw_outline(self, layout: Layout) -> None:
        before = self._before.outline if self._before is not None else np.zeros(0)
        starts = layout.x(np.linspace(0.0, 1.0, len(before) + 1))
        self._outline.show_line(*step_line(starts[:-1], layout.panes[0].y(before), starts[-1]))

    def _draw_cap(self, layout: Layout) -> None:
        cap = self._sizes.cap if self._sizes is not None else None
        if cap is None or cap > self._largest:
            self._cap.hide()
        else:
            x = layout.x_of(cap / self._largest) - 1
            self._cap.show_line(np.array([x, x]), np.array([layout.top, layout.bottom]))
