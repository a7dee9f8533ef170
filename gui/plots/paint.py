"""Pens, brushes, fonts and texts made from the tokens."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QFontMetricsF, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QApplication

from gui.look.tokens import FONT_CAPTION, WEIGHT_BOLD, WEIGHT_REGULAR


def color(name: str, alpha: float = 1.0) -> QColor:
    result = QColor(name)
    result.setAlphaF(alpha)
    return result


def blended(name: str, ground: str, alpha: float) -> QColor:
    """The opaque colour that `name` has on `ground`: what is opaque can be painted back to front."""
    over, under = QColor(name), QColor(ground)
    pairs = ((over.red(), under.red()), (over.green(), under.green()), (over.blue(), under.blue()))
    return QColor(*(round(alpha * a + (1 - alpha) * b) for a, b in pairs))


def pen(name: str, width: float = 1.0, dashes: tuple[int, int] | None = None, alpha: float = 1.0) -> QPen:
    result = QPen(color(name, alpha), width)
    result.setCapStyle(Qt.PenCapStyle.FlatCap)
    result.setJoinStyle(Qt.PenJoinStyle.BevelJoin)
    if dashes is not None:
        result.setDashPattern([length / width for length in dashes])
    return result


def brush(name: str, alpha: float = 1.0) -> QBrush:
    return QBrush(color(name, alpha))


@lru_cache(maxsize=64)
def font(size: int = FONT_CAPTION, weight: int = WEIGHT_REGULAR) -> QFont:
    """The application's font (with its tabular figures) in a size of ours."""
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
    return QFontMetricsF(font(size, weight)).horizontalAdvance(text)


def forget_fonts() -> None:
    """The application's font may have changed."""
    font.cache_clear()
    _width.cache_clear()


def draw_text(painter: QPainter, x: float, middle: float, text: str, used: QFont, ink: str) -> None:
    """A line of text from `x` on, whose small letters are centred about `middle`."""
    painter.setFont(used)
    painter.setPen(QColor(ink))
    painter.drawText(QPointF(x, baseline(middle, used)), text)


def baseline(middle: float, used: QFont) -> float:
    """Where the baseline lies so that capitals and figures stand centred about `middle`; a whole pixel."""
    return round(middle + QFontMetricsF(used).capHeight() / 2)


def triangle(x: float, middle: float, size: float) -> QPolygonF:
    """From `x` on, upright."""
    half = size / 2
    base = middle + half - 1
    return QPolygonF([QPointF(x, base), QPointF(x + size, base), QPointF(x + half, middle - half)])


def caret(x: float, middle: float, size: float) -> QPolygonF:
    """From `x` on, standing on its point."""
    half = size / 2
    top = middle - half + 1
    return QPolygonF([QPointF(x, top), QPointF(x + size, top), QPointF(x + half, middle + half)])


def diamond(x: float, middle: float, size: float) -> QPolygonF:
    """From `x` on, standing on its point."""
    half = size / 2
    corners = (x, middle), (x + half, middle - half), (x + size, middle), (x + half, middle + half)
    return QPolygonF([QPointF(*corner) for corner in corners])
