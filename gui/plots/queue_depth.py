"""The plot of queue depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gui.look.theme import current
from gui.look.tokens import RUNNING_FILL_ALPHA, Palette
from gui.plots.columns import ColumnsItem, Ink, stepped_layer
from gui.plots.layout import Layout
from gui.plots.overlay import Dot
from gui.plots.paint import blended
from gui.plots.panel import PlotPanel
from gui.series import queue_depth
from gui.series.declaration import Readout
from gui.series.queue_depth import QueueDepths
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from service.analysis.observed.history import History

JUST_BEFORE_S: Final = 1e-6


class QueueDepthPanel(PlotPanel):
    """Cumulated areas, opaque, painted back to front."""

    def __init__(self, history: History) -> None:
        super().__init__(queue_depth.PLOT, [StepScale()], history, has_axis=False)
        self._depths: QueueDepths | None = None
        self._areas = ColumnsItem()
        self.canvas.add_data(self._areas)
        self.set_colors(current())

    def set_colors(self, palette: Palette) -> None:
        self._inks = {}
        for stage, ink in palette.stages.items():  # from back to front
            alpha = RUNNING_FILL_ALPHA if stage == "running" else palette.fill_alpha
            self._inks[stage] = Ink.of(blended(ink, palette.plot, alpha), edge=ink)

    def compute(self, view: TimeRange) -> tuple[float, ...]:
        self._depths = queue_depth.queue_depths(self.history, view)
        return (self._depths.peak,)

    def draw(self, layout: Layout) -> None:
        assert self._depths is not None
        pane, low, high = layout.sharp_pane(), self._depths.low, self._depths.high
        layers = [
            stepped_layer(ink, pane, getattr(low, stage), getattr(high, stage)) for stage, ink in self._inks.items()
        ]
        self._areas.set_layers(layout, pane, layers)

    def readout_now(self) -> Readout:
        """At the latest moment in view that has data; after a failure at the one before it."""
        failed_s = self.history.outages.failed_since_s
        return self.readout_at(self.edge_s if failed_s is None else min(self.edge_s, failed_s - JUST_BEFORE_S))

    def readout_at(self, at_s: float) -> Readout:
        return queue_depth.readout(self.history, at_s)

    def dots_at(self, layout: Layout, at_s: float) -> Sequence[Dot]:
        waiting, formed, running = self.history.depth_at(at_s)
        pane, palette = layout.panes[0], current()
        dots = [Dot(pane.y_of(running), palette.running)]
        if formed:
            dots.append(Dot(pane.y_of(running + formed), palette.formed))
        if waiting:
            dots.append(Dot(pane.y_of(running + formed + waiting), palette.waiting))
        return dots
