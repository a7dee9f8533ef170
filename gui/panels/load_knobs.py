"""The controls of a pattern of load: each holds one value, silent when set by program."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final, TypeAlias

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFileDialog, QLineEdit, QSizePolicy, QWidget

from gui.look import tokens
from gui.panels.load_kinds import NUMBERS, USUAL_RATES
from gui.widgets.buttons import Chooser
from gui.widgets.labels import label, repolish
from gui.widgets.layouts import column, row
from gui.widgets.segmented import Segmented
from gui.widgets.setting import ErrorLine, Setting
from service.messages.load import LOAD_BOUNDS
from service.messages.text import parse_number

MOST_RATES: Final = 1000
TRACES: Final = "Traces (*.jsonl *.json);;All files (*)"


class NumberKnob(Setting):
    """A number out of the table."""

    def __init__(self, field: str, parent: QWidget | None = None) -> None:
        number = NUMBERS[field]
        super().__init__(
            number.name, number.bounds, number.scale, number.decimals, number.unit, number.tip, parent=parent
        )
        self._is_whole = number.bounds.integral
        self.set_number(number.usual)
        if number.scale is None:
            self.set_plain()

    @property
    def value(self) -> object:
        return int(self.number) if self._is_whole else self.number

    def set_value(self, value: object) -> None:
        assert isinstance(value, int | float)
        self.set_number(float(value))


class RatesKnob(QWidget):
    """Rates, one after the other, as a line of text."""

    wanted = Signal(object, bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rates = USUAL_RATES
        self.field = QLineEdit()
        self.field.setAccessibleName("rates, req/s")
        self.field.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.field.setFixedHeight(tokens.HEIGHT_CONTROL)
        self._error = ErrorLine()
        self.setLayout(column(row(label("rates", "name"), self.field), self._error, gap=0))
        self.setToolTip("Requests a second, one rate after the other, such as 2, 4, 8")
        self.field.editingFinished.connect(self._on_editing_finished)
        self.set_value(USUAL_RATES)

    @property
    def value(self) -> object:
        return self._rates

    def set_value(self, value: object) -> None:
        assert isinstance(value, tuple)
        self._rates = value
        self.field.setText(", ".join(f"{rate:g}" for rate in value))
        self._show_refused(False)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and (self.refusal is not None or self.field.isModified()):
            self.set_value(self._rates)
        else:
            super().keyPressEvent(event)

    @property
    def refusal(self) -> str | None:
        """The line under the control, if there is one."""
        return None if self._error.isHidden() else self._error.text

    def _on_editing_finished(self) -> None:
        if not self.field.isModified():
            return
        rates = parse_rates(self.field.text())
        self._show_refused(rates is None)
        if rates is not None:
            self.set_value(rates)
            self.wanted.emit(rates, True)

    def _show_refused(self, refused: bool) -> None:
        self.field.setProperty("refused", refused)
        repolish(self.field)
        self._error.setVisible(refused)
        if refused:
            bounds = LOAD_BOUNDS["rate_per_s"]
            still = ", ".join(f"{rate:g}" for rate in self._rates)
            self._error.show_text(
                f"Must be numbers from {bounds.low:g} to {bounds.high:g}, such as 2, 4, 8. Still {still}."
            )


def parse_rates(text: str) -> tuple[float, ...] | None:
    """The rates that `text` lists, with commas or spaces between them; ``None`` if it lists none or a wrong one.

    >>> parse_rates("2, 4 8"), parse_rates("2, fast")
    ((2.0, 4.0, 8.0), None)
    """
    try:
        rates = tuple([parse_number(part) for part in text.replace(",", " ").split()])
    except ValueError:
        return None
    bounds = LOAD_BOUNDS["rate_per_s"]
    is_fine = 1 <= len(rates) <= MOST_RATES and all(bounds.low <= rate <= bounds.high for rate in rates)
    return rates if is_fine else None


class ThinkKnob(Segmented):
    """How users think."""

    wanted = Signal(object, bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__([("fixed", "always as long"), ("exponential", "exponential")], "thinking", parent=parent)
        self.chosen.connect(lambda key: self.wanted.emit(key, True))

    @property
    def value(self) -> object:
        return self.key

    def set_value(self, value: object) -> None:
        self.choose(str(value))


class PathKnob(Chooser):
    """A file with a trace."""

    wanted = Signal(object, bool)

    def __init__(self) -> None:
        super().__init__(name="Trace")
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.clicked.connect(self.choose)
        self.set_value("")

    def minimumSizeHint(self) -> QSize:
        return QSize(tokens.WIDTH_NUMBER, super().minimumSizeHint().height())  # a long name is elided

    @property
    def value(self) -> object:
        return self._path

    def set_value(self, value: object) -> None:
        self._path = str(value)
        self.show_choice(PurePath(self._path).name or "Choose a trace…")
        self.setToolTip(self._path or "JSON Lines: offset_s, prompt or prompt_words, max_tokens")

    def choose(self) -> None:
        """Let the user pick a file."""
        path, _filter = QFileDialog.getOpenFileName(self, "A trace", self._path, TRACES)
        if path:
            self.set_value(path)
            self.wanted.emit(path, True)


Knob: TypeAlias = NumberKnob | RatesKnob | ThinkKnob | PathKnob
