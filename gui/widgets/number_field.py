"""A number one can type: right-aligned, its unit inside, checked when it is entered."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QEvent, QRect, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QKeySequence, QPainter, QPaintEvent
from PySide6.QtWidgets import QLineEdit, QSizePolicy

from gui.look import tokens
from gui.look.theme import current, font
from gui.widgets.labels import draw_text, repolish
from gui.widgets.scale import Scale
from service.messages.settings import Bounds
from service.messages.text import parse_number

UNDO_KEYS: Final = (QKeySequence.StandardKey.Undo, QKeySequence.StandardKey.Redo)
COMMA_RULE: Final = "Decimals take a point, not a comma."  # 1,500 could be either number
COMMA_IN_LIST_RULE: Final = "Decimals take a point, not a comma; between two numbers write a comma and a space."


class NumberField(QLineEdit):
    """Shows a number; what the user types is either `entered` or `refused`, never half of both.

    With `zero_text` an empty field stands for 0, and says so in these words.
    """

    entered = Signal(float)
    refused = Signal(str)  # the rule that the text breaks
    restored = Signal()  # the user took back what was typed

    def __init__(
        self,
        bounds: Bounds,
        name: str,
        decimals: int = 0,
        unit: str = "",
        width: int = tokens.WIDTH_NUMBER,
        zero_text: str = "",
    ) -> None:
        super().__init__()
        self._bounds = bounds
        self._decimals = decimals
        self._unit = unit
        self._zero_text = zero_text
        self.setPlaceholderText(zero_text)
        self._steps = Scale(bounds.low, bounds.high, integral=bounds.integral)
        self._number = bounds.low
        self._is_refused = False
        self.setAccessibleName(f"{name}, {unit}" if unit else name)
        self.setProperty("number", True)
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.setFixedWidth(width)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setFont(font(tokens.FONT_TEXT, tokens.WEIGHT_MEDIUM))
        self._leave_room_for_unit()
        self.editingFinished.connect(self._on_editing_finished)
        self.textEdited.connect(self._on_text_edited)
        self._show_number()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:  # the type may have become larger
            self.setFont(font(tokens.FONT_TEXT, tokens.WEIGHT_MEDIUM))

    @property
    def number(self) -> float:
        """The number in force, whatever is being typed."""
        return self._number

    @property
    def is_refused(self) -> bool:
        return self._is_refused

    def formatted(self, number: float) -> str:
        """`number` as the field shows it: its number of decimals, more only where they are needed."""
        if self._zero_text and not number:
            return self._zero_text
        fixed = f"{number:.{self._decimals}f}"
        return fixed if abs(float(fixed) - number) < 1e-9 else f"{number:g}"

    def in_words(self, number: float) -> str:
        """`number` as it is read out: with the field's unit."""
        written = self.formatted(number)
        return written if written == self._zero_text else f"{written} {self._unit}".rstrip()

    def set_number(self, number: float, keep_typing: bool = True) -> None:
        """Show `number`, silently; what the user types or was refused is left alone unless `keep_typing` is false."""
        self._number = number
        if keep_typing and (self._is_refused or (self.hasFocus() and self.isModified())):
            return
        self.set_refused(False)
        self._show_number()

    def set_refused(self, refused: bool) -> None:
        if refused != self._is_refused:
            self._is_refused = refused
            self.setProperty("refused", refused)
            repolish(self)

    def rule(self, text: str) -> str | None:
        """The rule that `text` breaks, or ``None``."""
        try:
            number = self._parsed(text)
        except ValueError:
            return COMMA_RULE if "," in text else self._bounds.rule
        if self._bounds.integral and number != int(number):
            return self._bounds.rule
        return None if number in self._bounds else f"Must be {self._bounds.range}."

    def commit(self) -> None:
        """As if Enter had been pressed."""
        self._on_editing_finished()

    def sizeHint(self) -> QSize:
        return QSize(self.width(), super().sizeHint().height())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Up: 1, Qt.Key.Key_Down: -1}.get(Qt.Key(event.key()))
        if steps is not None and not self.isReadOnly():
            self._enter(self._steps.stepped(self._number, steps))
        elif event.key() == Qt.Key.Key_Escape and (self._is_refused or self.isModified()):
            self.set_number(self._number, keep_typing=False)
            self.selectAll()
            self.restored.emit()
        else:
            super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        """Undo takes back what is being typed, and otherwise, as everywhere, the last change of a setting."""
        is_override = event.type() == QEvent.Type.ShortcutOverride and not self.isModified()
        if is_override and isinstance(event, QKeyEvent) and any(event.matches(key) for key in UNDO_KEYS):
            event.ignore()
            return False
        return super().event(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if not self._is_refused:
            self._show_number()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self._unit and (self.text() or not self._zero_text):
            place = QRect(0, 0, self.width() - tokens.GAP_2, self.height())
            draw_text(QPainter(self), place, self._unit, font(), current().t3, Qt.AlignmentFlag.AlignRight)

    def _leave_room_for_unit(self) -> None:
        if self._unit:
            self.ensurePolished()
            width = self.fontMetrics().horizontalAdvance(self._unit)
            self.setTextMargins(0, 0, width + tokens.GAP_UNIT, 0)

    def _show_number(self) -> None:
        written = self.formatted(self._number)
        self.setText("" if written == self._zero_text else written)
        self.setModified(False)

    def _on_text_edited(self, text: str) -> None:
        if self._is_refused and self.rule(text) is None:
            self.set_refused(False)

    def _on_editing_finished(self) -> None:
        if not self.isModified():
            return
        rule = self.rule(self.text())
        if rule is None:
            self._enter(self._parsed(self.text()))
        else:
            self.set_refused(True)
            self.refused.emit(rule)

    def _parsed(self, text: str) -> float:
        return 0.0 if self._zero_text and not text.strip() else parse_number(text.strip())

    def _enter(self, number: float) -> None:
        self.set_refused(False)
        self._number = number
        self._show_number()
        self.entered.emit(number)
