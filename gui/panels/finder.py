"""Finds every command, setting and term of the window by its words; Return does what is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication, QDialog, QLineEdit, QListWidget, QListWidgetItem, QWidget

from gui.look import tokens
from gui.widgets.labels import label
from gui.widgets.layouts import column

MOVES = frozenset({Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown})


class Entry(NamedTuple):
    """Something to find.

    Attributes:
        about: a sentence that says what it is.
        does: what Return does; ``None`` where the sentence is all there is.
        series: how the titles of a series begin, which is found in its order.
    """

    title: str
    about: str
    does: Callable[[], object] | None = None
    series: str = ""

    def is_found(self, words: Sequence[str]) -> bool:
        """Whether all of these, in lower case, stand in it."""
        text = f"{self.title} {self.about}".casefold()
        return all(word in text for word in words)

    def is_named(self, words: Sequence[str]) -> bool:
        return all(word in self.title.casefold() for word in words)


class Finder(QDialog):
    def __init__(self, parent: QWidget, entries: Sequence[Entry]) -> None:
        super().__init__(parent)
        self.setWindowTitle("Find")
        self._entries = entries
        self._found: list[Entry] = []
        self.field = QLineEdit()
        self.field.setPlaceholderText("A command, a setting, a term")
        self.field.setAccessibleName("Words to find")
        self.field.setFixedHeight(tokens.HEIGHT_CONTROL_TOOLBAR)
        self.list = QListWidget()
        self.list.setAccessibleName("What was found")
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the field keeps it, and hands the arrows on
        self._about = label("", "text", wrap=True)
        self._about.setFixedHeight(tokens.HEIGHT_ABOUT)
        self._about.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        padding = (tokens.GAP_3,) * 4
        self.setLayout(column(self.field, self.list, self._about, gap=tokens.GAP_2, margins=padding, stretch=self.list))
        self.resize(*tokens.FINDER)
        self.field.textChanged.connect(self._find)
        self.field.returnPressed.connect(self._do)
        self.field.installEventFilter(self)
        self.list.currentRowChanged.connect(self._show_about)
        self.list.itemClicked.connect(lambda _item: self._do())
        self._find("")

    @property
    def found(self) -> list[str]:
        return [entry.title for entry in self._found]

    @property
    def about(self) -> str:
        """The sentence of what is chosen."""
        return self._about.text()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        is_move = isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress and event.key() in MOVES
        if watched is self.field and is_move:
            QApplication.sendEvent(self.list, event)
            return True
        return super().eventFilter(watched, event)

    def _find(self, text: str) -> None:
        words = text.casefold().split()
        found = [entry for entry in self._entries if entry.is_found(words)]
        if words:  # names before sentences, and short ones first, of which the words are more
            found.sort(key=lambda entry: (not entry.is_named(words), len(entry.series or entry.title)))
        self._found = found
        self.list.clear()
        for entry in self._found:
            self.list.addItem(QListWidgetItem(entry.title))
        self.list.setCurrentRow(0 if self._found else -1)
        if not self._found:
            self._about.setText(f"Nothing is called “{text.strip()}”, and no sentence says it.")

    def _show_about(self, row: int) -> None:
        if 0 <= row < len(self._found):
            self._about.setText(self._found[row].about)

    def _do(self) -> None:
        row = self.list.currentRow()
        if 0 <= row < len(self._found) and (does := self._found[row].does) is not None:
            self.accept()
            does()
