"""The plot of latency."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gui.look.theme import colour, current
from gui.look.tokens import DASH_CAP, LATENCY_ALPHA, LINE_MARKER, LINE_WIDTHS, Palette
from gui.plots.canvas import Curve
from gui.plots.columns import PointsItem
from gui.plots.layout import Layout
from gui.plots.overlay import Dot, Marks
from gui.plots.paint import pen
from gui.plots.panel import Moment, PlotPanel
from gui.series import latency
from gui.series.declaration import Readout
from gui.series.latency import Latencies
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from service.analysis.observed.history import History
from service.analysis.observed.register import PERCENTILES, readout

LEAST_STEP_S = 0.01


class LatencyPanel(PlotPanel):
    """Points behind three lines, the strongest in front."""

    def __init__(self, history: History) -> None:
        super().__init__(latency.PLOT, [StepScale(least_step=LEAST_STEP_S)], history, has_axis=True)
        self._latencies: Latencies | None = None
        self._points = PointsItem()
        self._lines = {name: Curve() for name in latency.NAMES}
        self._objective = Curve(is_sharp=True)
        for item in (self._points, self._objective):
            self.canvas.add_data(item)
        for name in reversed(latency.NAMES):
            self.canvas.add_data(self._lines[name])
        self.set_colors(current())

    def set_colors(self, palette: Palette) -> None:
        self._ink = colour(palette.t3, LATENCY_ALPHA)
        for name, line in self._lines.items():
            line.setPen(pen(palette.percentiles[name], LINE_WIDTHS[name]))
        self._objective.setPen(pen(palette.t2, LINE_MARKER, DASH_CAP))

    def follow(self, moment: Moment, marks: Marks) -> None:
        self.declare(latency.declared(self.history.objectives))
        super().follow(moment, marks)

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
        objective_s = self.history.objectives.latency_s
        level = np.full(2, np.nan if objective_s is None else objective_s)
        self._objective.show_line(np.array([layout.left, layout.right]), pane.y(level))

    @property
    def besides(self) -> object:
        return self.history.objectives

    def readout_now(self) -> Readout:
        return readout(self.figures, PERCENTILES)

    def readout_at(self, at_s: float) -> Readout:
        return latency.readout_at(self.history, at_s)

    def dots_at(self, layout: Layout, at_s: float) -> Sequence[Dot]:
        values = latency.values_at(self.history, at_s)
        pane = layout.panes[0]
        known = [(name, value) for name, value in values.items() if value == value]
        return [Dot(pane.y_of(value), current().percentiles[name]) for name, value in reversed(known)]
