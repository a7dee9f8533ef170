"""What is compared: the settings pinned as A, and those in force as B."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from gui import tokens
from gui.panels.compare_run import RunControls
from gui.panels.compare_table import TextTable
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import column, row
from gui.widgets.number_field import NumberField
from service.compare.words import setting_text
from service.messages import Bounds, Settings

ROUNDS: Final = Bounds(2, 100, integral=True)
DURATION: Final = Bounds(1, 600, integral=False)
NOTHING_PINNED: Final = "Pin the present settings as A, then change them: what is in force when you run is B."
SAME: Final = "A and B are the same: no difference should come out."


def field(name: str, number: NumberField) -> QHBoxLayout:
    """A number with its name before it."""
    return row(label(name, "name"), None, number)


class CompareSetup(QWidget):
    """
    Signals:
        pin_wanted: the settings in force are to become A.
    """

    pin_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._sides = TextTable(("", "A", "B"), "Settings of A and B")
        self._note = label(NOTHING_PINNED, "caption", wrap=True)
        self.pin = Button("Pin present settings as A", "ph.push-pin")
        self.rounds = NumberField(ROUNDS, "rounds")
        self.duration = NumberField(DURATION, "seconds a run", decimals=0, unit="s")
        self.load = label("", "caption", wrap=True)
        self.controls = RunControls("Compare A and B")
        self.rounds.set_number(4)
        self.duration.set_number(10)
        self._lay_out()
        self.pin.clicked.connect(self.pin_wanted)
        self.show_sides(None, None)

    def show_sides(self, a: Settings | None, b: Settings | None) -> None:
        """The settings of both, those that differ first to be seen."""
        names = Settings.__struct_fields__
        texts = [[setting_text(side, name) if side else "–" for side in (a, b)] for name in names]
        rows = [[name, *values] for name, values in zip(names, texts, strict=True)]
        differ = {number for number, values in enumerate(texts) if a and b and values[0] != values[1]}
        self._sides.show_rows(rows, strong=differ)
        self._note.setText(NOTHING_PINNED if a is None else "" if differ else SAME)
        self._note.setVisible(bool(self._note.text()))

    def sides(self) -> list[list[str]]:
        """What is to be read of the two."""
        return self._sides.texts()

    def _lay_out(self) -> None:
        numbers = column(
            field("rounds", self.rounds), field("seconds a run", self.duration), self.load, gap=tokens.GAP_2
        )
        parts = column(self.pin, self._sides, self._note, numbers, self.controls, None, gap=tokens.GAP_4)
        self.setLayout(parts)
