"""Stands above the plots while they show a recording: what it is, what is wrong with it, and where in it they stand."""

from __future__ import annotations

from datetime import datetime

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QSizePolicy, QWidget

from gui.look import tokens
from gui.panels import shortcuts
from gui.recordings.strip import RecordingStrip, profile
from gui.recordings.words import facts
from gui.widgets.buttons import Button
from gui.widgets.glyphs import Glyph
from gui.widgets.labels import ElidedLabel, label
from gui.widgets.layouts import box, column, hairline, row
from service.analysis.recording.reader import Recording

POINTS = 480


class RecordingBar(QFrame):
    """
    Signals:
        close_wanted: the user has seen enough of it.
    """

    close_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("notice")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.strip = RecordingStrip()
        self._name = label("", "title")
        self._facts = ElidedLabel("", "text")
        self._settings = ElidedLabel("", "dim")
        self._damage = label("", "error", wrap=True)
        self._began, self._ended = label("", "caption"), label("", "caption")
        self.close_button = Button("Close", "ph.x", "quiet", tip=shortcuts.CLOSE_RECORDING.tip())
        self.close_button.clicked.connect(self.close_wanted)
        top = row(
            Glyph("circle", "t2"),
            self._name,
            self._facts,
            self._settings,
            self.close_button,
            gap=tokens.GAP_3,
            stretch=self._facts,
        )
        self._along = box(row(self._began, self.strip, self._ended))
        margins = (tokens.PANEL_PADDING, tokens.GAP_2, tokens.PANEL_PADDING, tokens.GAP_3)
        body = column(top, self._damage, self._along, gap=tokens.GAP_2, margins=margins)
        self.setLayout(column(body, hairline(), gap=0))
        self.hide()

    @property
    def damage(self) -> str:
        return self._damage.text()

    @property
    def facts(self) -> str:
        return self._facts.text()

    @property
    def settings(self) -> str:
        return self._settings.text()

    def show_recording(self, recording: Recording) -> None:
        history = recording.history
        found = profile(history, recording.duration_s, POINTS)
        self._name.setText(recording.path.name)
        self._facts.setText(facts(recording))
        self._damage.setText(recording.damage or "")
        self._damage.setVisible(bool(recording.damage))
        for shown, at_s in ((self._began, found.start_s), (self._ended, found.end_s)):
            shown.setText(f"{datetime.fromtimestamp(history.wall_time(at_s)):%H:%M:%S}")
        self.strip.show_profile(found)
        self._along.show()
        self.show()

    def show_failure(self, sentence: str) -> None:
        """A file could not be opened; a recording that is shown goes on being shown."""
        if self.isHidden():
            self._name.setText("Not opened")
            for words in (self._facts, self._settings):
                words.setText("")
            self._along.hide()
        self._damage.setText(sentence)
        self._damage.show()
        self.show()

    def show_settings(self, text: str) -> None:
        """Those that batches obeyed at the right edge of the plots."""
        self._settings.setText(text)
