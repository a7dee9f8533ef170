"""Setups of a measurement: settings A against B, or a sweep over many; and the button that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from gui.comparing.table import TextTable
from gui.look import tokens
from gui.widgets.buttons import Button
from gui.widgets.glyphs import Progress as Bar
from gui.widgets.labels import label, repolish
from gui.widgets.layouts import box, column, row
from gui.widgets.number_field import COMMA_IN_LIST_RULE, NumberField
from gui.widgets.segmented import Segmented
from service.analysis.compare.progress import Duration, Progress
from service.analysis.compare.run_plan import ComparePlan, Side, SweepPlan, batching_plan, can_match
from service.analysis.observed.descriptions import load_text
from service.messages.load import RunLoad
from service.messages.objectives import Objectives
from service.messages.settings import BOUNDS, Bounds, SettingError, Settings, setting_text, setting_value
from service.messages.text import UNKNOWN, format_time, may_have_decimal_comma


class RunControls(QWidget):
    """A button that runs or cancels, how long a run takes, a bar of progress, and a note."""

    run_wanted = Signal()  # a click on the button while nothing runs
    stop_wanted = Signal()  # and while something does
    backlog_unwanted = Signal()  # the requests of this window that are waited for

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._is_running = False
        self.button = Button(title, "ph.play-fill", large=True)
        self._bar = Bar()
        self.duration = label("", "caption", wrap=True)
        self.note = label("", "caption", wrap=True)
        self.cancel_backlog = Button("Cancel these requests", "ph.x")
        self.cancel_backlog.setToolTip("Cancels the requests of this window; those of other clients go on")
        parts = (self.duration, self.button, self._bar, self.note, self.cancel_backlog)
        self.setLayout(column(*parts, gap=tokens.GAP_2))
        self.button.clicked.connect(self._on_clicked)
        self.cancel_backlog.clicked.connect(self.backlog_unwanted)
        for part in (self._bar, self.cancel_backlog):
            part.hide()

    def show_duration(self, expected: Duration | None) -> None:
        """Show beforehand how long a run takes."""
        text = "" if expected is None else expected.text
        self.duration.setText(text[:1].upper() + text[1:])

    def set_can_run(self, can_run: bool, why: str = "") -> None:
        """Enable the button; `why` says what it waits for."""
        self.button.setEnabled(can_run or self._is_running)
        self.button.setToolTip(why)

    def show_running(self, is_running: bool) -> None:
        self._is_running = is_running
        self.button.setText("Cancel" if is_running else self._title)
        self.button.set_icon("ph.stop-fill" if is_running else "ph.play-fill")
        self._bar.setVisible(is_running)
        self.duration.setVisible(not is_running)
        self.cancel_backlog.hide()
        self._bar.show_fraction(0.0)
        self.set_note("")

    def show_progress(self, progress: Progress, is_backlog_ours: bool) -> None:
        """Show the share of finished runs, the present run, and the time left; and what can be done about a backlog."""
        self._bar.show_fraction(progress.done / progress.total if progress.total else 0.0)
        self.cancel_backlog.setVisible(bool(progress.backlog) and is_backlog_ours)
        left = f", {format_time(progress.left_s)} left" if progress.left_s and not progress.backlog else ""
        self.set_note(f"{progress.doing}{left}")

    def set_note(self, text: str) -> None:
        self.note.setText(text[:1].upper() + text[1:])

    def _on_clicked(self) -> None:
        (self.stop_wanted if self._is_running else self.run_wanted).emit()


OWN: Final = "own"
MATCHED: Final = "matched"
ROUNDS: Final = Bounds(2, 100, integral=True)
DURATION: Final = Bounds(1, 600, integral=False)
NOTHING_PINNED: Final = "Pin the present settings and load as A, then change them: those in force at the run are B."
SAME: Final = "A and B are the same: no difference is expected."


def field(name: str, number: NumberField) -> QHBoxLayout:
    return row(label(name, "name"), None, number)


class CompareSetup(QWidget):
    """The settings and loads of A and B, and how long they are measured."""

    changed = Signal()  # the user entered other rounds or seconds

    def __init__(self) -> None:
        super().__init__()
        self.sides = TextTable(("", "A", "B"), "Settings of A and B")
        self.note = label(NOTHING_PINNED, "caption", wrap=True)
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
        for number in (self.rounds, self.duration):
            number.entered.connect(lambda _: self.changed.emit())
        fields = (field("rounds", self.rounds), field("seconds a run", self.duration))
        numbers = column(self.load, self._rate_field, *fields, gap=tokens.GAP_2)
        buttons = column(self.pin, self.batching, gap=tokens.GAP_2)
        self.setLayout(column(buttons, self.sides, self.note, numbers, self.controls, None, gap=tokens.GAP_4))
        self.show_sides(None, None)

    @property
    def matches_throughput(self) -> bool:
        """Whether B, an open loop, is measured at the rate that A, a closed loop, reaches."""
        return not self._rate_field.isHidden() and self.rate.key == MATCHED

    def show_sides(self, a: Side | None, b: Side | None) -> None:
        """Show settings and loads of both; settings that differ are bold."""
        names = Settings.__struct_fields__
        texts = [[setting_text(getattr(side.settings, name)) if side else UNKNOWN for side in (a, b)] for name in names]
        rows = [[name, *values] for name, values in zip(names, texts, strict=True)]
        differ = {number for number, values in enumerate(texts) if a and b and values[0] != values[1]}
        self.sides.show_rows(rows, strong=differ)
        self.note.setText(NOTHING_PINNED if a is None else SAME if a == b else "")
        self.note.setVisible(bool(self.note.text()))
        self.load.setText(_loads(a, b))
        self._rate_field.setVisible(a is not None and b is not None and can_match(a.load, b.load))

    def plan(self, a: Side, b: Side, objectives: Objectives, seed: int) -> ComparePlan:
        return ComparePlan(
            a=a,
            b=b,
            duration_s=self.duration.number,
            rounds=int(self.rounds.number),
            seed=seed,
            objectives=objectives,
            matches_throughput=self.matches_throughput,
        )

    def batching_plan(self, present: Side, seed: int) -> ComparePlan:
        """The plan that measures the gain from batching; raises `PlanError`."""
        return batching_plan(present, duration_s=self.duration.number, rounds=int(self.rounds.number), seed=seed)


def _loads(a: Side | None, b: Side | None) -> str:
    if b is None:
        return ""
    if a is None or a.load == b.load:
        return f"Load: {load_text(b.load)}"
    return f"Load of A: {load_text(a.load)}\nLoad of B: {load_text(b.load)}"


SWEEP_ROUNDS: Final = Bounds(1, 100, integral=True)
USUAL: Final = {"max_batch_size": "1, 4, 16, 32", "batch_wait_timeout_s": "0, 0.05"}
AS_IT_IS: Final = "as it is"


class SweepSetup(QWidget):
    """The values of each setting; the best must keep the objectives that are set under Load."""

    changed = Signal()  # the user entered other values, rounds or seconds

    def __init__(self) -> None:
        super().__init__()
        self.values = {name: _values_field(name) for name in Settings.__struct_fields__}
        self.rounds = NumberField(SWEEP_ROUNDS, "rounds")
        self.duration = NumberField(DURATION, "seconds a run", unit="s")
        self.load = label("", "caption", wrap=True)
        self.points = label("", "caption", wrap=True)
        self.controls = RunControls("Run the sweep")
        self.resume = Button("Go on", "ph.play-fill")
        for number, usual in ((self.rounds, 1), (self.duration, 10)):
            number.set_number(usual)
        self._lay_out()
        for edit in self.values.values():
            edit.textChanged.connect(self.changed)
        for number in (self.rounds, self.duration):
            number.entered.connect(lambda _: self.changed.emit())
        self.resume.hide()

    def axes(self) -> dict[str, Sequence[object]]:
        """The values that were entered, for each setting that has any."""
        entered = {name: edit.text() for name, edit in self.values.items()}
        for name, text in entered.items():
            if may_have_decimal_comma(text) and name in BOUNDS and not BOUNDS[name].integral:
                raise SettingError(name, COMMA_IN_LIST_RULE)
        return {
            name: [setting_value(name, value) for value in text.split(",") if value.strip()]
            for name, text in entered.items()
            if text.strip(" ,")
        }

    def show_load(self, load: RunLoad, objectives: Objectives) -> None:
        """Show what every setting gets, and what the best must keep."""
        bound = (
            f"Best: {objectives.share_words}" if objectives else "Best: the most requests/s; set objectives under Load"
        )
        self.load.setText(f"Load: {load_text(load)}\n{bound}")

    def plan(self, points: tuple[Settings, ...], load: RunLoad, objectives: Objectives, seed: int) -> SweepPlan:
        return SweepPlan(
            points=points,
            load=load,
            duration_s=self.duration.number,
            rounds=int(self.rounds.number),
            seed=seed,
            objectives=objectives,
        )

    def show_refusal(self, name: str, rule: str) -> None:
        """Say under the values which rule one of them breaks; an empty rule takes it back."""
        for each, edit in self.values.items():
            edit.setProperty("refused", bool(rule) and each == name)
            repolish(edit)
        self.points.setText(f"{name}: {rule}" if name else rule)
        self.points.setVisible(bool(rule))

    def _lay_out(self) -> None:
        values = [column(label(name, "name"), edit, gap=tokens.GAP_1) for name, edit in self.values.items()]
        limits = (("rounds", self.rounds), ("seconds a run", self.duration))
        fields = [field(name, number) for name, number in limits]
        numbers = column(*fields, self.load, self.points, gap=tokens.GAP_2)
        grid = column(*values, gap=tokens.GAP_3)
        self.setLayout(column(grid, numbers, self.controls, self.resume, None, gap=tokens.GAP_4))


def _values_field(name: str) -> QLineEdit:
    edit = QLineEdit(USUAL.get(name, ""))
    edit.setPlaceholderText(AS_IT_IS)
    edit.setAccessibleName(f"Values of {name}")
    edit.setToolTip("Values, separated by commas; an empty line keeps the present value")
    return edit
