"""Areas and bars made of columns of the screen's pixels: numpy paints them, so the cost does not grow with the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PySide6.QtCore import QPointF
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.tokens import MARK_LATENCY
from gui.plots.layout import Layout, Overlay, Pane
from gui.plots.paint import blended, image_of
from service.analysis.observed.columns import Floats, Ints

EDGE: Final = 1.25  # pixels of the widget that an edge is wide; the part of the last row is softened
LEAST_STRENGTH: Final = 0.05


@dataclass(frozen=True)
class Ink:
    """Colours of a layer: its area, its upper edge if it has one, and what a soft edge lets shine through."""

    area: int
    edge: str | None = None
    ground: str = ""

    @classmethod
    def of(cls, color: QColor, edge: str | None = None) -> Ink:
        """An area that may let shine through what is behind it, with an opaque edge."""
        return cls(_premultiplied(color), edge, color.name())


@dataclass(frozen=True)
class Layer:
    """For each column of pixels the row in which the area begins, and the lowest row of its upper edge."""

    ink: Ink
    tops: Ints
    edge_ends: Ints | None = None


class ColumnsItem(Overlay):
    """Layers from back to front within one pane, which is in the screen's pixels."""

    _image: QImage | None = None

    def set_layers(self, layout: Layout, pane: Pane, layers: Sequence[Layer]) -> None:
        self._set_pixels(layout, pane, painted(layers, pane.height, layout.view.columns, pane.ratio))

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        if self._image is not None:
            painter.drawImage(self._corner, self._image)

    def _set_pixels(self, layout: Layout, pane: Pane, pixels: NDArray[np.uint32]) -> None:
        self._corner = QPointF(round(layout.left * pane.ratio), pane.top) / pane.ratio
        self._pixels, self._image = pixels, image_of(pixels, pane.ratio)
        self._lay_out(layout)


class PointsItem(ColumnsItem):
    """Small round points, at whole pixels."""

    def set_points(self, layout: Layout, pane: Pane, times: Floats, values: Floats, ink: QColor) -> None:
        columns = np.floor(layout.view.positions(times)).astype(np.int64)
        size = pane.height, layout.view.columns
        self._set_pixels(layout, pane, dotted(columns, _rows(pane, values), *size, ink, pane.ratio))


def dotted(columns: Ints, rows: Ints, height: int, width: int, ink: QColor, ratio: float = 1.0) -> NDArray[np.uint32]:
    """A picture of points that are `MARK_LATENCY` wide, with soft edges, however many there are."""
    disc = _disc(MARK_LATENCY * ratio)
    margin = _reach(MARK_LATENCY * ratio)
    there = np.zeros((height + 2 * margin, width + 2 * margin), np.bool_)
    inside = (columns >= 0) & (columns < width) & (rows < height)
    there[rows[inside] + margin, columns[inside] + margin] = True
    level = np.zeros((height, width), np.uint8)
    for step, (_, offsets) in enumerate(disc, start=1):
        covered = np.zeros_like(level, np.bool_)
        for down, right in offsets:
            top, left = margin - down, margin - right
            covered |= there[top : top + height, left : left + width]
        level[covered] = step
    colors = [0] + [_premultiplied(_faded(ink, strength)) for strength, _ in disc]
    return np.array(colors, np.uint32)[level]


@cache
def _disc(diameter: float) -> list[tuple[float, list[tuple[int, int]]]]:
    """How strongly the pixels about the centre of a disc are covered by it: strengths, rising, with their pixels."""
    pixels: dict[float, list[tuple[int, int]]] = {}
    reach = range(-_reach(diameter), _reach(diameter) + 1)
    for down in reach:
        for right in reach:
            strength = min(max(diameter / 2 + 0.5 - math.hypot(down, right), 0.0), 1.0)
            if strength > LEAST_STRENGTH:
                pixels.setdefault(round(strength, 2), []).append((down, right))
    return sorted(pixels.items())


def _reach(diameter: float) -> int:
    """How far from its centre a disc covers pixels."""
    return math.floor(diameter / 2 + 0.5 - LEAST_STRENGTH)


def painted(layers: Sequence[Layer], rows: int, columns: int, ratio: float = 1.0) -> NDArray[np.uint32]:
    """The picture of the layers, the last in front."""
    full_rows = int(EDGE * ratio)
    softness = EDGE * ratio - full_rows
    picture = np.zeros((rows, columns), np.uint32)
    row = np.arange(rows, dtype=np.int32)[:, None]
    for layer in layers:
        tops = layer.tops.astype(np.int32)
        is_area = row >= tops
        np.copyto(picture, np.uint32(layer.ink.area), where=is_area)
        if layer.ink.edge is not None and layer.edge_ends is not None:
            ends = layer.edge_ends.astype(np.int32)
            soft = blended(layer.ink.edge, layer.ink.ground, softness).rgb()
            np.copyto(picture, np.uint32(soft), where=is_area & (row == ends + full_rows))
            np.copyto(picture, np.uint32(QColor(layer.ink.edge).rgb()), where=is_area & (row < ends + full_rows))
    return picture


def stepped_layer(ink: Ink, pane: Pane, low: Floats, high: Floats) -> Layer:
    """A layer up to `high` whose edge spans all values of a column and reaches up to those of its neighbours."""
    tops = _rows(pane, high)
    ends = np.maximum(tops, _rows(pane, low))
    width = int(EDGE * pane.ratio)
    neighbours = sliding_window_view(np.pad(tops, width, mode="edge"), 2 * width + 1).max(axis=1) - width
    return Layer(ink, tops, np.minimum(np.maximum(ends, neighbours), pane.height - 1))


def plain_layer(ink: Ink, pane: Pane, heights: Floats) -> Layer:
    """A layer without an edge; NaN is nothing."""
    return Layer(ink, _rows(pane, np.nan_to_num(heights)))


def bars_layer(ink: Ink, pane: Pane, columns: int, left: Ints, right: Ints, heights: Floats) -> Layer:
    """Bars over the columns from `left` up to `right`; where they overlap the highest is seen."""
    widths = np.maximum(right - left, 0)
    starts = np.repeat(left, widths)
    offsets = np.arange(len(starts)) - np.repeat(np.cumsum(widths) - widths, widths)
    places = starts + offsets
    inside = (places >= 0) & (places < columns)
    tops = np.full(columns, pane.height, np.int64)
    np.minimum.at(tops, places[inside], np.repeat(_rows(pane, heights), widths)[inside])
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


def _rows(pane: Pane, values: Floats) -> Ints:
    return np.clip(np.round(pane.y(values)) - pane.top, 0, pane.height).astype(np.int64)
