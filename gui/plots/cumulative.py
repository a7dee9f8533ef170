"""What share of the requests was answered within which time: one sample, or two with the gap between them filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPolygonF
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.tokens import (
    DASH_CAP,
    GAP_ALPHA,
    LINE_P50,
    LINE_P95,
    MARK_HOVER,
    TICK_DISTANCE,
    WIDTH_NAMED,
    WIDTH_PERCENTILES,
    Palette,
)
from gui.plots.canvas import curve
from gui.plots.chart import Chart
from gui.plots.frame import Layout
from gui.plots.paint import brush, pen
from gui.plots.pointer import Dot
from gui.series.declaration import Declaration, Entry
from gui.series.latency import CUMULATIVE, NAMES, Sample
from gui.series.scale import Axis
from gui.series.time_axis import Tick
from gui.series.value_axis import ValueAxis, seconds_axis
from service.analysis.observed.columns import Floats
from service.messages.text import format_number

PER_CENT: Final = Axis(step=20.0, ceiling=100.0)
PER_CENT_LOW: Final = Axis(step=50.0, ceiling=100.0)
Curve = tuple[Floats, Floats]


class CumulativePlot(Chart):
    """The first sample as a solid line with its percentiles, the second dashed, the gap between them filled."""

    def __init__(self, palette: Palette, plot: Declaration = CUMULATIVE, parent: QWidget | None = None) -> None:
        super().__init__(plot, palette, parent)
        self._first: Sample | None = None
        self._second: Sample | None = None
        self._axis = seconds_axis()
        self._gap = GapItem()
        self._lines = (curve(), curve())
        self._marks = {name: pg.ScatterPlotItem(symbol="o", size=MARK_HOVER, pen=None) for name in NAMES}
        for item in (self._gap, *reversed(self._lines), *self._marks.values()):
            self.canvas.add_data(item)
        self.set_colors(palette)

    def show_samples(self, first: Sample | None, second: Sample | None = None, axis: ValueAxis | None = None) -> None:
        """Draw these; `axis` where it is to be the same as that of another plot."""
        self._first, self._second = first, second
        self._axis = axis or seconds_axis(*(each.values for each in (first, second) if each is not None))
        self.header.declare(replace(self.plot, entries=(*self._named(), *self.plot.entries)))
        self.draw()

    # ------------------------------------------------------------------------------------------------------ of Chart

    def set_colors(self, palette: Palette) -> None:
        self._lines[0].setPen(pen(palette.t1, LINE_P50))
        self._lines[1].setPen(pen(palette.t2, LINE_P95, DASH_CAP))
        self._gap.set_ink(palette.t2)
        for name, marks in self._marks.items():
            marks.setBrush(brush(palette.percentiles[name]))

    def draw(self) -> None:
        shares = self._axis.shares(np.array(self._axis.ticks))
        ticks = [Tick(float(x), f"{self._axis.label(v)} s") for x, v in zip(shares, self._axis.ticks, strict=True)]
        is_low = self.room < len(PER_CENT.ticks) * TICK_DISTANCE / 2
        layout = self.laid_out(ticks, PER_CENT_LOW if is_low else PER_CENT)
        drawn = [self._draw_line(layout, *each) for each in zip(self._lines, self._samples, strict=True)]
        self._gap.set_gap(layout, *drawn)
        self._draw_percentiles(layout)

    def show_readout(self, pointed: float | None) -> None:
        if pointed is not None:
            within = np.array([self._axis.value_at(pointed)])
            self.header.show_readout(
                {each.name: f"{each.share_within(within)[0]:.0f} %" for each in self._known}, hides_missing=True
            )
            return
        named = {each.name: "" for each in self._known} if self.width() >= WIDTH_NAMED else {}
        found = self._first.percentiles() if self._first is not None else {}
        names = NAMES if self.width() >= WIDTH_PERCENTILES else NAMES[:2]
        values = {name: format_number(found.get(name), 2) for name in names}
        self.header.show_readout({**named, **values}, hides_missing=True)

    def chip_at(self, pointed: float) -> str:
        return self._axis.seconds(self._axis.value_at(pointed))

    def dots_at(self, layout: Layout, pointed: float) -> Sequence[Dot]:
        within, inks = np.array([self._axis.value_at(pointed)]), (self.palette_.t1, self.palette_.t2)
        return [
            Dot(layout.strips[0].y_of(float(sample.share_within(within)[0])), ink)
            for sample, ink in zip(self._samples, inks, strict=True)
            if sample is not None and len(sample.values)
        ]

    # --------------------------------------------------------------------------------------------------------- inner

    @property
    def _samples(self) -> tuple[Sample | None, Sample | None]:
        return self._first, self._second

    @property
    def _known(self) -> list[Sample]:
        return [sample for sample in self._samples if sample is not None and len(sample.values)]

    def _named(self) -> tuple[Entry, ...]:
        swatches = (("line", "t1"), ("dash", "t2"))
        return tuple(
            Entry(sample.name, "line" if swatch == "line" else "dash", ink)
            for sample, (swatch, ink) in zip(self._samples, swatches, strict=True)
            if sample is not None
        )

    def _draw_line(self, layout: Layout, line: pg.PlotCurveItem, sample: Sample | None) -> Curve | None:
        """A point a column of pixels; returns the line in pixels."""
        is_known = sample is not None and len(sample.values) > 0
        line.setVisible(is_known)
        if sample is None or not is_known:
            return None
        xs = np.linspace(0.0, 1.0, self.columns + 1)
        ys = layout.strips[0].y(sample.share_within(self._axis.edges(self.columns)))
        line.setData(layout.x(xs), ys)
        return layout.x(xs), ys

    def _draw_percentiles(self, layout: Layout) -> None:
        found = self._first.percentiles() if self._first is not None else {}
        for (name, marks), level in zip(self._marks.items(), (50.0, 95.0, 99.0), strict=True):
            known = [found[name]] if name in found else []
            xs = layout.x(self._axis.shares(np.array(known)))
            marks.setData(xs, layout.strips[0].y(np.full(len(known), level)))


class GapItem(pg.GraphicsObject):
    """The area between two lines."""

    def __init__(self) -> None:
        super().__init__()
        self._rect = QRectF()
        self._polygon: QPolygonF | None = None
        self._ink = QColor()

    def set_ink(self, ink: str) -> None:
        self._ink = brush(ink, GAP_ALPHA).color()
        self.update()

    def set_gap(self, layout: Layout, first: Curve | None, second: Curve | None) -> None:
        self.prepareGeometryChange()
        self._rect = QRectF(0, 0, layout.size.width(), layout.size.height())
        self._polygon = None
        if first is not None and second is not None:
            xs, ys = (np.concatenate((a, b[::-1])) for a, b in zip(first, second, strict=True))
            self._polygon = QPolygonF([QPointF(x, y) for x, y in zip(xs.tolist(), ys.tolist(), strict=True)])
        self.update()

    def boundingRect(self) -> QRectF:
        return self._rect

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        if self._polygon is not None:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._ink)
            painter.drawPolygon(self._polygon)
