"""The plot of latency, or of another time of a request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gui.look.theme import colour, current
from gui.look.tokens import DASH_CAP, LATENCY_ALPHA, LINE_MARKER, LINE_WIDTHS, Palette
from gui.plots.canvas import Curve
from gui.plots.columns import PointsItem
from gui.plots.layout import Layout
from gui.plots.marks import Marks
from gui.plots.overlay import Dot
from gui.plots.paint import pen
from gui.plots.panel import Moment, PlotPanel
from gui.series import latency
from gui.series.declaration import Readout
from gui.series.latency import Latencies, Measure
from gui.series.prediction import GhostLevel
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from service.analysis.observed.history import History
from service.analysis.observed.register import PERCENTILES, readout

LEAST_STEP_S = 0.01


class LatencyPanel(PlotPanel):
    """Points behind three lines, the strongest in front; of the latency, or of another time of the requests."""

    def __init__(self, history: History) -> None:
        super().__init__(latency.PLOT, [StepScale(least_step=LEAST_STEP_S)], history, has_axis=True)
        self._latencies: Latencies | None = None
        self._measure = latency.ANSWER.name
        self._predicted: tuple[GhostLevel, ...] = ()
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
        self.declare(latency.declared(self.measure, self.history.objectives))
        super().follow(moment, marks)

    @property
    def measure(self) -> Measure:
        """What is shown."""
        return latency.measure_of(self._measure, self.history.unit)

    def show_measure(self, name: str) -> None:
        """Show the time of this name from now on, if the workload has it."""
        self._measure = name
        self.release_scales()
        self.show_numbers()

    def set_ghost(self, levels: tuple[GhostLevel, ...], since_s: float) -> None:
        self._predicted = levels
        super().set_ghost(levels if self.measure is latency.ANSWER else (), since_s)

    def show_numbers(self) -> None:
        self.declare(latency.declared(self.measure, self.history.objectives))
        self.set_ghost(self._predicted, self._ghost_since_s)
        super().show_numbers()

    def compute(self, view: TimeRange) -> tuple[float, ...]:
        self._latencies = latency.latencies(self.history, view, self.measure)
        return (self._latencies.peak,)

    def draw(self, layout: Layout) -> None:
        assert self._latencies is not None
        pane = layout.panes[0]
        times, values = self._latencies.points
        self._points.set_points(layout, layout.sharp_pane(), times, values, self._ink)
        for name, (times, values) in self._latencies.lines.items():
            self._lines[name].show_line(layout.x(times), pane.y(values))
        level = np.full(2, latency.objective(self.measure, self.history.objectives))
        self._objective.show_line(np.array([layout.left, layout.right]), pane.y(level))

    @property
    def besides(self) -> object:
        return self.measure, self.history.objectives

    def readout_now(self) -> Readout:
        if self.measure is latency.ANSWER:
            return readout(self.figures, PERCENTILES)
        return self.readout_at(self.edge_s)

    def readout_at(self, at_s: float) -> Readout:
        return latency.readout_at(self.history, at_s, self.measure)

    def dots_at(self, layout: Layout, at_s: float) -> Sequence[Dot]:
        values = latency.values_at(self.history, at_s, self.measure)
        pane = layout.panes[0]
        known = [(name, value) for name, value in values.items() if value == value]
        return [Dot(pane.y_of(value), current().percentiles[name]) for name, value in reversed(known)]
