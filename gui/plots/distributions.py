"""The second view of the centre: how what the plots show is distributed, never across a change of settings."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QPointF, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QPainter, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from gui.look.theme import colour, current
from gui.look.tokens import HAIRLINE
from gui.plots.batch_distribution import BatchDistributionPlot
from gui.plots.latency_charts import CumulativePlot, LatencyHistogram
from gui.plots.panel import Moment
from gui.plots.plot_stack import PlotStack, grid_of, timeline_height
from gui.plots.stage_breakdown import StageBreakdownPlot
from gui.plots.wasted_work import WastedWorkPanel
from gui.series.batch_distribution import batch_distribution, largest_in_view
from gui.series.latency import ANSWER, Measure, Sample, axis_of, measure_of
from gui.series.scope import Scope, latencies_in, present_scope, scope_before
from gui.series.stage_breakdown import engine_time, stage_breakdown
from service.analysis.observed.history import History

KEY_STEP: Final = 0.01  # of the axis, a press of an arrow key
KEY_FAR: Final = 0.1


class DistributionsView(QWidget):
    """Follows the plots' window of time; costs nothing while it is not looked at.

    Signals:
        described: in words, what counts in all of it.
    """

    described = Signal(str)

    def __init__(self, history: History, plots: PlotStack) -> None:
        super().__init__()
        self._history = history
        self._plots = plots
        self._is_empty = False
        self._pointed: float | None = None
        self._measure = ANSWER.name
        self.setAccessibleName("Distributions")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.histogram = LatencyHistogram()
        self.cumulative = CumulativePlot()
        self.batches = BatchDistributionPlot()
        self.wasted = WastedWorkPanel(history)
        self.stages = StageBreakdownPlot()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(HAIRLINE)
        layout.addLayout(grid_of((self.histogram, self.batches, self.cumulative, self.wasted)), 1)
        layout.addWidget(self.stages)
        for plot in (self.histogram, self.cumulative):
            plot.pointed.connect(self._point_at)
        self.wasted.canvas.pointed.connect(self._on_wasted_pointed)

    def refresh(self) -> None:
        """Follow the time; to be called at the pace of the curves."""
        if self._is_looked_at:
            self.wasted.follow(self._plots.moment(), self._plots.marks())
            self.wasted.read()

    def count(self) -> None:
        """Bring what is counted up to date; to be called at the pace of numbers."""
        if self._is_looked_at:
            self.wasted.show_numbers()
            self._count(self._plots.moment())

    def show_measure(self, name: str) -> None:
        """Show how the time of this name is distributed, if the workload has it."""
        self._measure = name
        self.count()

    def set_empty(self, is_empty: bool) -> None:
        self._is_empty = is_empty
        for plot in (self.histogram, self.cumulative, self.batches, self.wasted, self.stages.bars):
            plot.set_empty(is_empty)

    @property
    def _is_looked_at(self) -> bool:
        return self.isVisible() and not self._is_empty

    def _count(self, moment: Moment) -> None:
        present = present_scope(self._history, moment.end_s, moment.window_s)
        before = scope_before(self._history, present, moment.window_s) if present is not None else None
        self._show_latencies(present, before, moment.pace_s)
        self._show_batches(present, before, moment.pace_s)
        now, earlier = (None if scope is None else stage_breakdown(self._history, scope) for scope in (present, before))
        self.stages.bars.show_stages(now, earlier, _name(before), moment.pace_s)
        engine = engine_time(self._history, present) if present is not None else None
        self.stages.show_engine({} if engine is None else engine.readout)

    def _show_latencies(self, present: Scope | None, before: Scope | None, now_s: float) -> None:
        measure = measure_of(self._measure, self._history.unit)
        first, second = (
            None if scope is None else _sample(self._history, scope, measure) for scope in (present, before)
        )
        axis = axis_of(first, second)
        self.histogram.show_samples(first, second, axis, now_s)
        self.cumulative.show_samples(first, second, axis)
        self.described.emit(_described(present, first, second))

    def _show_batches(self, present: Scope | None, before: Scope | None, now_s: float) -> None:
        largest = largest_in_view(self._history, present, before)
        now, earlier = (
            None if scope is None else batch_distribution(self._history, scope, largest) for scope in (present, before)
        )
        self.batches.show_sizes(now, earlier, largest, now_s)

    def _point_at(self, place: float | None) -> None:
        self._pointed = place
        for plot in (self.histogram, self.cumulative):
            plot.point_at(place)

    def _on_wasted_pointed(self, place: QPointF | None) -> None:
        self.wasted.point_at(self.wasted.time_at(place) if place is not None else None)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.count()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and Right move the pointer along the latencies, from their middle at first; with Shift further."""
        direction = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if direction is None:
            super().keyPressEvent(event)
        elif self._pointed is None:
            self._point_at(0.5)
        else:
            step = KEY_FAR if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else KEY_STEP
            self._point_at(min(max(self._pointed + direction * step, 0.0), 1.0))

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._point_at(None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.stages.setFixedHeight(timeline_height(event.size().height()))
        super().resizeEvent(event)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """The hairlines between the plots are what of this ground remains visible."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), colour(current().line))
        painter.end()


def _sample(history: History, scope: Scope, measure: Measure) -> Sample:
    return Sample(_name(scope), measure.shown(latencies_in(history, scope, measure.name)), measure)


def _name(scope: Scope | None) -> str:
    return "" if scope is None or scope.version is None else f"v{scope.version}"


def _described(present: Scope | None, sample: Sample | None, before: Sample | None) -> str:
    if present is None or sample is None:
        return ""
    dashed = f" · dashed {before.name}" if before is not None and len(before.values) else ""
    return f"{sample.name}, {present.span_s:.0f} s, {len(sample.values):,} requests{dashed}"
