"""A slider over a `Scale`, and the small mark under it that shows what is measured."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPolygonF, QWheelEvent
from PySide6.QtWidgets import QSizePolicy, QSlider, QWidget

from gui import tokens
from gui.theme import colour, current, font
from gui.widgets.scale import TRAVEL, Scale


class Slider(QSlider):
    """Groove of 3, grey fill, round handle; set by program it stays silent."""

    moved = Signal(float)  # while the user drags, or by key or wheel
    let_go = Signal(float)  # at the end of a drag

    def __init__(self, scale: Scale, name: str, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._scale = scale
        self._number = scale.low
        self.setRange(0, TRAVEL)
        self.setAccessibleName(name)
        self.setFixedHeight(tokens.SLIDER_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    @property
    def number(self) -> float:
        return self._number

    def set_number(self, number: float) -> None:
        self._number = number
        self.setValue(self._scale.position_of(number))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(tokens.WIDTH_NUMBER, tokens.SLIDER_HEIGHT)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        number = self._number_after(Qt.Key(event.key()))
        if number is None:
            event.ignore()
            return
        self._move_to(number)
        self.let_go.emit(self._number)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if not self.hasFocus():  # scrolling past a slider must not move it
            event.ignore()
            return
        self._move_to(self._scale.stepped(self._number, 1 if event.angleDelta().y() > 0 else -1))
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
        x, middle = handle_x(self._scale.position_of(self._number), self.width()), self.height() / 2
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

    def _number_after(self, key: Qt.Key) -> float | None:
        match key:
            case Qt.Key.Key_Left | Qt.Key.Key_Down:
                return self._scale.stepped(self._number, -1)
            case Qt.Key.Key_Right | Qt.Key.Key_Up:
                return self._scale.stepped(self._number, 1)
            case Qt.Key.Key_PageUp:
                return self._scale.doubled(self._number, 1)
            case Qt.Key.Key_PageDown:
                return self._scale.doubled(self._number, -1)
            case Qt.Key.Key_Home:
                return self._scale.low
            case Qt.Key.Key_End:
                return self._scale.high
            case _:
                return None

    def _drag_to(self, x: float) -> None:
        room = self.width() - tokens.SLIDER_HANDLE
        share = (x - tokens.SLIDER_HANDLE / 2) / room if room > 0 else 0.0
        self._move_to(self._scale.value_at(round(min(1.0, max(0.0, share)) * TRAVEL)))

    def _move_to(self, number: float) -> None:
        if number != self._number:
            self.set_number(number)
            self.moved.emit(number)


class Measured(QWidget):
    """▲ under a slider's groove at the measured value, with its name below."""

    def __init__(self, scale: Scale, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._scale = scale
        self._number: float | None = None
        self._text = ""
        self.setFixedHeight(tokens.MEASURED_HEIGHT)
        self.hide()

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
