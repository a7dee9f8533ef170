"""What is compared: the settings pinned as A, and those in force as B."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from gui.comparing.run import RunControls
from gui.comparing.table import TextTable
from gui.look import tokens
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import box, column, row
from gui.widgets.number_field import NumberField
from gui.widgets.segmented import Segmented
from service.analysis.compare.run_plan import ComparePlan, Side, batching_plan, can_match
from service.analysis.observed.descriptions import load_text
from service.messages.settings import Bounds, Settings, setting_text
from service.messages.text import UNKNOWN

OWN: Final = "own"
MATCHED: Final = "matched"
ROUNDS: Final = Bounds(2, 100, integral=True)
DURATION: Final = Bounds(1, 600, integral=False)
NOTHING_PINNED: Final = "Pin settings and load as A, then change them: what stands there when you run is B."
SAME: Final = "A and B are the same: no difference should come out."


def field(name: str, number: NumberField) -> QHBoxLayout:
    """A number with its name before it."""
    return row(label(name, "name"), None, number)


class CompareSetup(QWidget):
    """
    Signals:
        pin_wanted: the settings in force are to become A.
        batching_wanted: what batching gives is to be measured, now.
    """

    pin_wanted = Signal()
    batching_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._sides = TextTable(("", "A", "B"), "Settings of A and B")
        self._note = label(NOTHING_PINNED, "caption", wrap=True)
        self.pin = Button("Pin the present as A", "ph.push-pin")
        self.batching = Button("Measure what batching gives", "ph.stack")
        self.batching.setToolTip(
            "Throughput with max_batch_size 1 and as it is now, both under more users than a batch has places"
        )
        self.rounds = NumberField(ROUNDS, "rounds")
        self.duration = NumberField(DURATION, "seconds a run", decimals=0, unit="s")
        self.load = label("", "caption", wrap=True)
        self.rate = Segmented([(OWN, "Its own"), (MATCHED, "A's throughput")], "Rate of B")
        self._rate_field = box(column(label("rate of B", "name"), self.rate, gap=tokens.GAP_1))
        self.controls = RunControls("Compare A and B")
        self.rounds.set_number(4)
        self.duration.set_number(10)
        numbers = column(
            self.load,
            self._rate_field,
            field("rounds", self.rounds),
            field("seconds a run", self.duration),
            gap=tokens.GAP_2,
        )
        buttons = column(self.pin, self.batching, gap=tokens.GAP_2)
        parts = column(buttons, self._sides, self._note, numbers, self.controls, None, gap=tokens.GAP_4)
        self.setLayout(parts)
        self.pin.clicked.connect(self.pin_wanted)
        self.batching.clicked.connect(self.batching_wanted)
        self.show_sides(None, None)

    @property
    def matches_throughput(self) -> bool:
        """Whether B, an open loop, is to get the rate that A, a closed one, reaches."""
        return not self._rate_field.isHidden() and self.rate.key == MATCHED

    def show_sides(self, a: Side | None, b: Side | None) -> None:
        """Settings and loads of both; settings that differ stand out."""
        names = Settings.__struct_fields__
        texts = [[setting_text(getattr(side.settings, name)) if side else UNKNOWN for side in (a, b)] for name in names]
        rows = [[name, *values] for name, values in zip(names, texts, strict=True)]
        differ = {number for number, values in enumerate(texts) if a and b and values[0] != values[1]}
        self._sides.show_rows(rows, strong=differ)
        self._note.setText(NOTHING_PINNED if a is None else SAME if a == b else "")
        self._note.setVisible(bool(self._note.text()))
        self.load.setText(_loads(a, b))
        self._rate_field.setVisible(a is not None and b is not None and can_match(a.load, b.load))

    def plan(self, a: Side, b: Side, seed: int) -> ComparePlan:
        """What is to be measured, as entered."""
        return ComparePlan(
            a=a,
            b=b,
            duration_s=self.duration.number,
            rounds=int(self.rounds.number),
            seed=seed,
            matches_throughput=self.matches_throughput,
        )

    def batching_plan(self, present: Side, seed: int) -> ComparePlan:
        """The same for what batching gives; raises `PlanError`."""
        return batching_plan(present, duration_s=self.duration.number, rounds=int(self.rounds.number), seed=seed)

    def sides(self) -> list[list[str]]:
        """What is to be read of the two."""
        return self._sides.texts()


def _loads(a: Side | None, b: Side | None) -> str:
    if b is None:
        return ""
    if a is None or a.load == b.load:
        return f"Load: {load_text(b.load)}"
    return f"Load of A: {load_text(a.load)}\nLoad of B: {load_text(b.load)}"
