"""How latencies are distributed: a histogram, and what share of the requests was answered within which time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPolygonF
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look import tokens
from gui.look.theme import colour, current
from gui.look.tokens import Palette
from gui.plots.canvas import Curve
from gui.plots.chart import Chart
from gui.plots.columns import ColumnsItem, Ink, bars_layer
from gui.plots.layout import Layout, Overlay
from gui.plots.overlay import Dot
from gui.plots.paint import blended, pen, polygon
from gui.series.declaration import Entry, Swatch
from gui.series.latency import ANSWER, CUMULATIVE, HISTOGRAM, NAMES, Bins, Sample, axis_of, histogram
from gui.series.scale import Axis, StepScale, ValueAxis, value_axis
from gui.series.time_axis import Tick
from gui.series.time_range import step_line
from service.analysis.observed.columns import Floats


class LatencyHistogram(Chart):
    """Bars of the present sample, a dashed outline of the one before; both as shares, so that they compare.

    Has no axis of its own: it stands above the cumulative plot and shares that one's.
    """

    def __init__(self) -> None:
        super().__init__(HISTOGRAM, has_axis=False)
        self._samples: tuple[Sample | None, Sample | None] = (None, None)
        self._bins: dict[str, Bins] = {}
        self._axis = value_axis()
        self._scale = StepScale()
        self._now_s = 0.0
        self._bars, self._outline = ColumnsItem(), Curve(is_sharp=True)
        for item in (self._bars, self._outline):
            self.canvas.add_data(item)
        self.set_colors(current())

    def show_samples(self, first: Sample | None, second: Sample | None, axis: ValueAxis, now_s: float) -> None:
        self._samples, self._axis, self._now_s = (first, second), axis, now_s
        self.draw_anew()

    def set_colors(self, palette: Palette) -> None:
        self._ink = Ink.of(blended(palette.running, palette.plot, tokens.RUNNING_FILL_ALPHA))
        self._outline.setPen(pen(palette.t2, tokens.LINE_MARKER, tokens.DASH_CAP))

    def draw_anew(self) -> None:
        self._bins = {name: histogram(sample, self._axis, self.columns) for name, sample in self._known.items()}
        self._scale.fit(max((bins.peak for bins in self._bins.values()), default=0.0), self._now_s)
        shares = self._axis.shares(np.array(self._axis.ticks))
        layout = self.laid_out([Tick(float(share), "") for share in shares], self._scale.axis)
        self._draw_bars(layout, self._bins.get("requests"))
        self._draw_outline(layout, self._bins.get("before"))

    def show_readout(self, pointed: float | None) -> None:
        if pointed is None:
            values = {name: f"{len(sample.values):,}" for name, sample in self._known.items()}
        else:
            at = self._axis.value_at(pointed)
            values = {name: f"{bins.share_at(at):.1f} %" for name, bins in self._bins.items()}
        self.header.show_readout(values, hides_missing=True)

    @property
    def _known(self) -> dict[str, Sample]:
        named = zip(("requests", "before"), self._samples, strict=True)
        return {name: sample for name, sample in named if sample is not None and len(sample.values)}

    def _draw_bars(self, layout: Layout, bins: Bins | None) -> None:
        pane, columns = layout.sharp_pane(), layout.view.columns
        layers = []
        if bins is not None:
            edges = np.round(self._axis.shares(bins.edges) * columns).astype(np.int64)
            gap = round(tokens.BAR_GAP * layout.ratio)
            layers = [bars_layer(self._ink, pane, columns, edges[:-1], edges[1:] - gap, bins.shares)]
        self._bars.set_layers(layout, pane, layers)

    def _draw_outline(self, layout: Layout, bins: Bins | None) -> None:
        if bins is None:
            self._outline.hide()
        else:
            starts = layout.x(self._axis.shares(bins.edges))
            self._outline.show_line(*step_line(starts[:-1], layout.panes[0].y(bins.shares), starts[-1]))


PER_CENT: Final = Axis(step=20.0, ceiling=100.0)
PER_CENT_LOW: Final = Axis(step=50.0, ceiling=100.0)
LINES: Final[tuple[tuple[Swatch, str], ...]] = (("line", "t1"), ("dash", "t2"))  # of the first sample and the second
Line = tuple[Floats, Floats]


class CumulativePlot(Chart):
    """The first sample as a solid line with its percentiles, the second dashed, the gap between them filled."""

    def __init__(self) -> None:
        super().__init__(CUMULATIVE)
        self._samples: tuple[Sample | None, Sample | None] = (None, None)
        self._axis = value_axis()
        self._gap = GapItem()
        self._lines = (Curve(), Curve())
        self._marks = {name: pg.ScatterPlotItem(symbol="o", size=tokens.MARK_HOVER, pen=None) for name in NAMES}
        for item in (self._gap, *reversed(self._lines), *self._marks.values()):
            self.canvas.add_data(item)
        self.set_colors(current())

    def show_samples(self, first: Sample | None, second: Sample | None = None, axis: ValueAxis | None = None) -> None:
        """Draw these; `axis` where it is to be the same as that of another plot."""
        self._samples = first, second
        self._axis = axis or axis_of(first, second)
        self.header.declare(replace(self.plot, entries=(*self._named(), *self.plot.entries)))
        self.draw_anew()

    def set_colors(self, palette: Palette) -> None:
        self._lines[0].setPen(pen(palette.t1, tokens.LINE_WIDTHS["p50"]))
        self._lines[1].setPen(pen(palette.t2, tokens.LINE_WIDTHS["p95"], tokens.DASH_CAP))
        for name, marks in self._marks.items():
            marks.setBrush(colour(palette.percentiles[name]))

    def draw_anew(self) -> None:
        shares = self._axis.shares(np.array(self._axis.ticks))
        ticks = [Tick(float(x), self._axis.label(v)) for x, v in zip(shares, self._axis.ticks, strict=True)]
        is_low = self.room < len(PER_CENT.ticks) * tokens.TICK_DISTANCE / 2
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
        named = {each.name: "" for each in self._known} if self.width() >= tokens.WIDTH_NAMED else {}
        found = self._percentiles()
        names = NAMES if self.width() >= tokens.WIDTH_PERCENTILES else NAMES[:2]
        measure = self._samples[0].measure if self._samples[0] is not None else ANSWER
        values = {name: measure.number(found.get(name)) for name in names}
        self.header.show_readout({**named, **values}, hides_missing=True)

    def chip_at(self, pointed: float) -> str:
        return self._axis.words(self._axis.value_at(pointed))

    def dots_at(self, layout: Layout, pointed: float) -> Sequence[Dot]:
        within = np.array([self._axis.value_at(pointed)])
        return [
            Dot(layout.panes[0].y_of(float(sample.share_within(within)[0])), getattr(current(), ink))
            for sample, (_, ink) in zip(self._samples, LINES, strict=True)
            if sample is not None and len(sample.values)
        ]

    @property
    def _known(self) -> list[Sample]:
        return [sample for sample in self._samples if sample is not None and len(sample.values)]

    def _percentiles(self) -> dict[str, float]:
        first = self._samples[0]
        return first.percentiles() if first is not None else {}

    def _named(self) -> tuple[Entry, ...]:
        named = zip(self._samples, LINES, strict=True)
        return tuple(Entry(sample.name, swatch, ink) for sample, (swatch, ink) in named if sample is not None)

    def _draw_line(self, layout: Layout, curve: Curve, sample: Sample | None) -> Line | None:
        """A point a column of pixels; returns the line in pixels."""
        if sample is None or not len(sample.values):
            curve.hide()
            return None
        xs = layout.x(np.linspace(0.0, 1.0, self.columns + 1))
        ys = layout.panes[0].y(sample.share_within(self._axis.edges(self.columns)))
        curve.show_line(xs, ys)
        return xs, ys

    def _draw_percentiles(self, layout: Layout) -> None:
        found = self._percentiles()
        for (name, marks), level in zip(self._marks.items(), (50.0, 95.0, 99.0), strict=True):
            known = [found[name]] if name in found else []
            xs = layout.x(self._axis.shares(np.array(known)))
            marks.setData(xs, layout.panes[0].y(np.full(len(known), level)))


class GapItem(Overlay):
    """The area between two lines."""

    _polygon: QPolygonF | None = None

    def set_gap(self, layout: Layout, first: Line | None, second: Line | None) -> None:
        self._polygon = None
        if first is not None and second is not None:
            xs, ys = (np.concatenate((a, b[::-1])) for a, b in zip(first, second, strict=True))
            self._polygon = polygon(*zip(xs.tolist(), ys.tolist(), strict=True))
        self._lay_out(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        if self._polygon is not None:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour(current().t2, tokens.GAP_ALPHA))
            painter.drawPolygon(self._polygon)
