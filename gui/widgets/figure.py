"""One figure of the row: label, number with unit, and the same figure under the settings before."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize
from PySide6.QtGui import QFont, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font
from service.messages.text import UNKNOWN


class Figure(QWidget):
    """Painted whole: its number changes four times a second and must not move anything else.

    Attributes:
        is_dimmed: whether it is greyed out, since it is out of date.
    """

    def __init__(self, name: str, unit: str = "", swatch: str | None = None, tip: str = "") -> None:
        super().__init__()
        self._name = name
        self._unit = unit
        self._swatch = swatch
        self._number = UNKNOWN
        self._before = ("", "")
        self.is_dimmed = self._is_alarming = self._is_narrow = False
        self._size = tokens.FONT_FIGURE
        self.setToolTip(tip)
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    @property
    def text(self) -> str:
        """The number as shown, with its unit."""
        return self._number if self._number == UNKNOWN or not self._unit else f"{self._number} {self._unit}"

    @property
    def before(self) -> str:
        return " ".join(part for part in self._before if part)

    def set_name(self, name: str) -> None:
        if name != self._name:
            self._name = name
            self.setAccessibleName(name)
            self.update()

    def show_number(self, number: str, before: tuple[str, str] = ("", "")) -> None:
        """`number` without its unit; `before` is a label and a value, in small type below."""
        if (number, before) != (self._number, self._before):
            self._number, self._before = number, before
            self.setAccessibleDescription(f"{self.text}, {self.before}" if self.before else self.text)
            self.update()

    def set_dimmed(self, dimmed: bool) -> None:
        if dimmed != self.is_dimmed:
            self.is_dimmed = dimmed
            self.update()

    def set_alarming(self, is_alarming: bool) -> None:
        """Show the number in red."""
        if is_alarming != self._is_alarming:
            self._is_alarming = is_alarming
            self.update()

    def set_size(self, size_px: int, is_narrow: bool = False) -> None:
        """The number's size; where the figure `is_narrow`, its label and unit are small too."""
        if (size_px, is_narrow) != (self._size, self._is_narrow):
            self._size, self._is_narrow = size_px, is_narrow
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(tokens.WIDTH_FIGURE, tokens.HEIGHT_FIGURES)

    def minimumSizeHint(self) -> QSize:
        return QSize(tokens.WIDTH_FIGURE_MIN, tokens.HEIGHT_FIGURES_EMPTY)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._paint_label(painter)
        self._paint_number(painter)
        self._paint_before(painter)

    def _paint_label(self, painter: QPainter) -> None:
        palette, left = current(), 0.0
        if self._swatch is not None:
            painter.fillRect(
                QRectF(0, tokens.FIGURE_LABEL_Y - tokens.SWATCH_RISE, tokens.SWATCH_WIDTH, tokens.SWATCH_HEIGHT),
                colour(getattr(palette, self._swatch)),
            )
            left = tokens.SWATCH_WIDTH + tokens.SWATCH_GAP
        _write(painter, left, tokens.FIGURE_LABEL_Y, self._name, self._small(), palette.t2)

    def _paint_number(self, painter: QPainter) -> None:
        palette = current()
        face = font(self._size, tokens.WEIGHT_BOLD)
        is_dim = self.is_dimmed or self._number == UNKNOWN
        ink = palette.t3 if is_dim else palette.error if self._is_alarming else palette.t1
        _write(painter, 0, tokens.FIGURE_NUMBER_Y, self._number, face, ink)
        if self._unit and self._number != UNKNOWN:
            left = QFontMetricsF(face).horizontalAdvance(self._number) + tokens.GAP_UNIT
            _write(
                painter, left, tokens.FIGURE_NUMBER_Y, self._unit, self._small(), palette.t3 if is_dim else palette.t2
            )

    def _small(self) -> QFont:
        return font(tokens.FONT_CAPTION if self._is_narrow else tokens.FONT_TEXT)

    def _paint_before(self, painter: QPainter) -> None:
        what, value = self._before
        _write(painter, 0, tokens.FIGURE_BEFORE_Y, what, font(tokens.FONT_CAPTION), current().t3)
        left = painter.fontMetrics().horizontalAdvance(what) + tokens.GAP_BEFORE if what else 0
        bold = font(tokens.FONT_CAPTION, tokens.WEIGHT_BOLD)
        _write(painter, left, tokens.FIGURE_BEFORE_Y, value, bold, current().t2)


def _write(painter: QPainter, x: float, baseline: float, text: str, face: QFont, ink: str) -> None:
    painter.setFont(face)
    painter.setPen(colour(ink))
    painter.drawText(QPointF(x, baseline), text)
