"""A slider over a `Scale`, and the small mark under it that shows what is measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from PySide6.QtCore import QObject, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleInterface,
    QAccessibleValueChangeEvent,
    QAccessibleValueInterface,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPolygonF,
    QWheelEvent,
)
from PySide6.QtWidgets import QAccessibleWidget, QSizePolicy, QSlider, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font
from gui.widgets.scale import TRAVEL, Scale


class Slider(QSlider):
    """Groove of 3, grey fill, round handle; set by program it stays silent.

    Attributes:
        scale: the range of its number and the steps in it.
        in_words: the number as it is read out, with its unit.
    """

    moved = Signal(float)  # while the user drags, or by key or wheel
    let_go = Signal(float)  # at the end of a drag

    def __init__(self, scale: Scale, name: str, in_words: Callable[[float], str] = "{:g}".format) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        _read_numbers_out()
        self.scale = scale
        self.in_words = in_words
        self._number = scale.low
        self.setAccessibleName(name)
        self.setFixedHeight(tokens.SLIDER_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    @property
    def number(self) -> float:
        return self._number

    def set_number(self, number: float) -> None:
        """Stand at `number`; Qt's own value, the position, stays unused, or it would be read out."""
        if number != self._number:
            self._number = number
            QAccessible.updateAccessibility(QAccessibleValueChangeEvent(self, number))
            self.update()

    def set_scale(self, scale: Scale) -> None:
        """Take another range; the number stays."""
        if scale != self.scale:
            self.scale = scale
            self.update()

    def choose(self, number: float) -> None:
        """Move to `number` as if the user had dragged the handle there."""
        self._move_to(min(self.scale.high, max(self.scale.low, number)))
        self.let_go.emit(self._number)

    def sizeHint(self) -> QSize:
        return QSize(tokens.WIDTH_NUMBER, tokens.SLIDER_HEIGHT)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Left | Qt.Key.Key_Down:
                self.choose(self.scale.stepped(self._number, -1))
            case Qt.Key.Key_Right | Qt.Key.Key_Up:
                self.choose(self.scale.stepped(self._number, 1))
            case Qt.Key.Key_PageUp:
                self.choose(self.scale.doubled(self._number, 1))
            case Qt.Key.Key_PageDown:
                self.choose(self.scale.doubled(self._number, -1))
            case Qt.Key.Key_Home:
                self.choose(self.scale.low)
            case Qt.Key.Key_End:
                self.choose(self.scale.high)
            case _:
                event.ignore()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if not self.hasFocus():  # scrolling past a slider must not move it
            event.ignore()
            return
        self.choose(self.scale.stepped(self._number, 1 if event.angleDelta().y() > 0 else -1))
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.setSliderDown(True)
            self._drag_to(event.position().x())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self.isSliderDown():
            self._drag_to(event.position().x())

    def mouseReleaseEvent(self, _event: QMouseEvent) -> None:
        if self.isSliderDown():
            self.setSliderDown(False)
            self.let_go.emit(self._number)

    def paintEvent(self, _event: QPaintEvent) -> None:
        palette = current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        x, middle = handle_x(self.scale.position_of(self._number), self.width()), self.height() / 2
        half = tokens.SLIDER_GROOVE / 2
        groove = QRectF(0, middle - half, self.width(), tokens.SLIDER_GROOVE)
        painter.setBrush(colour(palette.track))
        painter.drawRoundedRect(groove, half, half)
        groove.setWidth(x)
        painter.setBrush(colour(palette.t2 if self.isEnabled() else palette.border))
        painter.drawRoundedRect(groove, half, half)
        painter.setBrush(colour(palette.t1 if self.isEnabled() else palette.t3))
        radius = tokens.SLIDER_HANDLE / 2
        painter.drawEllipse(QPointF(x, middle), radius - 1, radius - 1)

    def _drag_to(self, x: float) -> None:
        room = self.width() - tokens.SLIDER_HANDLE
        share = (x - tokens.SLIDER_HANDLE / 2) / room if room > 0 else 0.0
        self._move_to(self.scale.value_at(round(min(1.0, max(0.0, share)) * TRAVEL)))

    def _move_to(self, number: float) -> None:
        if number != self._number:
            self.set_number(number)
            self.moved.emit(number)


class _ReadOut(QAccessibleWidget):
    """What assistive technology is told of a slider: the setting's number, not the handle's position."""

    def __init__(self, slider: Slider) -> None:
        super().__init__(slider, QAccessible.Role.Slider, slider.accessibleName())
        self._value = _ReadOutValue(slider)  # Qt keeps no reference to it
        self._slider = slider

    def text(self, kind: QAccessible.Text) -> str:
        return self._slider.in_words(self._slider.number) if kind == QAccessible.Text.Value else super().text(kind)

    def interface_cast(self, kind: QAccessible.InterfaceType) -> Any:  # a pointer, which PySide6 types as int
        return self._value if kind == QAccessible.InterfaceType.ValueInterface else super().interface_cast(kind)


class _ReadOutValue(QAccessibleValueInterface):
    """The number of a slider and its bounds, as numbers."""

    def __init__(self, slider: Slider) -> None:
        super().__init__()
        self._slider = slider

    def currentValue(self) -> float:
        return self._slider.number

    def minimumValue(self) -> float:
        return self._slider.scale.low

    def maximumValue(self) -> float:
        return self._slider.scale.high

    def minimumStepSize(self) -> float:
        return self._slider.scale.least_step

    def setCurrentValue(self, number: float) -> None:
        if self._slider.isEnabled():
            self._slider.choose(number)


@cache
def _read_numbers_out() -> None:
    """Let Qt ask `_ReadOut` about every `Slider`."""
    QAccessible.installFactory(_read_out_of)


def _read_out_of(_kind: str, thing: QObject) -> QAccessibleInterface | None:
    return _ReadOut(thing) if isinstance(thing, Slider) else None


class Measured(QWidget):
    """▲ under a slider's groove at the measured value, with its name below."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self._scale = scale
        self._number: float | None = None
        self._text = ""
        self.setFixedHeight(tokens.MEASURED_HEIGHT)
        self.hide()

    def set_scale(self, scale: Scale) -> None:
        self._scale = scale
        self.update()

    def show_measured(self, number: float | None, text: str = "") -> None:
        """Mark `number`; its place stays reserved from then on, so that nothing jumps when it is unknown again."""
        if (number, text) == (self._number, self._text):
            return
        self._number, self._text = number, text
        self.setVisible(number is not None or not self.isHidden())
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self._number is None:
            return
        palette = current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        x, half = handle_x(self._scale.position_of(self._number), self.width()), tokens.SLIDER_MARKER / 2
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour(palette.t1))
        painter.drawPolygon(QPolygonF([QPointF(x, 0), QPointF(x + half, half + 1), QPointF(x - half, half + 1)]))
        painter.setFont(font(tokens.FONT_CAPTION))
        painter.setPen(colour(palette.t2))
        width = painter.fontMetrics().horizontalAdvance(self._text)
        left = min(max(0.0, x - width / 2), self.width() - width)
        painter.drawText(QRectF(left, half + 1, width + 1, self.height() - half - 1), 0, self._text)


def handle_x(position: int, width: int) -> float:
    """Where the middle of the handle stands in a slider `width` wide."""
    return tokens.SLIDER_HANDLE / 2 + position / TRAVEL * (width - tokens.SLIDER_HANDLE)
