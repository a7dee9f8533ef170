"""A choice of a few, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QPushButton, QSizePolicy

from gui.look import tokens
from gui.widgets.layouts import row


class Segmented(QFrame):
    """Exclusive choice; one stop of the Tab key, the arrow keys move within."""

    chosen = Signal(str)  # the key of the segment the user picked

    def __init__(
        self, segments: Sequence[tuple[str, str]], name: str, large: bool = False, small: bool = False
    ) -> None:
        super().__init__()
        self.setObjectName("segmented")
        self.setAccessibleName(name)
        if large:
            self.setProperty("tall", True)
        if small:
            self.setProperty("small", True)
        self._buttons = {key: self._segment(key, text, name) for key, text in segments}
        layout = row(*self._buttons.values(), gap=0, margins=(1, 1, 1, 1))
        self.setLayout(layout)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        usual = tokens.HEIGHT_SEGMENTED_SMALL if small else tokens.HEIGHT_SEGMENTED
        self.setFixedHeight(tokens.HEIGHT_CONTROL_TOOLBAR if large else usual)
        self.choose(segments[0][0])

    @property
    def key(self) -> str:
        """The segment that is chosen."""
        return self._key

    def choose(self, key: str) -> None:
        """Show `key` as chosen, silently."""
        self._key = key
        for each, button in self._buttons.items():
            button.setChecked(each == key)
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus if each == key else Qt.FocusPolicy.ClickFocus)

    def set_texts(self, texts: Mapping[str, str], short: Mapping[str, str]) -> None:
        """Name the segments; where all of `texts` together lack room, by `short`."""
        shown = [key for key, button in self._buttons.items() if not button.isHidden()]
        room = self.width() - len(shown) * tokens.SEGMENT_PADDING
        needed = sum(self._buttons[key].fontMetrics().horizontalAdvance(texts[key]) for key in shown)
        for key, text in (texts if needed <= room else short).items():
            if self._buttons[key].text() != text:
                self._buttons[key].setText(text)

    def set_shown(self, key: str, shown: bool) -> None:
        if self._buttons[key].isHidden() == shown:
            self._buttons[key].setVisible(shown)

    def set_tip(self, key: str, tip: str) -> None:
        self._buttons[key].setToolTip(tip)

    def button(self, key: str) -> QPushButton:
        return self._buttons[key]

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if step is None:
            super().keyPressEvent(event)
            return
        keys = [key for key, button in self._buttons.items() if not button.isHidden()]
        at = keys.index(self._key) + step
        if 0 <= at < len(keys):
            self._pick(keys[at])
            self._buttons[keys[at]].setFocus(Qt.FocusReason.TabFocusReason)

    def _segment(self, key: str, text: str, name: str) -> QPushButton:
        button = _Segment(text)
        button.setCheckable(True)
        button.setAccessibleName(f"{name}: {text}")
        button.setSizePolicy(QSizePolicy.Policy.MinimumExpanding, QSizePolicy.Policy.Fixed)
        button.setProperty("focus_radius", tokens.RADIUS_INNER)
        button.clicked.connect(lambda: self._pick(key))
        return button

    def _pick(self, key: str) -> None:
        changed = key != self._key
        self.choose(key)
        if changed:
            self.chosen.emit(key)


class _Segment(QPushButton):
    """Leaves the arrow keys to the control it is a part of."""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            event.ignore()
        else:
            super().keyPressEvent(event)
