"""The plot of latency."""

from __future__ import annotations

from collections.abc import Sequence

from gui.look.theme import colour, current
from gui.look.tokens import LATENCY_ALPHA, LINE_WIDTHS, Palette
from gui.plots.canvas import Curve
from gui.plots.columns import PointsItem
from gui.plots.layout import Layout
from gui.plots.overlay import Dot
from gui.plots.paint import pen
from gui.plots.panel import PlotPanel
from gui.series import latency
from gui.series.declaration import Readout
from gui.series.latency import Latencies
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from service.analysis.observed.history import History

LEAST_STEP_S = 0.01


class LatencyPanel(PlotPanel):
    """Points behind three lines, the strongest in front."""

    def __init__(self, history: History) -> None:
        super().__init__(latency.PLOT, [StepScale(least_step=LEAST_STEP_S)], history, has_axis=True)
        self._latencies: Latencies | None = None
        self._points = PointsItem()
        self._lines = {name: Curve() for name in latency.NAMES}
        self.canvas.add_data(self._points)
        for name in reversed(latency.NAMES):
            self.canvas.add_data(self._lines[name])
        self.set_colors(current())

    def set_colors(self, palette: Palette) -> None:
        self._ink = colour(palette.t3, LATENCY_ALPHA)
        for name, line in self._lines.items():
            line.setPen(pen(palette.percentiles[name], LINE_WIDTHS[name]))

    def compute(self, view: TimeRange) -> tuple[float, ...]:
        self._latencies = latency.latencies(self.history, view)
        return (self._latencies.peak,)

    def draw(self, layout: Layout) -> None:
        assert self._latencies is not None
        pane = layout.panes[0]
        times, values = self._latencies.points
        self._points.set_points(layout, layout.sharp_pane(), times, values, self._ink)
        for name, (times, values) in self._latencies.lines.items():
            self._lines[name].show_line(layout.x(times), pane.y(values))

    def readout_at(self, at_s: float) -> Readout:
        return latency.readout(self.history, at_s)

    def dots_at(self, layout: Layout, at_s: float) -> Sequence[Dot]:
        values = latency.values_at(self.history, at_s)
        pane = layout.panes[0]
        known = [(name, value) for name, value in values.items() if value == value]
        return [Dot(pane.y_of(value), current().percentiles[name]) for name, value in reversed(known)]
