"""Which settings a sweep measures: values for each, and what the best must keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLineEdit, QWidget

from gui.comparing.run import RunControls
from gui.comparing.setup import DURATION, field
from gui.look import tokens
from gui.widgets.buttons import Button
from gui.widgets.labels import label, repolish
from gui.widgets.layouts import column
from gui.widgets.number_field import NumberField
from service.analysis.compare.progress import SETTLE_S
from service.analysis.compare.run_plan import Objective, SweepPlan
from service.messages.load import RunLoad
from service.messages.settings import Bounds, Settings, setting_value
from service.messages.text import format_time

ROUNDS: Final = Bounds(1, 100, integral=True)
LIMIT: Final = Bounds(0.01, 600, integral=False)
USUAL: Final = {"max_batch_size": "1, 4, 16, 32", "batch_wait_timeout_s": "0, 0.05"}
AS_IT_IS: Final = "as it is"


class SweepSetup(QWidget):
    """
    Signals:
        changed: other values, rounds or seconds were entered.
        resume_wanted: the sweep that was interrupted is to go on.
    """

    changed = Signal()
    resume_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.values = {name: _values_field(name) for name in Settings.__struct_fields__}
        self.rounds = NumberField(ROUNDS, "rounds")
        self.duration = NumberField(DURATION, "seconds a run", unit="s")
        self.limit = NumberField(LIMIT, "p95 at most", decimals=1, unit="s")
        self.load = label("", "caption", wrap=True)
        self.points = label("", "caption", wrap=True)
        self.controls = RunControls("Run the sweep")
        self.resume = Button("Go on", "ph.play-fill")
        for number, usual in ((self.rounds, 1), (self.duration, 10), (self.limit, 1.0)):
            number.set_number(usual)
        self._lay_out()
        self._connect()
        self.resume.hide()

    def axes(self) -> dict[str, Sequence[object]]:
        """The values that were entered, for each setting that has any."""
        entered = {name: edit.text() for name, edit in self.values.items()}
        return {
            name: [setting_value(name, value) for value in text.split(",") if value.strip()]
            for name, text in entered.items()
            if text.strip(" ,")
        }

    def plan(self, points: tuple[Settings, ...], load: RunLoad, seed: int) -> SweepPlan:
        """What is to be measured, as entered."""
        return SweepPlan(
            points=points,
            load=load,
            duration_s=self.duration.number,
            rounds=int(self.rounds.number),
            seed=seed,
            objective=Objective("p95_s", self.limit.number),
        )

    def show_points(self, count: int) -> None:
        """How many settings that makes, and how long they take."""
        seconds = count * self.rounds.number * (self.duration.number + SETTLE_S)
        self.points.setText(f"{count} settings, at least {format_time(seconds)}")

    def show_refusal(self, name: str, rule: str) -> None:
        """Say under the values which rule one of them breaks; an empty rule takes it back."""
        for each, edit in self.values.items():
            edit.setProperty("refused", bool(rule) and each == name)
            repolish(edit)
        if rule:
            self.points.setText(f"{name}: {rule}")

    def set_can_resume(self, can_resume: bool) -> None:
        self.resume.setVisible(can_resume)

    def _lay_out(self) -> None:
        fields = [column(label(name, "name"), edit, gap=tokens.GAP_1) for name, edit in self.values.items()]
        numbers = column(
            field("rounds", self.rounds),
            field("seconds a run", self.duration),
            field("p95 at most", self.limit),
            self.load,
            self.points,
            gap=tokens.GAP_2,
        )
        grid = column(*fields, gap=tokens.GAP_3)
        self.setLayout(column(grid, numbers, self.controls, self.resume, None, gap=tokens.GAP_4))

    def _connect(self) -> None:
        for edit in self.values.values():
            edit.textChanged.connect(self.changed)
        for number in (self.rounds, self.duration):
            number.entered.connect(lambda _: self.changed.emit())
        self.resume.clicked.connect(self.resume_wanted)


def _values_field(name: str) -> QLineEdit:
    edit = QLineEdit(USUAL.get(name, ""))
    edit.setPlaceholderText(AS_IT_IS)
    edit.setAccessibleName(f"Values of {name}")
    edit.setToolTip("Values, with commas between them; empty leaves it as it is")
    return edit
