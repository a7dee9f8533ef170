"""The plot of queue depth."""

from __future__ import annotations

from collections.abc import Sequence

from gui.history import History
from gui.plots.canvas import curve
from gui.plots.frame import Layout
from gui.plots.paint import blended, pen
from gui.plots.panel import PlotPanel
from gui.plots.pointer import Dot
from gui.series import queue_depth
from gui.series.declaration import Readout
from gui.series.queue_depth import QueueDepths
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from gui.tokens import LINE_EDGE, Palette

LAYERS = ("running", "formed", "waiting")  # from the bottom up


class QueueDepthPanel(PlotPanel):
    """Cumulated areas, opaque, painted back to front."""

    def __init__(self, history: History, palette: Palette, has_axis: bool = False) -> None:
        scale = StepScale(most_ticks=5, least_step=1)
        super().__init__(queue_depth.PLOT, [scale], history, palette, has_axis)
        self._depths: QueueDepths | None = None
        self._areas = {stage: curve() for stage in LAYERS}
        for stage in reversed(LAYERS):
            self.canvas.add_data(self._areas[stage])
        self.set_colors(palette)

    def set_colors(self, palette: Palette) -> None:
        for stage, area in self._areas.items():
            ink = palette.stages[stage]
            area.setPen(pen(ink, LINE_EDGE))
            area.setBrush(blended(ink, palette.plot, palette.fill_alpha))

    def compute(self, view: TimeRange, height: int) -> tuple[float, ...]:
        self._depths = queue_depth.queue_depths(self.history, view)
        return (self._depths.peak,)

    def draw(self, layout: Layout) -> None:
        assert self._depths is not None
        strip = layout.strips[0]
        xs = layout.x(self._depths.times)
        below = None
        for stage, layer in zip(LAYERS, self._depths.layers, strict=True):
            area = self._areas[stage]
            area.setVisible(below is None or bool((layer > below).any()))  # hidden where it adds nothing
            area.setData(xs, strip.y(layer), fillLevel=float(strip.bottom))
            below = layer

    def readout_now(self) -> Readout:
        return queue_depth.readout(self.history, self._edge_s())

    def readout_at(self, at_s: float) -> Readout:
        return queue_depth.readout(self.history, at_s)

    def dots_at(self, layout: Layout, at_s: float) -> Sequence[Dot]:
        waiting, formed, running = self.history.depth_at(at_s)
        strip = layout.strips[0]
        dots = [Dot(strip.y_of(running), self.palette_.running)]
        if formed:
            dots.append(Dot(strip.y_of(running + formed), self.palette_.formed))
        if waiting:
            dots.append(Dot(strip.y_of(running + formed + waiting), self.palette_.waiting))
        return dots

    def _edge_s(self) -> float:
        now_s = self.history.now_s()
        return now_s if self.end_s is None else min(self.end_s, now_s)
