"""Where everything lies on a canvas, and what stands still behind the data: grid, zero line, ticks and units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyqtgraph as pg
from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QColor, QPainter, QPixmap
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.theme import current
from gui.look.tokens import FONT_CAPTION, GAP_1, GAP_2, LINE_GRID, PLOT_GUTTER, PLOT_MARGIN_RIGHT, Palette
from gui.plots.paint import draw_text, draw_text_before, font, pen, text_width
from gui.series.scale import Axis
from gui.series.time_axis import Tick
from gui.series.time_range import TimeRange
from service.analysis.observed.columns import Floats

UNIT_ROOM: Final = GAP_2 + FONT_CAPTION + GAP_1  # what the unit needs above the topmost tick that is named


@dataclass(frozen=True)
class Pane:
    """A y axis and the stretch of pixels that it has: the widget's, or with a `ratio` to them the screen's."""

    top: int
    bottom: int
    unit: str = ""
    axis: Axis | None = None
    ratio: float = 1.0

    @property
    def height(self) -> int:
        return self.bottom - self.top

    def y(self, values: Floats) -> Floats:
        """Pixels from the top of the canvas."""
        assert self.axis is not None
        result: Floats = self.bottom - values * (self.height / self.axis.top)
        return result

    def y_of(self, value: float) -> float:
        assert self.axis is not None
        return self.bottom - value * self.height / self.axis.top


@dataclass(frozen=True)
class Layout:
    """Where everything lies on a canvas, in its pixels; the columns of the view are the screen's.

    Attributes:
        has_ahead: whether the view ends before the plot does, and leaves what comes after it to a prediction.
    """

    size: QSize
    panes: tuple[Pane, ...]
    view: TimeRange
    ticks: tuple[Tick, ...] = ()
    has_ahead: bool = False

    @property
    def left(self) -> int:
        return PLOT_GUTTER

    @property
    def right(self) -> int:
        """The edge of what is measured."""
        return min(round(self.left + self.view.columns / self.ratio), self.far) if self.has_ahead else self.far

    @property
    def far(self) -> int:
        """The edge of the plot."""
        return max(self.size.width() - PLOT_MARGIN_RIGHT, PLOT_GUTTER + 1)

    @property
    def ratio(self) -> float:
        """The screen's pixels in one of the widget."""
        return self.view.ratio

    @property
    def top(self) -> int:
        return self.panes[0].top

    @property
    def bottom(self) -> int:
        return self.panes[-1].bottom

    def x(self, times: Floats) -> Floats:
        result: Floats = self.left + self.view.positions(times) / self.ratio
        return result

    def x_of(self, at_s: float) -> float:
        return self.left + self.view.position(at_s) / self.ratio

    def time_at(self, x: float) -> float:
        return self.view.time_at((x - self.left) * self.ratio)

    def sharp_pane(self, number: int = 0) -> Pane:
        """A pane in the screen's own pixels."""
        pane = self.panes[number]
        top, bottom = (round(y * self.ratio) for y in (pane.top, pane.bottom))
        return Pane(top, bottom, pane.unit, pane.axis, self.ratio)


class Overlay(pg.GraphicsObject):
    """As large as its canvas; subclasses paint where the layout says, once there is one."""

    def __init__(self, z: float = 0.0) -> None:
        super().__init__()
        self.setZValue(z)
        self._layout: Layout | None = None

    def boundingRect(self) -> QRectF:
        size = self._layout.size if self._layout else QSize(0, 0)
        return QRectF(0, 0, size.width(), size.height())

    def _lay_out(self, layout: Layout) -> None:
        """Lie as `layout` says, and be painted anew."""
        if self._layout is None or layout.size != self._layout.size:
            self.prepareGeometryChange()
        self._layout = layout
        self.update()


@dataclass(frozen=True)
class _PlacedTick:
    """A tick of the time axis: its line, and its text with the room that has; no text where there is none."""

    x: int
    text: str
    rect: QRectF


class Axes(Overlay):
    """Painted once into a picture, again only when scale, size or palette change."""

    def __init__(self) -> None:
        super().__init__(z=-10)
        self._ticks: Sequence[_PlacedTick] = ()
        self._shown: object = None
        self._picture = QPixmap()
        self._picture_of: object = None

    @property
    def tick_rects(self) -> list[QRectF]:
        """Where the texts of the time axis stand."""
        return [tick.rect for tick in self._ticks if tick.text]

    def set_layout(self, layout: Layout) -> None:
        ticks = [(round(layout.x_of(tick.at_s)), tick.text) for tick in layout.ticks]
        looks = (layout.size, layout.panes, tuple(ticks), layout.right)
        if looks == self._shown:
            self._layout = layout
            return
        self._shown, self._ticks = looks, list(self._placed(layout, ticks))
        self._lay_out(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if self._layout is None:
            return
        palette, ratio = current(), painter.device().devicePixelRatio()
        looks = (self._shown, palette, ratio)
        if looks != self._picture_of:
            self._picture, self._picture_of = self._painted(self._layout, palette, ratio), looks
        painter.drawPixmap(0, 0, self._picture)

    def _painted(self, layout: Layout, palette: Palette, ratio: float) -> QPixmap:
        picture = QPixmap(layout.size * ratio)
        picture.setDevicePixelRatio(ratio)
        picture.fill(QColor(palette.plot))
        painter = QPainter(picture)
        self._paint_time_grid(painter, layout, palette)
        for pane in layout.panes:
            _paint_pane(painter, layout, pane, palette)
        painter.end()
        return picture

    def _placed(self, layout: Layout, ticks: Sequence[tuple[int, str]]) -> Iterator[_PlacedTick]:
        """Each text centred below its line; one that would touch the text before it or the gutter is left out."""
        used = font()
        height = layout.size.height() - layout.bottom - 1
        taken = layout.left - PLOT_GUTTER / 2
        for x, text in ticks:
            width = text_width(text, used)
            left = round(min(x - width / 2, layout.far - width))
            fits = bool(text) and left >= taken
            taken = left + width + GAP_2 if fits else taken
            yield _PlacedTick(x, text if fits else "", QRectF(left, layout.bottom + 1, width, height))

    def _paint_time_grid(self, painter: QPainter, layout: Layout, palette: Palette) -> None:
        for tick in self._ticks:
            painter.setPen(pen(palette.grid, LINE_GRID))
            for pane in layout.panes:
                painter.drawLine(tick.x, pane.top, tick.x, pane.bottom)
            draw_text(painter, tick.rect.left(), tick.rect.center().y(), tick.text, font(), palette.t3)


def _paint_pane(painter: QPainter, layout: Layout, pane: Pane, palette: Palette) -> None:
    right = layout.left - GAP_2
    if pane.axis is not None:
        for value in pane.axis.ticks:
            y = round(pane.y_of(value))
            painter.setPen(pen(palette.grid if value else palette.line, LINE_GRID))
            painter.drawLine(layout.left, y, layout.far, y)
            if not pane.unit or y - pane.top >= UNIT_ROOM:
                draw_text_before(painter, right, y, pane.axis.label(value), font(), palette.t3)
    left = max(right - text_width(pane.unit, font()), GAP_1)  # of a larger type it ends nearer to the axis
    draw_text(painter, left, pane.top + GAP_2, pane.unit, font(), palette.t3)
