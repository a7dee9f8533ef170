"""Patterns of load: their names, their numbers, and a control for each field. A change by program emits nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final, NamedTuple, TypeAlias, get_args

import msgspec
from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QSizePolicy, QWidget

from gui.look import tokens
from gui.widgets.buttons import Chooser
from gui.widgets.dialogs import ask_for_file
from gui.widgets.labels import label, repolish
from gui.widgets.layouts import column, row
from gui.widgets.number_field import COMMA_IN_LIST_RULE
from gui.widgets.scale import Scale
from gui.widgets.segmented import Segmented
from gui.widgets.setting import ErrorLine, Setting
from service.messages.load import LOAD_BOUNDS, Pattern
from service.messages.settings import Bounds
from service.messages.text import may_have_decimal_comma, parse_number

KINDS: Final[Mapping[str, tuple[str, str]]] = {  # title and remark in the menu
    "poisson": ("Poisson", "open loop"),
    "constant": ("Constant", "open loop"),
    "gamma": ("Gamma", "open loop"),
    "on-off": ("On and off", "open loop"),
    "ramp": ("Ramp", "open loop"),
    "steps": ("Steps", "open loop"),
    "trace": ("Trace", "from a file"),
    "closed": ("Users", "closed loop"),
    "burst": ("Burst", "all at once"),
}
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    str(kind.__struct_config__.tag): kind.__struct_fields__ for kind in get_args(Pattern)
}


class Number(NamedTuple):
    """A number that one or several patterns have; the one with a `scale` has a slider."""

    name: str
    bounds: Bounds
    usual: float
    decimals: int = 0
    unit: str = ""
    scale: Scale | None = None
    tip: str = ""


NUMBERS: Final[Mapping[str, Number]] = {
    "users": Number(
        "users",
        LOAD_BOUNDS["users"],
        16,
        scale=Scale(1, 256, integral=True),
        tip="Users; each sends its next request when the last one is answered",
    ),
    "think_s": Number(
        "think", LOAD_BOUNDS["think_s"], 0, 1, "s", tip="How long a user waits after an answer, on average"
    ),
    "rate_per_s": Number(
        "rate",
        LOAD_BOUNDS["rate_per_s"],
        4,
        1,
        "req/s",
        Scale(0.1, 200, finest=0.1),
        "Requests that arrive a second, whether or not earlier ones are answered",
    ),
    "rate_to_per_s": Number(
        "to", LOAD_BOUNDS["rate_per_s"], 16, 1, "req/s", tip="The rate at the end of the ramp, which then stays"
    ),
    "over_s": Number("within", LOAD_BOUNDS["span_s"], 60, 0, "s", tip="How long the ramp takes"),
    "shape": Number(
        "shape",
        LOAD_BOUNDS["shape"],
        0.5,
        2,
        tip="1 is Poisson; less and requests come in clusters, more and they come at even intervals",
    ),
    "on_s": Number("on", LOAD_BOUNDS["span_s"], 5, 0, "s", tip="How long requests arrive"),
    "off_s": Number("off", LOAD_BOUNDS["span_s"], 5, 0, "s", tip="How long none arrive"),
    "step_s": Number("each for", LOAD_BOUNDS["span_s"], 10, 0, "s", tip="How long each rate holds; the last stays"),
    "time_scale": Number(
        "times ×", LOAD_BOUNDS["time_scale"], 1, 2, tip="What the times of the trace are multiplied by: 0.5 is fast"
    ),
    "count": Number(
        "count",
        LOAD_BOUNDS["count"],
        64,
        scale=Scale(1, 1024, integral=True),
        tip="Requests sent at once, then nothing",
    ),
}
USUAL_RATES: Final = (2.0, 4.0, 8.0)
LEAST_TRAVEL: Final = 10  # times its low end, to which a slider goes at least
READABLE: Final = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


def kind_of(pattern: Pattern) -> str:
    return str(pattern.__struct_config__.tag)


def pattern_of(kind: str, values: Mapping[str, object]) -> Pattern:
    """The pattern of this kind; each of its values is valid."""
    pattern: Pattern = msgspec.convert({"pattern": kind, **values}, type=Pattern)
    return pattern


MOST_RATES: Final = 1000
TRACES: Final = "Traces (*.jsonl *.json);;All files (*)"


class Suited(NamedTuple):
    """What suits the service that runs.

    Attributes:
        value: of a number that the user has not set.
        end: of its slider.
        words, words_if_set: on what they rest, for the hover; the latter where the number is another one.
    """

    value: float
    end: float
    words: str
    words_if_set: str


class NumberKnob(Setting):
    """A number with its slider, if it has one.

    Attributes:
        is_usual: neither the user nor a program has set it, so that it follows what suits the service.
    """

    def __init__(self, field: str) -> None:
        number = self._about = NUMBERS[field]
        self.is_usual = True
        super().__init__(number.name, number.bounds, number.scale, number.decimals, number.unit, number.tip)
        self._is_whole = number.bounds.integral
        self.set_number(number.usual)
        if number.scale is None:
            self.set_plain()
        self.wanted.connect(self._on_wanted)

    @property
    def value(self) -> object:
        return int(self.number) if self._is_whole else self.number

    @property
    def has_usual_number(self) -> bool:
        """Whether it is the number of a window that knows of no service."""
        return self.number == self._about.usual

    def set_value(self, value: object) -> None:
        assert isinstance(value, int | float)
        self.is_usual = False
        self.set_number(float(value))

    def suit(self, suited: Suited | None, moves: bool = True) -> None:
        """Take over the slider's end, and the value where it is the usual one and `moves`; ``None`` takes both back.

        Nothing happens while the user is at the control.
        """
        if self.is_held or self.field.isModified():
            return
        about, scale = self._about, self._about.scale
        if self.is_usual and moves:
            value = about.usual if suited is None else min(max(suited.value, about.bounds.low), about.bounds.high)
            if value != self.number:  # or a selection in the field would be lost
                self.set_number(value)
        if scale is not None:
            end = scale.high if suited is None else max(suited.end, LEAST_TRAVEL * scale.low)
            self.set_scale(replace(scale, high=min(max(end, readable_from(self.number)), about.bounds.high)))
        words = "" if suited is None else suited.words if self.is_usual and moves else suited.words_if_set
        self.setToolTip(".\n".join(filter(None, (about.tip, words))))

    def _on_wanted(self) -> None:
        self.is_usual = False


def readable_from(number: float) -> float:
    """The least number from `number` on that reads easily, as the end of a scale.

    >>> [readable_from(number) for number in (0.13, 1, 7.3, 15.2, 25, 420, 0)]
    [0.15, 1.0, 8.0, 20.0, 25.0, 500.0, 0.0]
    """
    if number <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(number))
    return next(float(f"{step * power:.2g}") for step in READABLE if step * power >= number * (1 - 1e-9))


class RatesKnob(QWidget):
    """A line of text with the rates of the steps."""

    wanted = Signal(object, bool)

    def __init__(self) -> None:
        super().__init__()
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
        """The error under the control, or ``None``."""
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
        if refused and may_have_decimal_comma(self.field.text()):
            self._error.show_text(COMMA_IN_LIST_RULE)
        elif refused:
            bounds = LOAD_BOUNDS["rate_per_s"]
            still = ", ".join(f"{rate:g}" for rate in self._rates)
            self._error.show_text(
                f"Must be numbers from {bounds.low:g} to {bounds.high:g}, such as 2, 4, 8. Still {still}."
            )


def parse_rates(text: str) -> tuple[float, ...] | None:
    """The rates that `text` lists, with commas or spaces between them; ``None`` if it lists none or a wrong one.

    >>> parse_rates("2, 4 8"), parse_rates("2, fast"), parse_rates("2,5")
    ((2.0, 4.0, 8.0), None, None)
    """
    if may_have_decimal_comma(text):
        return None
    try:
        rates = tuple([parse_number(part) for part in text.replace(",", " ").split()])
    except ValueError:
        return None
    bounds = LOAD_BOUNDS["rate_per_s"]
    is_fine = 1 <= len(rates) <= MOST_RATES and all(bounds.low <= rate <= bounds.high for rate in rates)
    return rates if is_fine else None


class ThinkKnob(Segmented):
    wanted = Signal(object, bool)

    def __init__(self) -> None:
        super().__init__([("fixed", "always as long"), ("exponential", "exponential")], "thinking")
        self.chosen.connect(lambda key: self.wanted.emit(key, True))

    @property
    def value(self) -> object:
        return self.key

    def set_value(self, value: object) -> None:
        self.choose(str(value))


class PathKnob(Chooser):
    wanted = Signal(object, bool)

    def __init__(self) -> None:
        super().__init__(name="Trace")
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.clicked.connect(lambda: self.choose())
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

    def choose(self, then: Callable[[], None] | None = None) -> None:
        """Let the user choose one; `then` is called only if one has been chosen."""

        def use(path: Path) -> None:
            self.set_value(path)
            self.wanted.emit(self._path, True)
            if then is not None:
                then()

        ask_for_file(self, "A trace", TRACES, use)


Knob: TypeAlias = NumberKnob | RatesKnob | ThinkKnob | PathKnob
