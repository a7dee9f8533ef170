"""One setting: its name, number and slider, what is measured, why a value was refused, and how often it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from gui.look import tokens
from gui.widgets.glyphs import Glyph
from gui.widgets.labels import label, set_role
from gui.widgets.layouts import column, row
from gui.widgets.number_field import NumberField
from gui.widgets.scale import Scale
from gui.widgets.segmented import Segmented
from gui.widgets.slider import Measured, Slider
from service.messages.settings import Bounds


class SettingRow(QWidget):
    """A name, a control for a number on the right, and below them why a value was refused."""

    wanted = Signal(float, bool)  # the value, and whether the user has let go of the control

    def __init__(self, name: str, title: QWidget | None, tip: str) -> None:
        super().__init__()
        self.name = name
        self.title = title or label(name, "name")
        self._error = ErrorLine()
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self.setToolTip(tip)

    @property
    def refusal(self) -> str | None:
        """The line under the control, if there is one."""
        return None if self._error.isHidden() else self._error.text

    def set_plain(self) -> None:
        """A row among others: its name in the tone of text."""
        set_role(self.title, "text")


class Setting(SettingRow):
    """A number one can drag, step and type; silent when set by program."""

    def __init__(
        self,
        name: str,
        bounds: Bounds,
        scale: Scale | None = None,
        decimals: int = 0,
        unit: str = "",
        tip: str = "",
        number_width: int = tokens.WIDTH_NUMBER,
        title: QWidget | None = None,
        zero_text: str = "",
    ) -> None:
        super().__init__(name, title, tip)
        self.field = NumberField(bounds, name, decimals, unit, number_width, zero_text)
        self.field.entered.connect(self._on_number_entered)
        self.field.refused.connect(self.show_refusal)
        self.field.restored.connect(self._error.hide)
        parts: list[QWidget | QHBoxLayout | int] = [row(self.title, None, self.field)]
        self.slider: Slider | None = None
        self.measured: Measured | None = None
        if scale is not None:
            self.slider, self.measured = Slider(scale, name, self.field.in_words), Measured(scale)
            self.slider.moved.connect(self._on_slider_moved)
            self.slider.let_go.connect(self._on_slider_let_go)
            parts += [tokens.GAP_SLIDER, self.slider, self.measured]
        self.setLayout(column(*parts, self._error, gap=0))

    @property
    def number(self) -> float:
        """What the control says."""
        return self.field.number

    @property
    def is_held(self) -> bool:
        """Whether the user has the handle in hand."""
        return self.slider is not None and self.slider.isSliderDown()

    def set_number(self, number: float, keep_typing: bool = True) -> None:
        self.field.set_number(number, keep_typing)
        if self.slider is not None:
            self.slider.set_number(number)
        if not self.field.is_refused:
            self._error.hide()

    def set_scale(self, scale: Scale) -> None:
        """Give the slider another range; the number stays."""
        if self.slider is not None and self.measured is not None:
            self.slider.set_scale(scale)
            self.measured.set_scale(scale)

    def show_refusal(self, rule: str) -> None:
        """Say under the control which rule was broken and what still holds."""
        self.field.set_refused(True)
        self._error.show_text(f"{rule} Still {self.field.formatted(self.field.number)}.")

    def show_measured(self, number: float | None, text: str = "") -> None:
        if self.measured is not None:
            self.measured.show_measured(number, text)

    def set_compact(self, compact: bool) -> None:
        self.field.setFixedWidth(tokens.WIDTH_NUMBER_COMPACT if compact else tokens.WIDTH_NUMBER)

    def focus(self) -> None:
        (self.slider or self.field).setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _on_number_entered(self, number: float) -> None:
        self.set_number(number, keep_typing=False)
        self.wanted.emit(number, True)

    def _on_slider_moved(self, number: float) -> None:
        self.field.set_number(number, keep_typing=False)
        self._error.hide()
        self.wanted.emit(number, False)

    def _on_slider_let_go(self, number: float) -> None:
        self.wanted.emit(number, True)


class ErrorLine(QWidget):
    """Red, one line: an exclamation mark and the rule."""

    def __init__(self) -> None:
        super().__init__()
        self._label = label("", "error", wrap=True)
        glyph = Glyph("alert", "error")
        glyph.setFixedSize(tokens.GLYPH + 1, tokens.ICON)
        line = row(glyph, self._label, gap=tokens.GAP_1, margins=(0, tokens.GAP_SLIDER, 0, 0))
        line.setAlignment(glyph, Qt.AlignmentFlag.AlignTop)
        self.setLayout(line)
        self._label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.hide()

    @property
    def text(self) -> str:
        return self._label.text()

    def show_text(self, text: str) -> None:
        self._label.setText(text)
        self._label.setAccessibleName(text)
        self._make_room()
        self.show()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._make_room()

    def _make_room(self) -> None:
        """For all lines: layouts within layouts count on two."""
        self._label.setMinimumHeight(max(0, self._label.heightForWidth(self._label.width())))


STATES: Final = {True: "on", False: "off"}


class SwitchSetting(SettingRow):
    """As `Setting`, of which the numbers are 0 and 1."""

    is_held = False

    def __init__(self, name: str, tip: str) -> None:
        super().__init__(name, None, tip)
        self.field = Segmented([(state, state) for state in STATES.values()], name)
        self.field.setFixedWidth(tokens.WIDTH_NUMBER)
        self.setLayout(column(row(self.title, None, self.field), self._error, gap=0))
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

    def focus(self) -> None:
        self.field.button(self.field.key).setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _on_chosen(self, state: str) -> None:
        self._error.hide()
        self.wanted.emit(float(state == STATES[True]), True)


class Throttle(QTimer):
    """Calls `send` at most once every `tokens.SETTINGS_INTERVAL_MS` while a control moves, and when it is let go."""

    def __init__(self, send: Callable[[], None], parent: QObject) -> None:
        super().__init__(parent, singleShot=True, interval=tokens.SETTINGS_INTERVAL_MS)
        self._send = send
        self.timeout.connect(send)

    def ask(self, is_final: bool) -> None:
        """Call `send` soon, or now if the control `is_final`."""
        if is_final:
            self.stop()
            self._send()
        elif not self.isActive():
            self.start()
