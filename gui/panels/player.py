"""The bar above the plots while something is played on the service: how far it is, and its end."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import tokens
from gui.panels import shortcuts
from gui.widgets.buttons import Button
from gui.widgets.glyphs import Progress
from gui.widgets.labels import label
from gui.widgets.layouts import box, column, hairline, row


class Player(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._progress = Progress()
        self._progress.setAccessibleName("How far it is")
        self._time = label("", "caption")
        self.end_button = Button("End", "ph.stop-fill", tip=shortcuts.SHOW_ME.tip("End it, and put the settings back"))
        margins = (tokens.PANEL_PADDING, 0, tokens.PANEL_PADDING, 0)
        line = row(
            label("Show me", "title"), self._progress, self._time, self.end_button, gap=tokens.GAP_4, margins=margins
        )
        line.setAlignment(self._progress, Qt.AlignmentFlag.AlignVCenter)
        self.setLayout(column(box(line, height=tokens.HEIGHT_VIEWS), hairline(), gap=0))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.hide()

    def show_time(self, since_s: float, most_s: float) -> None:
        """How long it has gone on, of how long it takes at most."""
        self._time.setText(f"{since_s:.0f} of {most_s:.0f} s")
        self._progress.show_fraction(since_s / most_s)
