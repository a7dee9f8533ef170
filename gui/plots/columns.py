"""Areas and bars made of columns of whole pixels: numpy paints them, so the cost does not grow with the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.tokens import MARK_LATENCY
from gui.plots.frame import Layout, Strip
from gui.plots.paint import blended
from service.analysis.observed.columns import Floats, Ints

SOFT: Final = 0.25  # the second row of an edge that is a pixel and a quarter wide
LEAST_STRENGTH: Final = 0.05


@dataclass(frozen=True)
class Ink:
    """Colours of a layer: its area, and its upper edge with the row below that; no edge where that is ``None``."""

    area: int
    edge: int | None = None
    below_edge: int = 0

    @classmethod
    def of(cls, color: QColor, edge: str | None = None) -> Ink:
        """An area that may let shine through what is behind it, with an opaque edge."""
        area = _premultiplied(color)
        if edge is None:
            return cls(area)
        return cls(area, QColor(edge).rgb(), blended(edge, color.name(), SOFT).rgb())


@dataclass(frozen=True)
class Layer:
    """For each column of pixels the row in which the area begins, and the lowest row of its upper edge."""

    ink: Ink
    tops: Ints
    edge_ends: Ints | None = None


class ColumnsItem(pg.GraphicsObject):
    """Layers from back to front within one strip."""

    def __init__(self) -> None:
        super().__init__()
        self._place = (0, 0)
        self._rect = QRectF()
        self._pixels: NDArray[np.uint32] | None = None
        self._image: QImage | None = None

    def set_layers(self, layout: Layout, strip: Strip, layers: Sequence[Layer]) -> None:
        self._set_pixels(layout, strip, painted(layers, strip.height, layout.view.columns))

    def boundingRect(self) -> QRectF:
        return self._rect

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        if self._image is not None:
            painter.drawImage(*self._place, self._image)

    def _set_pixels(self, layout: Layout, strip: Strip, pixels: NDArray[np.uint32]) -> None:
        rect = QRectF(layout.left, strip.top, layout.view.columns, strip.height)
        if rect != self._rect:
            self.prepareGeometryChange()
            self._rect, self._place = rect, (layout.left, strip.top)
        self._pixels = pixels  # the image only borrows them
        rows, columns = self._pixels.shape
        kind = QImage.Format.Format_ARGB32_Premultiplied
        self._image = QImage(self._pixels.data, columns, rows, 4 * columns, kind)
        self.update()


class PointsItem(ColumnsItem):
    """Small round points, at whole pixels."""

    def set_points(self, layout: Layout, strip: Strip, times: Floats, values: Floats, ink: QColor) -> None:
        columns = np.floor(layout.view.positions(times)).astype(np.int64)
        self._set_pixels(layout, strip, dotted(columns, _rows(strip, values), strip.height, layout.view.columns, ink))


def dotted(columns: Ints, rows: Ints, height: int, width: int, ink: QColor) -> NDArray[np.uint32]:
    """A picture of points that are `MARK_LATENCY` wide, with soft edges, however many there are."""
    margin = 2
    there = np.zeros((height + 2 * margin, width + 2 * margin), np.bool_)
    inside = (columns >= 0) & (columns < width) & (rows < height)
    there[rows[inside] + margin, columns[inside] + margin] = True
    level = np.zeros((height, width), np.uint8)
    for step, (_, offsets) in enumerate(DISC, start=1):
        for down, right in offsets:
            top, left = margin - down, margin - right
            level[there[top : top + height, left : left + width]] = step
    colors = [0] + [_premultiplied(_faded(ink, strength)) for strength, _ in DISC]
    return np.array(colors, np.uint32)[level]


def _disc(diameter: float) -> list[tuple[float, list[tuple[int, int]]]]:
    """How strongly the pixels about the centre of a disc are covered by it: strengths, rising, with their pixels."""
    pixels: dict[float, list[tuple[int, int]]] = {}
    for down in range(-2, 3):
        for right in range(-2, 3):
            strength = min(max(diameter / 2 + 0.5 - math.hypot(down, right), 0.0), 1.0)
            if strength > LEAST_STRENGTH:
                pixels.setdefault(round(strength, 2), []).append((down, right))
    return sorted(pixels.items())


def painted(layers: Sequence[Layer], rows: int, columns: int) -> NDArray[np.uint32]:
    """The picture of the layers, the last in front."""
    picture = np.zeros((rows, columns), np.uint32)
    row = np.arange(rows, dtype=np.int32)[:, None]
    for layer in layers:
        tops = layer.tops.astype(np.int32)
        is_area = row >= tops
        np.copyto(picture, np.uint32(layer.ink.area), where=is_area)
        if layer.ink.edge is not None and layer.edge_ends is not None:
            ends = layer.edge_ends.astype(np.int32)
            np.copyto(picture, np.uint32(layer.ink.below_edge), where=is_area & (row == ends + 1))
            np.copyto(picture, np.uint32(layer.ink.edge), where=is_area & (row <= ends))
    return picture


def stepped_layer(ink: Ink, strip: Strip, low: Floats, high: Floats) -> Layer:
    """A layer up to `high` whose edge spans all values of a column and reaches up to those of its neighbours."""
    tops = _rows(strip, high)
    ends = np.maximum(tops, _rows(strip, low))
    padded = np.concatenate((tops[:1], tops, tops[-1:]))
    neighbours = np.maximum(padded[:-2], padded[2:]) - 1
    return Layer(ink, tops, np.minimum(np.maximum(ends, neighbours), strip.height - 1))


def plain_layer(ink: Ink, strip: Strip, heights: Floats) -> Layer:
    """A layer without an edge; NaN is nothing."""
    return Layer(ink, _rows(strip, np.nan_to_num(heights)))


def bars_layer(ink: Ink, strip: Strip, columns: int, left: Ints, right: Ints, heights: Floats) -> Layer:
    """Bars over the columns from `left` up to `right`; where they overlap the highest is seen."""
    widths = np.maximum(right - left, 0)
    starts = np.repeat(left, widths)
    offsets = np.arange(len(starts)) - np.repeat(np.cumsum(widths) - widths, widths)
    places = starts + offsets
    inside = (places >= 0) & (places < columns)
    tops = np.full(columns, strip.height, np.int64)
    np.minimum.at(tops, places[inside], np.repeat(_rows(strip, heights), widths)[inside])
    return Layer(ink, tops)


def _faded(color: QColor, strength: float) -> QColor:
    faded = QColor(color)
    faded.setAlphaF(color.alphaF() * strength)
    return faded


def _premultiplied(color: QColor) -> int:
    """The form in which pictures with transparency are painted fastest."""
    alpha = color.alphaF()
    channels = (color.red(), color.green(), color.blue())
    red, green, blue = (round(channel * alpha) for channel in channels)
    return color.alpha() << 24 | red << 16 | green << 8 | blue


def _rows(strip: Strip, values: Floats) -> Ints:
    return np.clip(np.round(strip.y(values)) - strip.top, 0, strip.height).astype(np.int64)


DISC: Final = _disc(MARK_LATENCY)
