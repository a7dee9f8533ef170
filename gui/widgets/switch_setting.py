"""A setting that is on or off: its name, its two states, and why one was refused."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import tokens
from gui.widgets.labels import dress, label
from gui.widgets.layouts import column, row
from gui.widgets.segmented import Segmented
from gui.widgets.setting import ErrorLine

STATES: Final = {True: "on", False: "off"}


class SwitchSetting(QWidget):
    """As `Setting`, of which the numbers are 0 and 1."""

    wanted = Signal(float, bool)
    is_held = False

    def __init__(self, name: str, tip: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.name = name
        self.title = label(name, "name")
        self.field = Segmented([(state, state) for state in STATES.values()], name)
        self.field.setFixedWidth(tokens.WIDTH_NUMBER)
        self._error = ErrorLine()
        self.setLayout(column(row(self.title, None, self.field), self._error, gap=0))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self.setToolTip(tip)
        self.field.chosen.connect(self._on_chosen)

    @property
    def number(self) -> float:
        """What the control says."""
        return float(self.field.key == STATES[True])

    def set_number(self, number: float) -> None:
        if bool(number) != bool(self.number):
            self._error.hide()
        self.field.choose(STATES[bool(number)])

    def show_refusal(self, rule: str) -> None:
        """Say under the control why the other state was refused."""
        self._error.show_text(f"{rule} Still {self.field.key}.")

    @property
    def refusal(self) -> str | None:
        """The line under the control, if there is one."""
        return None if self._error.isHidden() else self._error.text

    def set_plain(self) -> None:
        """A row among others: its name in the tone of text."""
        dress(self.title, "text")

    def focus(self) -> None:
        self.field.button(self.field.key).setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _on_chosen(self, state: str) -> None:
        self._error.hide()
        self.wanted.emit(float(state == STATES[True]), True)
