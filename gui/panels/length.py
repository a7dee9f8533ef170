"""A length, as a number or a distribution chosen from a menu."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from PySide6.QtCore import QRect, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font
from gui.widgets.buttons import Button, menu_of, paint_caret, pop_up
from gui.widgets.layouts import column
from gui.widgets.setting import Setting
from service.messages.load import Length, LognormalLength, UniformLength
from service.messages.settings import Bounds


class NameMenu(Button):
    """A name with a remark that opens a menu of kinds; a change by program emits nothing."""

    picked = Signal(str)  # the key of what the user chose

    def __init__(self, name: str, choices: Mapping[str, str]) -> None:
        super().__init__(name, role="quiet")
        self._remark = ""
        self._menu = menu_of(self, [(text, key) for key, text in choices.items()])
        self._menu.triggered.connect(lambda action: self.picked.emit(action.data()))
        self.clicked.connect(lambda: pop_up(self._menu, self, gap=0))

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


LENGTHS: Final = Bounds(1, 8192, integral=True)
SIGMA: Final = Bounds(0.01, 5, integral=False)
KINDS: Final[Mapping[str, str]] = {"fixed": "Always the same", "uniform": "From … to …", "lognormal": "Few long ones"}
AS_WRITTEN: Final = "as written"
REMARKS: Final[Mapping[str, str]] = {"fixed": "", "uniform": "drawn", "lognormal": "drawn", AS_WRITTEN: AS_WRITTEN}
ROWS: Final = {"uniform": UniformLength.__struct_fields__, "lognormal": LognormalLength.__struct_fields__}


class LengthControl(QWidget):
    """One length; a change by program emits nothing. Length ``None`` leaves prompts as they are written."""

    wanted = Signal()

    def __init__(self, name: str, unit: str, usual: int, tip: str, is_optional: bool = False) -> None:
        super().__init__()
        kinds = {AS_WRITTEN: "As written", **KINDS} if is_optional else KINDS
        self._kind = AS_WRITTEN if is_optional else "fixed"
        self._name = NameMenu(name, kinds)
        self.fixed = Setting(name, LENGTHS, unit=unit, title=self._name)
        self.fixed.set_number(float(usual))
        self._numbers = {
            "low": _row("from", LENGTHS, 8, unit),
            "high": _row("to", LENGTHS, 128, unit),
            "median": _row("median", LENGTHS, 32, unit, "Half of them are shorter"),
            "sigma": _row("sigma", SIGMA, 0.6, "", "How far they spread: the deviation of their logarithm", 2),
            "cap": _row("at most", LENGTHS, 256, unit),
        }
        self.setToolTip(tip)
        self.setLayout(column(self.fixed, *self._numbers.values(), gap=tokens.GAP_1))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self._name.picked.connect(self.pick)
        self._numbers["low"].wanted.connect(lambda low, _: self._keep_apart("high", low, max))
        self._numbers["high"].wanted.connect(lambda high, _: self._keep_apart("low", high, min))
        for number in (self.fixed, *self._numbers.values()):
            number.wanted.connect(lambda *_: self.wanted.emit())
        self._show_kind()

    @property
    def length(self) -> Length | None:
        whole = {field: int(number.number) for field, number in self._numbers.items()}
        match self._kind:
            case "fixed":
                return int(self.fixed.number)
            case "uniform":
                return UniformLength(low=whole["low"], high=whole["high"])
            case "lognormal":
                sigma = self._numbers["sigma"].number
                return LognormalLength(median=whole["median"], sigma=sigma, cap=whole["cap"])
        return None

    def set_length(self, length: Length | None) -> None:
        match length:
            case None:
                self._kind = AS_WRITTEN
            case UniformLength() | LognormalLength():
                self._kind = "uniform" if isinstance(length, UniformLength) else "lognormal"
                for field in length.__struct_fields__:
                    self._numbers[field].set_number(float(getattr(length, field)))
            case _:
                self._kind = "fixed"
                self.fixed.set_number(float(length))
        self._show_kind()

    def number(self, field: str) -> Setting:
        return self._numbers[field]

    def pick(self, kind: str) -> None:
        """Choose `kind` as a click in the menu does."""
        self._kind = kind
        self._show_kind()
        self.wanted.emit()

    def _show_kind(self) -> None:
        self._name.show_remark(REMARKS[self._kind])
        self.fixed.field.setVisible(self._kind == "fixed")
        for field, number in self._numbers.items():
            number.setVisible(field in ROWS.get(self._kind, ()))

    def _keep_apart(self, other: str, number: float, outer: Callable[[float, float], float]) -> None:
        """Move the other end of the range along, if this one was moved past it."""
        self._numbers[other].set_number(outer(self._numbers[other].number, number), keep_typing=False)


def _row(name: str, bounds: Bounds, usual: float, unit: str, tip: str = "", decimals: int = 0) -> Setting:
    made = Setting(name, bounds, None, decimals, unit, tip)
    made.set_number(usual)
    made.set_plain()
    return made
