"""Hold in the view Goal: its switch, the time that is held, and its moves."""

from __future__ import annotations

import time
from typing import Final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from gui.look import tokens
from gui.plots.latency import LatencyPanel
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import box, column, hairline, row, scrolled
from gui.widgets.segmented import Segmented
from service.analysis.goal.hold import MOVED_BY
from service.analysis.observed.descriptions import describe_change
from service.analysis.observed.history import History
from service.messages.settings import SettingsChange
from service.messages.text import counted, format_time

ON, OFF = "on", "off"
HANDS_OFF: Final = "Moves settings while the load changes; lets go when you change one"
NO_MOVES: Final = "A move appears here with its reason, and can be undone."
MOST_MOVES: Final = 20
PADDING: Final = tokens.PANEL_PADDING


class MoveRow(QWidget):
    """A move of Hold: its version, what it changed and why, how long ago, and its undo."""

    undo_wanted = Signal(object)  # the `SettingsChange`

    def __init__(self, change: SettingsChange) -> None:
        super().__init__()
        self.change = change
        what, why = describe_change(change.previous, change.settings), change.reason.removeprefix(MOVED_BY)
        self._came_s = time.monotonic()
        self._ago = label("", "caption")
        self.undo = Button(icon="ph.arrow-u-up-left", role="icon", tip="Put back what was before; Hold lets go")
        self.undo.setAccessibleName(f"Undo v{change.version}")
        reason = label(why, "caption", wrap=True)
        words = column(label(what, "text", wrap=True), reason, self._ago, gap=tokens.GAP_HALF)
        chip = column(label(f"v{change.version}", "chip"), None)
        self.setLayout(row(chip, words, column(self.undo, None), gap=tokens.GAP_2, stretch=words))
        self.undo.clicked.connect(lambda: self.undo_wanted.emit(self.change))

    def show_age(self) -> None:
        self._ago.setText(f"{format_time(time.monotonic() - self._came_s)} ago")


class HoldSection(QWidget):
    """The switch, the time that is held over the plots' window, and the moves."""

    wanted = Signal(bool)
    undo_wanted = Signal(object)  # the `SettingsChange` to be undone

    def __init__(self, history: History) -> None:
        super().__init__()
        self.switch = Segmented([(OFF, OFF), (ON, ON)], "Hold")
        self.switch.setFixedWidth(tokens.WIDTH_NUMBER)
        self.note = label(HANDS_OFF, "caption", wrap=True)
        self.latency = LatencyPanel(history)
        self.moves: list[MoveRow] = []
        self._count = label("", "caption")
        self._none = label(NO_MOVES, "caption", wrap=True)
        self._rows = column(self._none, gap=tokens.GAP_3)
        head = box(row(label("Hold", "title"), self.switch, self.note, gap=tokens.GAP_3, stretch=self.note))
        left = box(column(column(head, margins=(PADDING, tokens.GAP_2, PADDING, 0)), self.latency, gap=0))
        margins = (PADDING, tokens.GAP_2, tokens.GAP_3, tokens.GAP_2)
        rows = box(column(self._rows, None, gap=0))
        right = box(column(row(label("Moves", "title"), None, self._count), scrolled(rows), margins=margins))
        self.column = right
        self.setLayout(row(left, hairline(vertical=True), right, gap=0, stretch=left))
        self.setMaximumHeight(tokens.HEIGHT_HOLD)
        self.switch.chosen.connect(lambda key: self.wanted.emit(key == ON))

    def show_on(self, is_on: bool, note: str = HANDS_OFF) -> None:
        self.switch.choose(ON if is_on else OFF)
        self.note.setText(note)

    def set_can_hold(self, why_not: str) -> None:
        self.switch.setEnabled(not why_not or self.switch.key == ON)
        self.switch.setToolTip(why_not)

    def add_move(self, change: SettingsChange) -> None:
        """The newest stands first."""
        made = MoveRow(change)
        made.undo_wanted.connect(self.undo_wanted)
        self.moves.insert(0, made)
        self._rows.insertWidget(0, made)
        for old in self.moves[MOST_MOVES:]:
            self._rows.removeWidget(old)
            old.deleteLater()
        del self.moves[MOST_MOVES:]
        self._none.hide()

    def show_ages(self) -> None:
        for each in self.moves:
            each.show_age()
        self._count.setText(counted(len(self.moves), "move") if self.moves else "")

    def set_can_undo(self, can_undo: bool) -> None:
        for each in self.moves:
            each.undo.setEnabled(can_undo)
