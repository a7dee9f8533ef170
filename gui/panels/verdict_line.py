"""The line above the plots: the state of the service in a sentence, and a button that does or undoes one thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font
from gui.widgets.buttons import Button
from gui.widgets.icons import Icon
from gui.widgets.layouts import box, column, hairline, row
from service.analysis.findings.verdict import ALARMING, State, Verdict

FIRST: Final = Verdict("unloaded", "No load yet", second=": start the service first")
RUN_LOAD: Final = "Run load"
STOP_HOLD: Final = "Stop Hold"
TRY_NOW: Final = "Try now"
WITHOUT_LOAD: Final = frozenset({"idle", "unloaded"})
CALM_ICONS: Final[Mapping[State, str]] = {
    "well": "ph.check-circle",
    "working off": "ph.info",
    "unjudged": "ph.info",
    "idle": "ph.info",
    "unloaded": "ph.info",
}
WARNING: Final = "ph.warning"
LOST: Final = "ph.link-break"


class VerdictLine(QWidget):
    """Never blank; where room lacks the second clause goes first, never the number or the button."""

    change_wanted = Signal(dict)  # the settings that mend or undo what the sentence says
    load_wanted = Signal()
    hold_unwanted = Signal()
    try_wanted = Signal()  # whether the service can be reached again

    def __init__(self) -> None:
        super().__init__()
        self._verdict = FIRST
        self._icon, self._sentence, self.button = Icon(), _Sentence(), Button()
        margins = (tokens.PANEL_PADDING, 0, tokens.PANEL_PADDING, 0)
        line = row(self._icon, self._sentence, self.button, margins=margins, stretch=self._sentence)
        height = tokens.HEIGHT_VERDICT - tokens.HAIRLINE
        self.setLayout(column(box(line, height=height), hairline(), gap=0))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.button.clicked.connect(self._on_clicked)
        self.show_verdict(FIRST)

    @property
    def text(self) -> str:
        """The whole sentence, whatever of it there is room for."""
        return self._verdict.text

    @property
    def shown_text(self) -> str:
        """What of it there is room for."""
        return self._sentence.shown_text

    def show_verdict(self, verdict: Verdict, can_change: bool = False, can_load: bool = False) -> None:
        """Show the sentence, with its button where that can be pressed."""
        self._verdict = verdict
        ink = "error" if verdict.state in ALARMING else "t2"
        self._icon.show_icon(LOST if verdict.is_lost else CALM_ICONS.get(verdict.state, WARNING), ink)
        self._sentence.show_verdict(verdict)
        action = verdict.action if can_change else ""
        if verdict.is_held:
            action = STOP_HOLD
        elif verdict.is_lost:
            action = TRY_NOW
        elif not action and can_load and verdict.state in WITHOUT_LOAD:
            action = RUN_LOAD
        self.button.setText(action)
        self.button.setVisible(bool(action))

    def _on_clicked(self) -> None:
        mend = self._verdict.mend
        if self._verdict.is_held:
            self.hold_unwanted.emit()
        elif self._verdict.is_lost:
            self.try_wanted.emit()
        elif mend is not None and mend.change is not None:
            self.change_wanted.emit(dict(mend.change))
        else:
            self.load_wanted.emit()


class _Sentence(QWidget):
    """One painted line, its number in a heavier face."""

    def __init__(self) -> None:
        super().__init__()
        self._verdict = FIRST
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    @property
    def shown_text(self) -> str:
        return "".join(text for text, _ in self._parts())

    def show_verdict(self, verdict: Verdict) -> None:
        if verdict != self._verdict or not self.accessibleName():
            self._verdict = verdict
            self.setAccessibleName(verdict.text)
            self._offer_whole_text()
            self.update()

    def minimumSizeHint(self) -> QSize:
        return QSize(0, tokens.HEIGHT_CONTROL)

    def sizeHint(self) -> QSize:
        return self.minimumSizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._offer_whole_text()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, left = QPainter(self), 0
        painter.setPen(colour(current().t1))
        for text, weight in self._parts():
            painter.setFont(font(tokens.FONT_TITLE, weight))
            place = self.rect().adjusted(left, 0, 0, 0)
            painter.drawText(place, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), text)
            left += _width(text, weight)

    def _parts(self) -> tuple[tuple[str, int], ...]:
        """The texts with their weights: all, or without the second clause, or the first one shortened."""
        verdict, (light, heavy) = self._verdict, (tokens.WEIGHT_REGULAR, tokens.WEIGHT_BOLD)
        for second in (f"{verdict.second}.", "."):
            parts = ((verdict.lead, light), (verdict.number, heavy), (f"{verdict.rest}{second}", light))
            if sum(_width(*part) for part in parts) <= self.width():
                return parts
        metrics = QFontMetrics(font(tokens.FONT_TITLE, light))
        room = max(self.width() - _width(verdict.number, heavy), 0)
        lead = metrics.elidedText(verdict.lead, Qt.TextElideMode.ElideMiddle, room)
        rest = metrics.elidedText(f"{verdict.rest}.", Qt.TextElideMode.ElideRight, max(room - _width(lead, light), 0))
        return (lead, light), (verdict.number, heavy), (rest, light)

    def _offer_whole_text(self) -> None:
        self.setToolTip("" if self.shown_text == self._verdict.text else self._verdict.text)


def _width(text: str, weight: int) -> int:
    return QFontMetrics(font(tokens.FONT_TITLE, weight)).horizontalAdvance(text)
