"""Throughput or goodput over latency: one dot per setting, a line, the objective and the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.theme import colour, current
from gui.look.tokens import (
    DASH_CAP,
    FONT_CAPTION,
    GAP_1,
    GAP_2,
    LINE_MARKER,
    MARK_BEST,
    MARK_CHOSEN,
    MARK_HOVER,
    MARK_REACH,
    Palette,
)
from gui.plots.canvas import Curve
from gui.plots.chart import Chart
from gui.plots.layout import Layout, Overlay
from gui.plots.paint import draw_text, font, pen, text_width
from gui.series.declaration import Declaration, Entry
from gui.series.scale import ValueAxis, axis_for, value_axis
from gui.series.sweep import NO_DOTS, Dots, Places, Spreads, dots_of, dots_of_search, nearest
from gui.series.time_axis import Tick
from service.analysis.compare.run import FIGURE_BY_NAME
from service.analysis.compare.sweep import Sweep
from service.analysis.goal.search import GoalSearch
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
FRONTIER: Final = Declaration(
    name="frontier",
    title="Goodput over latency",
    unit="goodput a second",
    entries=(
        Entry("best of each size", "circle", "t2"),
        Entry("cheapest that holds", "circle", "t1"),
        Entry("goal", "dash", "t1"),
    ),
    empty_text="A dot a setting: the goodput that is predicted\nover the latency that is",
    axis_units=("",),
)
MOST_TICKS: Final = 5
HEADROOM: Final = 1.05  # so that what lies at the end of the axis is not cut


class DotsPlot(Chart):
    """One dot per setting; a click or the arrow keys choose one."""

    chosen = Signal(int)  # the place of the setting among those that are shown

    def __init__(self, declaration: Declaration) -> None:
        super().__init__(declaration)
        self._dots = NO_DOTS
        self._chosen: int | None = None
        self._axis = value_axis()
        self._y_axis = axis_for(1.0, MOST_TICKS, 0.1)
        self._front, self._objective, self._asked, self._spreads = Curve(), Curve(), Curve(), Curve()
        self._names = NamesItem()
        self._beaten, self._on_front, self._best, self._ring = (
            pg.ScatterPlotItem(symbol="o", size=size, pen=None)
            for size in (MARK_HOVER, MARK_HOVER, MARK_BEST, MARK_CHOSEN)
        )
        lines = (self._objective, self._asked, self._spreads, self._front)
        for item in (*lines, self._beaten, self._on_front, self._best, self._ring, self._names):
            self.canvas.add_data(item)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.canvas.clicked.connect(self._on_clicked)
        self.set_colors(current())

    def show_dots(self, dots: Dots, chosen: int | None, over: str) -> None:
        """Show these, with a ring around the chosen one; `over` names the latency."""
        self._dots, self._chosen = dots, chosen
        spreads = dots.spreads
        self._axis = value_axis(np.sort(np.concatenate((dots.latencies_s, dots.limits_s, spreads.high_s))) * HEADROOM)
        rates = np.concatenate((dots.rates, dots.asked_per_s, spreads.high_per_s))
        self._y_axis = axis_for(float(rates.max(initial=0.0)), MOST_TICKS, 0.1)
        self.header.declare(replace(self.plot, unit=f"{self.plot.unit} over {over}" if over else self.plot.unit))
        self.set_empty(not len(dots.places))
        self.draw_anew()

    def set_colors(self, palette: Palette) -> None:
        self._front.setPen(pen(palette.t3, LINE_MARKER))
        for line in (self._objective, self._asked):
            line.setPen(pen(palette.t1, LINE_MARKER, DASH_CAP))
        self._spreads.setPen(pen(palette.t2, LINE_MARKER))
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
        ys = layout.panes[0].y(np.repeat(dots.asked_per_s, 2))
        self._asked.setData(np.array([layout.left, layout.right], float)[: len(ys)], np.floor(ys) + 0.5)
        crosses = _crosses(layout, self._axis, dots)
        self._spreads.show_line(*crosses)
        taken = [QRectF(x, layout.top, 1, layout.bottom) for x in xs[:1]]
        taken += [QRectF(layout.left, y, layout.right, 1) for y in ys[:1]]
        taken += [_line(*ends) for ends in zip(*(each.reshape(-1, 3)[:, :2].tolist() for each in crosses), strict=True)]
        self._names.show_names(layout, *self._pixels(layout, np.arange(len(dots.places))), dots.names, taken)

    def show_readout(self, pointed: float | None) -> None:
        line, best, objective = (entry.name for entry in self.plot.entries)
        dots = self._dots
        values = {line: str(len(dots.front))}
        if len(dots.best):
            values[best] = ""
        if len(dots.limits_s):
            values[objective] = f"≤ {dots.limits_s[0]:g} s"
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


class SweepPlot(DotsPlot):
    """What was measured."""

    def __init__(self) -> None:
        super().__init__(SCATTER)

    def show_sweep(self, sweep: Sweep | None, chosen: int | None) -> None:
        self.show_dots(dots_of(sweep), chosen, "" if sweep is None else FIGURE_BY_NAME[sweep.latency].title)


class FrontierPlot(DotsPlot):
    """What was simulated.

    Attributes:
        left_out: the number of settings beyond the end of the axis, which are not shown.
    """

    left_out = 0

    def __init__(self) -> None:
        super().__init__(FRONTIER)

    def show_search(self, found: GoalSearch | None, chosen: int | None) -> None:
        dots = dots_of_search(found)
        self.left_out = dots.left_out
        self.show_dots(dots, chosen, "" if found is None else found.time)


def _crosses(layout: Layout, axis: ValueAxis, dots: Dots) -> tuple[Floats, Floats]:
    """The intervals as one line in pixels, with gaps: along and across through each dot."""
    of: Spreads = dots.spreads
    gap, pane = np.full(len(of.dots), np.nan), layout.panes[0]
    x, y = layout.x(axis.shares(dots.latencies_s[of.dots])), pane.y(dots.rates[of.dots])
    low_x, high_x = (layout.x(axis.shares(each)) for each in (of.low_s, of.high_s))
    low_y, high_y = (pane.y(each) for each in (of.low_per_s, of.high_per_s))
    xs = np.column_stack((low_x, high_x, gap, x, x, gap)).ravel()
    ys = np.column_stack((y, y, gap, low_y, high_y, gap)).ravel()
    return xs, ys


def _line(xs: Sequence[float], ys: Sequence[float]) -> QRectF:
    """The pixels of a line along or across, from one end to the other."""
    return QRectF(min(xs), min(ys), max(abs(xs[1] - xs[0]), 1.0), max(abs(ys[1] - ys[0]), 1.0))


class NamesItem(Overlay):
    """The names of dots beside them; one that would lie on a dot, a line or another name is left out."""

    def __init__(self) -> None:
        super().__init__()
        self._placed: list[tuple[QRectF, str]] = []

    def show_names(
        self, layout: Layout, xs: Floats, ys: Floats, names: Mapping[int, str], lines: Sequence[QRectF]
    ) -> None:
        """Place the names of the dots at `xs` and `ys`, and on none of the lines."""
        half = MARK_HOVER / 2
        taken = [QRectF(x - half, y - half, MARK_HOVER, MARK_HOVER) for x, y in zip(xs, ys, strict=True)]
        taken += lines
        self._placed = []
        for dot, name in names.items():
            place = _free(layout, float(xs[dot]), float(ys[dot]), text_width(name, font()), taken)
            if place is not None:
                taken.append(place)
                self._placed.append((place, name))
        self._lay_out(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        for place, name in self._placed:
            draw_text(painter, place.left(), place.center().y(), name, font(), current().t2)


def _free(layout: Layout, x: float, y: float, width: float, taken: Sequence[QRectF]) -> QRectF | None:
    """The first place beside a dot on which nothing lies: right or left of it, above it or below."""
    height = FONT_CAPTION + GAP_1
    tops = (y - height - GAP_1, y + GAP_1, y - 2 * height - GAP_1, y + height + GAP_1)
    for top, left in product(tops, (x + GAP_2, x - GAP_2 - width)):
        place = QRectF(left, top, width, height)
        is_inside = left >= layout.left and left + width <= layout.right and 0 <= top <= layout.bottom - height
        if is_inside and not any(place.intersects(other) for other in taken):
            return place
    return None
