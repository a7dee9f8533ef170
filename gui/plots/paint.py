"""Pens, brushes, fonts and texts made from the tokens."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QImage, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QApplication

from gui.look.theme import colour, scaled
from gui.look.tokens import FONT_CAPTION, LEGEND_SWATCH, WEIGHT_BOLD, WEIGHT_REGULAR
from gui.series.declaration import Swatch


def blended(name: str, ground: str, alpha: float) -> QColor:
    """The opaque colour that `name` has on `ground`: what is opaque can be painted back to front."""
    over, under = QColor(name), QColor(ground)
    pairs = ((over.red(), under.red()), (over.green(), under.green()), (over.blue(), under.blue()))
    return QColor(*(round(alpha * a + (1 - alpha) * b) for a, b in pairs))


def image_of(pixels: NDArray[np.uint32], ratio: float) -> QImage:
    """The picture, at `ratio` pixels of the screen to one of the widget; it shares the memory of `pixels`."""
    rows, columns = pixels.shape
    image = QImage(pixels.data, columns, rows, 4 * columns, QImage.Format.Format_ARGB32_Premultiplied)
    image.setDevicePixelRatio(ratio)
    return image


def pen(name: str, width: float = 1.0, dashes: tuple[int, int] | None = None) -> QPen:
    result = QPen(colour(name), width)
    result.setCapStyle(Qt.PenCapStyle.FlatCap)
    result.setJoinStyle(Qt.PenJoinStyle.BevelJoin)
    if dashes is not None:
        result.setDashPattern([length / width for length in dashes])
    return result


def font(size: int = FONT_CAPTION, weight: int = WEIGHT_REGULAR) -> QFont:
    """The application's font (with its tabular figures) in a size of the tokens."""
    return _font(scaled(size), weight)


@lru_cache(maxsize=64)
def _font(size: int, weight: int) -> QFont:
    result = QFont(QApplication.font())
    result.setPixelSize(size)
    result.setWeight(QFont.Weight(weight))
    return result


def bold(size: int = FONT_CAPTION) -> QFont:
    return font(size, WEIGHT_BOLD)


def text_width(text: str, used: QFont) -> float:
    return _width(text, used.pixelSize(), used.weight())


@lru_cache(maxsize=4096)
def _width(text: str, size: int, weight: int) -> float:
    return QFontMetricsF(_font(size, weight)).horizontalAdvance(text)


def forget_fonts() -> None:
    """The application's font may have changed."""
    _font.cache_clear()
    _width.cache_clear()


def draw_text(painter: QPainter, x: float, middle: float, text: str, used: QFont, ink: str) -> None:
    """A line of text from `x` on, whose small letters are centred about `middle`."""
    painter.setFont(used)
    painter.setPen(colour(ink))
    baseline = round(middle + QFontMetricsF(used).capHeight() / 2)  # a whole pixel
    painter.drawText(QPointF(x, baseline), text)


def draw_text_before(painter: QPainter, right: float, middle: float, text: str, used: QFont, ink: str) -> None:
    """A line of text that ends at `right`, whose small letters are centred about `middle`."""
    draw_text(painter, right - text_width(text, used), middle, text, used, ink)


def swatch_rect(x: float, middle: float) -> QRectF:
    """The square of a legend from `x` on, centred about `middle`."""
    return QRectF(x, round(middle) - LEGEND_SWATCH // 2, LEGEND_SWATCH, LEGEND_SWATCH)


def draw_mark(painter: QPainter, shape: Swatch, x: float, middle: float, size: float) -> None:
    """A mark from `x` on, centred about `middle`, in the painter's pen and brush; nothing if `shape` is no mark's."""
    match shape:
        case "square":
            painter.drawRect(QRectF(x, round(middle) - size // 2, size, size))
        case "circle":
            painter.drawEllipse(QRectF(x, middle - size / 2, size, size))
        case "triangle":
            base = middle + size / 2 - 1
            painter.drawPolygon(polygon((x, base), (x + size, base), (x + size / 2, middle - size / 2)))
        case "diamond":
            top, bottom = (x + size / 2, middle - size / 2), (x + size / 2, middle + size / 2)
            painter.drawPolygon(polygon((x, middle), top, (x + size, middle), bottom))
        case "caret":
            top_y = middle - size / 2 + 1
            painter.drawPolygon(polygon((x, top_y), (x + size, top_y), (x + size / 2, middle + size / 2)))


def polygon(*corners: tuple[float, float]) -> QPolygonF:
    return QPolygonF([QPointF(x, y) for x, y in corners])
