"""The plot of queue depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gui.look.tokens import RUNNING_FILL_ALPHA, Palette
from gui.plots.columns import ColumnsItem, Ink, stepped_layer
from gui.plots.frame import Layout
from gui.plots.paint import blended
from gui.plots.panel import PlotPanel
from gui.plots.pointer import Dot
from gui.series import queue_depth
from gui.series.declaration import Readout
from gui.series.queue_depth import QueueDepths
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from service.analysis.observed.history import History

JUST_BEFORE_S: Final = 1e-6


class QueueDepthPanel(PlotPanel):
    """Cumulated areas, opaque, painted back to front."""

    def __init__(self, history: History, palette: Palette, has_axis: bool = False) -> None:
        scale = StepScale(most_ticks=5, least_step=1)
        super().__init__(queue_depth.PLOT, [scale], history, palette, has_axis)
        self._depths: QueueDepths | None = None
        self._areas = ColumnsItem()
        self.canvas.add_data(self._areas)
        self.set_colors(palette)

    def set_colors(self, palette: Palette) -> None:
        self._inks = {}
        for stage, ink in palette.stages.items():
            alpha = RUNNING_FILL_ALPHA if stage == "running" else palette.fill_alpha
            self._inks[stage] = Ink.of(blended(ink, palette.plot, alpha), edge=ink)

    def compute(self, view: TimeRange, height: int) -> tuple[float, ...]:
        self._depths = queue_depth.queue_depths(self.history, view)
        return (self._depths.peak,)

    def draw(self, layout: Layout) -> None:
        assert self._depths is not None
        strip, low, high = layout.sharp_strip(), self._depths.low, self._depths.high
        self._areas.set_layers(
            layout,
            strip,
            [
                stepped_layer(self._inks["waiting"], strip, low.waiting, high.waiting),
                stepped_layer(self._inks["formed"], strip, low.formed, high.formed),
                stepped_layer(self._inks["running"], strip, low.running, high.running),
            ],
        )

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
        """The latest moment in view that has data; after a failure the one before it."""
        now_s = self.history.now_s()
        edge_s = now_s if self.end_s is None else min(self.end_s, now_s)
        failed_s = self.history.outages.failed_since_s
        return edge_s if failed_s is None else min(edge_s, failed_s - JUST_BEFORE_S)
