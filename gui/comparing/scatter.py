"""Throughput over latency: one dot per setting, the Pareto front, the objective and the best."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, Qt, Signal
from PySide6.QtGui import QKeyEvent

from gui.look.theme import colour, current
from gui.look.tokens import DASH_CAP, LINE_MARKER, MARK_BEST, MARK_CHOSEN, MARK_HOVER, MARK_REACH, Palette
from gui.plots.canvas import Curve
from gui.plots.chart import Chart
from gui.plots.layout import Layout
from gui.plots.paint import pen
from gui.series.declaration import Declaration, Entry
from gui.series.scale import axis_for, value_axis
from gui.series.sweep import Places, dots_of, nearest
from gui.series.time_axis import Tick
from service.analysis.compare.run import FIGURE_BY_NAME
from service.analysis.compare.sweep import Sweep
from service.analysis.observed.columns import Floats

SCATTER: Final = Declaration(
    name="sweep",
    title="Throughput over latency",
    unit=FIGURE_BY_NAME["requests_per_s"].title,
    entries=(
        Entry("on the front", "circle", "t2"),
        Entry("best", "circle", "t1"),
        Entry("objective", "dash", "t1"),
    ),
    empty_text="A dot a setting: the throughput it reached\nover the latency it had",
    axis_units=("",),
)
MOST_TICKS: Final = 5
HEADROOM: Final = 1.05  # so that what lies at the end of the axis is not cut


class SweepPlot(Chart):
    """One dot per setting; a click or the arrow keys choose one."""

    chosen = Signal(int)  # the place of the point in the sweep

    def __init__(self) -> None:
        super().__init__(SCATTER)
        self._dots = dots_of(None)
        self._chosen: int | None = None
        self._axis = value_axis()
        self._y_axis = axis_for(1.0, MOST_TICKS, 0.1)
        self._front, self._objective = Curve(), Curve()
        self._beaten, self._on_front, self._best, self._ring = (
            pg.ScatterPlotItem(symbol="o", size=size, pen=None)
            for size in (MARK_HOVER, MARK_HOVER, MARK_BEST, MARK_CHOSEN)
        )
        for item in (self._objective, self._front, self._beaten, self._on_front, self._best, self._ring):
            self.canvas.add_data(item)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.canvas.clicked.connect(self._on_clicked)
        self.set_colors(current())

    def show_sweep(self, sweep: Sweep | None, chosen: int | None) -> None:
        self._dots = dots_of(sweep)
        self._chosen = chosen
        self._axis = value_axis(np.sort(np.append(self._dots.latencies_s, self._dots.limits_s)) * HEADROOM)
        self._y_axis = axis_for(float(self._dots.rates.max(initial=0.0)), MOST_TICKS, 0.1)
        over = "" if sweep is None else f" over {FIGURE_BY_NAME[sweep.latency].title}"
        self.header.declare(replace(SCATTER, unit=f"{SCATTER.unit}{over}"))
        self.set_empty(not len(self._dots.places))
        self.draw_anew()

    def set_colors(self, palette: Palette) -> None:
        self._front.setPen(pen(palette.t3, LINE_MARKER))
        self._objective.setPen(pen(palette.t1, LINE_MARKER, DASH_CAP))
        for marks, ink in ((self._on_front, palette.t2), (self._best, palette.t1)):
            marks.setBrush(colour(ink))
        self._beaten.setBrush(colour(palette.plot))
        self._beaten.setPen(pg.mkPen(palette.t3, width=LINE_MARKER))
        self._ring.setBrush(None)
        self._ring.setPen(pg.mkPen(palette.t1, width=LINE_MARKER))

    def draw_anew(self) -> None:
        shares = self._axis.shares(np.array(self._axis.ticks))
        ticks = [Tick(float(x), self._axis.label(v)) for x, v in zip(shares, self._axis.ticks, strict=True)]
        layout = self.laid_out(ticks, self._y_axis)
        dots = self._dots
        kinds = ((self._beaten, dots.beaten), (self._on_front, dots.front), (self._best, dots.best))
        for marks, chosen in (*kinds, (self._ring, dots.index_of(self._chosen))):
            marks.setData(*self._pixels(layout, chosen))
        self._front.setData(*self._pixels(layout, dots.front))
        xs = layout.x(self._axis.shares(np.repeat(dots.limits_s, 2)))
        self._objective.setData(np.floor(xs) + 0.5, np.array([0.0, self.room])[: len(xs)])

    def show_readout(self, pointed: float | None) -> None:
        dots = self._dots
        values = {"on the front": str(len(dots.front))}
        if len(dots.best):
            values["best"] = ""
        if len(dots.limits_s):
            values["objective"] = f"≤ {dots.limits_s[0]:g} s"
        self.header.show_readout(values, hides_missing=True)

    def chip_at(self, pointed: float) -> str:
        return self._axis.words(self._axis.value_at(pointed))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        place = self._dots.beside(self._chosen, step) if step is not None else None
        if place is None:
            super().keyPressEvent(event)
        else:
            self.chosen.emit(place)

    def _pixels(self, layout: Layout, dots: Places) -> tuple[Floats, Floats]:
        xs = layout.x(self._axis.shares(self._dots.latencies_s[dots]))
        return xs, layout.panes[0].y(self._dots.rates[dots])

    def _on_clicked(self, place: QPointF) -> None:
        if self._layout is None:
            return
        xs, ys = self._pixels(self._layout, np.arange(len(self._dots.places)))
        found = nearest(xs, ys, place.x(), place.y(), MARK_REACH)
        if found is not None:
            self.chosen.emit(int(self._dots.places[found]))
