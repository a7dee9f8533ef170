"""The histogram of latencies, and that of the settings before as an outline."""

from __future__ import annotations

import numpy as np

from gui.look.tokens import BAR_GAP, DASH_CAP, LINE_MARKER, RUNNING_FILL_ALPHA, Palette
from gui.plots.canvas import curve
from gui.plots.chart import Chart
from gui.plots.columns import ColumnsItem, Ink, bars_layer
from gui.plots.frame import Layout
from gui.plots.paint import blended, pen
from gui.series.latency import HISTOGRAM, Bins, Sample, histogram
from gui.series.scale import StepScale
from gui.series.thinning import step_line
from gui.series.time_axis import Tick
from gui.series.value_axis import ValueAxis, seconds_axis


class LatencyHistogram(Chart):
    """Bars of the present sample, a dashed outline of the one before; both as shares, so that they compare.

    Has no axis of its own: it stands above the cumulative plot and shares that one's.
    """

    def __init__(self, palette: Palette) -> None:
        super().__init__(HISTOGRAM, palette, has_axis=False)
        self._samples: tuple[Sample | None, Sample | None] = (None, None)
        self._bins: dict[str, Bins] = {}
        self._axis = seconds_axis()
        self._scale = StepScale(most_ticks=5, least_step=1)
        self._now_s = 0.0
        self._bars, self._outline = ColumnsItem(), curve()
        self._outline.opts["antialias"] = False
        for item in (self._bars, self._outline):
            self.canvas.add_data(item)
        self.set_colors(palette)

    def show_samples(self, first: Sample | None, second: Sample | None, axis: ValueAxis, now_s: float) -> None:
        self._samples, self._axis, self._now_s = (first, second), axis, now_s
        self.draw()

    def set_colors(self, palette: Palette) -> None:
        self._ink = Ink.of(blended(palette.running, palette.plot, RUNNING_FILL_ALPHA))
        self._outline.setPen(pen(palette.t2, LINE_MARKER, DASH_CAP))

    def draw(self) -> None:
        self._bins = {name: histogram(sample, self._axis, self.columns) for name, sample in self._known.items()}
        self._scale.fit(max((bins.peak for bins in self._bins.values()), default=0.0), self._now_s)
        shares = self._axis.shares(np.array(self._axis.ticks))
        layout = self.laid_out([Tick(float(share), "") for share in shares], self._scale.axis)
        self._draw_bars(layout, self._bins.get("requests"))
        self._draw_outline(layout, self._bins.get("before"))

    def show_readout(self, pointed: float | None) -> None:
        if pointed is None:
            values = {name: f"{len(sample.values):,}" for name, sample in self._known.items()}
        else:
            at = self._axis.value_at(pointed)
            values = {name: f"{bins.share_at(at):.1f} %" for name, bins in self._bins.items()}
        self.header.show_readout(values, hides_missing=True)

    @property
    def _known(self) -> dict[str, Sample]:
        named = zip(("requests", "before"), self._samples, strict=True)
        return {name: sample for name, sample in named if sample is not None and len(sample.values)}

    def _draw_bars(self, layout: Layout, bins: Bins | None) -> None:
        strip, columns = layout.sharp_strip(), layout.view.columns
        layers = []
        if bins is not None:
            edges = np.round(self._axis.shares(bins.edges) * columns).astype(np.int64)
            gap = round(BAR_GAP * layout.ratio)
            layers = [bars_layer(self._ink, strip, columns, edges[:-1], edges[1:] - gap, bins.shares)]
        self._bars.set_layers(layout, strip, layers)

    def _draw_outline(self, layout: Layout, bins: Bins | None) -> None:
        self._outline.setVisible(bins is not None)
        if bins is not None:
            starts = layout.x(self._axis.shares(bins.edges))
            xs, ys = step_line(starts[:-1], layout.strips[0].y(bins.shares), starts[-1])
            self._outline.setData(np.floor(xs) + 0.5, np.floor(ys) + 0.5)
