"""The name of a control that opens a menu: what it is now stands beside it."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QMenu, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font
from gui.widgets.buttons import Button, paint_caret


class NameMenu(Button):
    """Silent when set by program."""

    picked = Signal(str)  # the key of what the user chose

    def __init__(self, name: str, choices: Mapping[str, str], parent: QWidget | None = None) -> None:
        super().__init__(name, role="quiet", parent=parent)
        self._remark = ""
        self._menu = QMenu(self)
        for key, text in choices.items():
            self._menu.addAction(text).setData(key)
        self._menu.triggered.connect(lambda action: self.picked.emit(action.data()))
        self.clicked.connect(self._pop_up)

    def show_remark(self, remark: str) -> None:
        self._remark = remark
        self.setAccessibleName(f"{self.text()}, {remark}" if remark else self.text())
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(self._caret_x() + tokens.CARET, tokens.HEIGHT_CONTROL)

    def _paint_face(self, painter: QPainter, ink: str) -> None:
        align = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft)
        painter.setPen(colour(current().t1))
        painter.setFont(self._face_font())
        painter.drawText(self.rect(), align, self.text())
        painter.setPen(colour(current().t3))
        painter.setFont(font())
        painter.drawText(QRect(self._remark_x(), 0, self.width(), self.height()), align, self._remark)
        paint_caret(painter, self._caret_x() + tokens.CARET / 2, self.height() / 2, current().t3)

    def _remark_x(self) -> int:
        return QFontMetrics(self._face_font()).horizontalAdvance(self.text()) + tokens.GAP_2

    def _caret_x(self) -> int:
        remark = QFontMetrics(font()).horizontalAdvance(self._remark)
        return self._remark_x() + (remark + tokens.GAP_2 if self._remark else 0)

    def _face_font(self) -> QFont:
        return font(tokens.FONT_TEXT, tokens.WEIGHT_MEDIUM)

    def _pop_up(self) -> None:
        self._menu.popup(self.mapToGlobal(QPoint(0, self.height())))
