"""The states by shape and progress as a bar, drawn: there from the first frame, and sharp at every scale."""

from __future__ import annotations

from typing import Literal, TypeAlias

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFont, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font

Shape: TypeAlias = Literal["circle", "dot", "arc", "check", "cross", "dash", "alert", "none"]


class Glyph(QWidget):
    """One state, as a shape."""

    def __init__(self, shape: Shape = "none", ink: str = "t2", size: float = tokens.GLYPH) -> None:
        super().__init__()
        self._size = size
        self._shape: Shape = shape
        self._ink = ink
        self._share = 0.7
        self.setFixedSize(tokens.ICON, tokens.ICON)

    def show_shape(self, shape: Shape, ink: str = "t2", share: float = 0.7) -> None:
        """`ink` names a token of the palette; `share` is how much of an arc is closed."""
        if (shape, ink, share) != (self._shape, self._ink, self._share):
            self._shape, self._ink, self._share = shape, ink, share
            self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint_glyph(
            painter, self._shape, QPointF(self.rect().center()) + QPointF(0.5, 0.5), self._ink, self._share, self._size
        )


def paint_glyph(
    painter: QPainter, shape: Shape, at: QPointF, ink: str, share: float = 0.0, size: float = tokens.GLYPH
) -> None:
    """Draw `shape` centred at `at` in the palette's colour `ink`."""
    palette = current()
    pen_colour = colour(getattr(palette, ink))
    box = QRectF(at.x() - size / 2, at.y() - size / 2, size, size)
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(pen_colour, tokens.STROKE, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    match shape:
        case "circle":
            painter.setPen(QPen(pen_colour, tokens.STROKE + 0.25))
            painter.drawEllipse(box.adjusted(1, 1, -1, -1))
        case "dot":
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(pen_colour)
            painter.drawEllipse(box.adjusted(1, 1, -1, -1))
        case "arc":
            _paint_ring(painter, box, palette.track, getattr(palette, ink), share)
        case "check":
            painter.drawPolyline(_polyline(at, [(-3.5, 0.5), (-1.0, 3.0), (4.0, -2.5)]))
        case "cross":
            painter.drawPolyline(_polyline(at, [(-3.0, -3.0), (3.0, 3.0)]))
            painter.drawPolyline(_polyline(at, [(-3.0, 3.0), (3.0, -3.0)]))
        case "dash":
            painter.drawPolyline(_polyline(at, [(-3.5, 0.0), (3.5, 0.0)]))
        case "alert":
            _paint_alert(painter, box, getattr(palette, ink), palette.plot)
        case "none":
            pass
    painter.restore()


def _paint_ring(painter: QPainter, box: QRectF, groove: str, ink: str, share: float) -> None:
    ring = box.adjusted(1, 1, -1, -1)
    painter.setPen(QPen(colour(groove), tokens.RING_WIDTH))
    painter.drawEllipse(ring)
    painter.setPen(QPen(colour(ink), tokens.RING_WIDTH, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap))
    painter.drawArc(ring, 90 * 16, -round(max(0.04, min(1.0, share)) * 360 * 16))


def _paint_alert(painter: QPainter, box: QRectF, ink: str, ground: str) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour(ink))
    painter.drawEllipse(box)
    painter.setPen(colour(ground))
    bold = QFont(font(tokens.FONT_CAPTION, tokens.WEIGHT_BOLD))
    bold.setPixelSize(round(box.height() * 0.8))
    painter.setFont(bold)
    painter.drawText(box, int(Qt.AlignmentFlag.AlignCenter), "!")


def _polyline(at: QPointF, corners: list[tuple[float, float]]) -> QPolygonF:
    return QPolygonF([QPointF(at.x() + dx, at.y() + dy) for dx, dy in corners])


class Progress(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._fraction = 0.0
        self.setFixedHeight(tokens.PROGRESS_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_fraction(self, fraction: float) -> None:
        fraction = min(1.0, max(0.0, fraction))
        if fraction != self._fraction:
            self._fraction = fraction
            self.setAccessibleDescription(f"{fraction:.0%}")
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(tokens.WIDTH_NUMBER, tokens.PROGRESS_HEIGHT)

    def paintEvent(self, _event: QPaintEvent) -> None:
        palette = current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        bar = QRectF(self.rect())
        radius = bar.height() / 2
        painter.setBrush(colour(palette.track))
        painter.drawRoundedRect(bar, radius, radius)
        bar.setWidth(max(bar.height(), bar.width() * self._fraction))
        painter.setBrush(colour(palette.t1))
        painter.drawRoundedRect(bar, radius, radius)
