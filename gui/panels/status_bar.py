"""The status bar: the present activity on the left, facts on the right."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from PySide6.QtCore import QEvent, QRect, Qt
from PySide6.QtGui import QFontMetrics, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font
from gui.panels import shortcuts
from gui.widgets.buttons import Button
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import column, hairline, row

SAID_S: Final = 4.0


class StatusBar(QWidget):
    """Facts without room are left out from the left; the most important stand right."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("status")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedHeight(tokens.HEIGHT_STATUS_BAR + tokens.HAIRLINE)
        self.log_button = Button(icon="ph.terminal-window", role="icon", name="Service log", tip=shortcuts.LOG.tip())
        self.log_button.setFixedHeight(tokens.HEIGHT_STATUS_BAR - 4)
        self.recording_button = Button("", "ph.record-fill", "quiet", tip=shortcuts.RECORD.tip("Stop recording"))
        self.recording_button.setFixedHeight(tokens.HEIGHT_STATUS_BAR - 4)
        self.recording_button.hide()
        self._held_until_s = 0.0
        self.activity = ElidedLabel("Service log", "status")
        self._facts = _Facts()
        parts = (self.log_button, self.recording_button, tokens.GAP_1, self.activity, self._facts)
        bar = row(*parts, gap=tokens.GAP_1, margins=(tokens.GAP_2, 0, tokens.GAP_3, 0))
        bar.setStretchFactor(self.activity, 2)
        bar.setStretchFactor(self._facts, 3)
        self.setLayout(column(hairline(), bar, gap=0))

    @property
    def facts(self) -> tuple[str, ...]:
        return self._facts.facts

    def set_activity(self, text: str) -> None:
        self._held_until_s = 0.0
        self.activity.setText(text)

    def say(self, sentence: str, for_s: float = SAID_S) -> None:
        """Show a sentence for `for_s` seconds; `update_activity` does not replace it meanwhile."""
        self._held_until_s = time.monotonic() + for_s
        self.activity.setText(sentence)

    def update_activity(self, text: str) -> None:
        """Show the present activity; called several times a second."""
        if time.monotonic() >= self._held_until_s:
            self.activity.setText(text)

    @property
    def recording(self) -> str:
        return self.recording_button.text() if not self.recording_button.isHidden() else ""

    def set_recording(self, text: str | None) -> None:
        """Show the state of a recording, such as "Recording 0:42"; a click stops it."""
        self.recording_button.setVisible(text is not None)
        if text is not None and text != self.recording_button.text():
            self.recording_button.setText(text)
            self.recording_button.updateGeometry()

    def set_facts(self, facts: Sequence[str], tips: Mapping[str, str] | None = None) -> None:
        """Show these facts; `tips` explains, on hover, those that begin with its keys."""
        self._facts.show_facts(tuple(facts), tips or {})

    def tip_at(self, x: int) -> str:
        """The explanation of the fact at this place, from the left edge of the status bar; "" where there is none."""
        return self._facts.tip_at(x - self._facts.x())


class _Facts(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.facts: tuple[str, ...] = ()
        self._tips: Mapping[str, str] = {}
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def show_facts(self, facts: tuple[str, ...], tips: Mapping[str, str]) -> None:
        self._tips = tips
        if facts != self.facts:
            self.facts = facts
            self.setAccessibleName(", ".join(facts))
            self.update()

    def tip_at(self, x: int) -> str:
        fact = next((fact for fact, place in self._placed() if place.left() <= x <= place.right()), "")
        return next((tip for begin, tip in self._tips.items() if fact.startswith(begin)), "")

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            QToolTip.showText(event.globalPos(), self.tip_at(event.pos().x()), self)
            return True
        return super().event(event)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(font(tokens.FONT_CAPTION))
        painter.setPen(colour(current().t2))
        for fact, place in self._placed():
            painter.drawText(place, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), fact)

    def _placed(self) -> Iterator[tuple[str, QRect]]:
        """The facts that there is room for, from the right."""
        metrics, right = QFontMetrics(font(tokens.FONT_CAPTION)), self.width()
        for fact in reversed(self.facts):
            width = metrics.horizontalAdvance(fact)
            if width > right:
                return
            yield fact, QRect(right - width, 0, width + 1, self.height())
            right -= width + tokens.GAP_4
