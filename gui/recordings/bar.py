"""The bar above the plots while they show a recording: its facts, its damage, and the place in it."""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePath

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QSizePolicy

from gui.look import tokens
from gui.panels import shortcuts
from gui.recordings.strip import RecordingStrip, profile
from gui.widgets.buttons import Button
from gui.widgets.glyphs import Glyph
from gui.widgets.labels import ElidedLabel, label
from gui.widgets.layouts import box, column, hairline, row
from service.analysis.observed.descriptions import UNITS
from service.analysis.recording.reader import Recording
from service.messages.settings import Settings
from service.messages.text import format_duration


def facts(recording: Recording) -> str:
    """Model, device, date, duration and number of requests."""
    header = recording.header
    where = " ".join(part for part in (header.device, header.dtype) if part)
    requests = len(recording.history.requests.columns)
    parts = [
        PurePath(recording.model).name if recording.model else "model unknown",
        where,
        f"{datetime.fromtimestamp(header.recorded_at):%d %b %Y, %H:%M:%S}",
        format_duration(round(recording.duration_s)),
        f"{requests:,} request{'s' if requests != 1 else ''}",
    ]
    return " · ".join(part for part in parts if part)


def in_force(settings: Settings | None) -> str:
    """The settings that batches obeyed, in one line.

    >>> in_force(Settings())
    'late, max_batch_size 16, batch_wait_timeout_s 0.050'
    """
    if settings is None:
        return ""
    wait = UNITS["batch_wait_timeout_s"].format(settings.batch_wait_timeout_s)
    return f"{settings.formation}, max_batch_size {settings.max_batch_size}, batch_wait_timeout_s {wait}"


POINTS = 480


class RecordingBar(QFrame):
    """Name, facts and strip of one recording, or the reason why a file could not be opened.

    Signals:
        close_wanted: the user closes the recording.
    """

    close_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("notice")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.strip = RecordingStrip()
        self._name = label("", "title")
        self.facts = ElidedLabel("", "text")
        self.settings = ElidedLabel("", "dim")
        self.damage = label("", "error", wrap=True)
        self._began, self._ended = label("", "caption"), label("", "caption")
        self.close_button = Button("Close", "ph.x", "quiet", tip=shortcuts.CLOSE_RECORDING.tip())
        self.close_button.clicked.connect(self.close_wanted)
        top = row(
            Glyph("circle", "t2"),
            self._name,
            self.facts,
            self.settings,
            self.close_button,
            gap=tokens.GAP_3,
            stretch=self.facts,
        )
        self._along = box(row(self._began, self.strip, self._ended))
        margins = (tokens.PANEL_PADDING, tokens.GAP_2, tokens.PANEL_PADDING, tokens.GAP_3)
        body = column(top, self.damage, self._along, gap=tokens.GAP_2, margins=margins)
        self.setLayout(column(body, hairline(), gap=0))
        self.hide()

    def show_recording(self, recording: Recording) -> None:
        history = recording.history
        found = profile(history, recording.duration_s, POINTS)
        self._name.setText(recording.path.name)
        self.facts.setText(facts(recording))
        self.damage.setText(recording.damage or "")
        self.damage.setVisible(bool(recording.damage))
        for shown, at_s in ((self._began, found.start_s), (self._ended, found.end_s)):
            shown.setText(f"{datetime.fromtimestamp(history.wall_time(at_s)):%H:%M:%S}")
        self.strip.show_profile(found)
        self._along.show()
        self.show()

    def show_failure(self, sentence: str) -> None:
        """Show why a file could not be opened; a shown recording stays."""
        if self.isHidden():
            self._name.setText("Not opened")
            for words in (self.facts, self.settings):
                words.setText("")
            self._along.hide()
        self.damage.setText(sentence)
        self.damage.show()
        self.show()

    def show_settings(self, text: str) -> None:
        """Show the settings in force at the right edge of the plots."""
        self.settings.setText(text)
