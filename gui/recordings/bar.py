"""The bar above the plots of a recording: its facts, its damage, and the overview that moves through it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePath
from typing import Final

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QPolygonF, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, scaled
from gui.panels import shortcuts
from gui.widgets.buttons import Button
from gui.widgets.glyphs import Glyph
from gui.widgets.labels import ElidedLabel, label
from gui.widgets.layouts import box, column, hairline, row
from gui.widgets.segmented import Segmented
from service.analysis.observed.columns import Floats
from service.analysis.observed.descriptions import UNITS
from service.analysis.observed.history import History
from service.analysis.recording.reader import Recording
from service.messages.settings import Settings
from service.messages.text import format_duration

POINTS: Final = 480
SPEEDS: Final = ("1", "4", "16")  # times as fast as it was
KEY_SHARE: Final = 0.25  # of what the plots show, a press of an arrow
WHEEL_NOTCH: Final = 120.0
PLAY_KEY: Final = "Space in the overview"


class RecordingBar(QFrame):
    """Name, facts and overview of one recording, or the reason why a file could not be opened."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("notice")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.overview = RecordingOverview()
        self._name = label("", "title")
        self.facts = ElidedLabel("", "text")
        self.settings = ElidedLabel("", "dim")
        self.damage = label("", "error", wrap=True)
        self.play_button = Button("Pause", "ph.play-fill")
        self._play_width = self.play_button.sizeHint().width()  # nothing moves when it is pressed
        self.play_button.setFixedWidth(self._play_width)
        self._speeds = Segmented([(speed, f"{speed}×") for speed in SPEEDS], "Speed")
        self._speeds.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_playing(False)
        self._began, self._ended = label("", "caption"), label("", "caption")
        self.close_button = Button("Close", "ph.x", "quiet", tip=shortcuts.CLOSE_RECORDING.tip())
        words = (Glyph("circle", "t2"), self._name, self.facts, self.settings, self.close_button)
        top = row(*words, gap=tokens.GAP_3, stretch=self.facts)
        self._along = box(row(self.play_button, self._speeds, self._began, self.overview, self._ended))
        margins = (tokens.PANEL_PADDING, tokens.GAP_2, tokens.PANEL_PADDING, tokens.GAP_3)
        body = column(top, self.damage, self._along, gap=tokens.GAP_2, margins=margins)
        self.setLayout(column(body, hairline(), gap=0))
        self.hide()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:  # the type may be larger now
            self.play_button.setFixedWidth(scaled(self._play_width))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def show_settings(self, settings: Settings | None) -> None:
        """Say what was in force at the place looked at, where there is room beside the facts."""
        self.settings.setText(in_force(settings))
        self._fit()

    def _fit(self) -> None:
        """Show the settings only where facts and settings are whole: the controls of the window show them too."""
        others = self._name.sizeHint().width() + self.close_button.sizeHint().width() + tokens.ICON
        room = self.width() - 2 * tokens.PANEL_PADDING - others - 4 * tokens.GAP_3
        self.settings.setVisible(self.facts.sizeHint().width() + self.settings.sizeHint().width() <= room)

    @property
    def speed(self) -> float:
        """Seconds of the recording that are played in a second."""
        return float(self._speeds.key)

    def set_playing(self, is_playing: bool) -> None:
        """Name what the button does now."""
        self.play_button.setText("Pause" if is_playing else "Play")
        self.play_button.set_icon("ph.pause-fill" if is_playing else "ph.play-fill")
        self.play_button.setToolTip(f"{'Stand still here' if is_playing else 'Run on from here'} ({PLAY_KEY})")

    def show_recording(self, recording: Recording) -> None:
        history = recording.history
        found = profile(history, recording.duration_s, POINTS)
        self._name.setText(recording.path.name)
        self.facts.setText(facts(recording))
        self._fit()
        self.damage.setText(recording.damage or "")
        self.damage.setVisible(bool(recording.damage))
        for shown, at_s in ((self._began, found.start_s), (self._ended, found.end_s)):
            shown.setText(f"{datetime.fromtimestamp(history.wall_time(at_s)):%H:%M:%S}")
        self.overview.show_profile(found)
        self._along.show()
        self.show()

    def show_notes(self, history: History) -> None:
        """Something was noted."""
        self.overview.show_notes(tuple(note.at_s for note in history.notes))

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


@dataclass(frozen=True)
class Profile:
    """The requests in the service over the length of a recording.

    Attributes:
        start_s, end_s: on the service's clock.
        depth: requests that were waiting, formed or running, at evenly spaced moments between the two.
        changes_s: when batches obeyed other settings for the first time.
        notes_s: of which something was noted.
    """

    start_s: float
    end_s: float
    depth: Floats
    changes_s: tuple[float, ...]
    notes_s: tuple[float, ...] = ()

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s


def profile(history: History, duration_s: float, points: int) -> Profile:
    """The profile of the last `duration_s` seconds of a history, at `points` moments."""
    end_s = history.now_s()
    start_s = end_s - duration_s
    at_s = np.linspace(start_s, end_s, points)
    columns = history.requests.columns
    begun, ended = np.sort(columns["queued"]), np.sort(columns["finished"])
    depth = np.searchsorted(begun, at_s, side="right") - np.searchsorted(ended, at_s, side="right")
    changes_s = tuple(mark.at_s for mark in history.batches.marks())
    notes_s = tuple(note.at_s for note in history.notes)
    return Profile(start_s, end_s, np.maximum(depth, 0).astype(np.float64), changes_s, notes_s)


class RecordingOverview(QWidget):
    """Click, drag, wheel and the keys of a slider move what the plots show."""

    play_wanted = Signal()  # or the pause of it
    moved = Signal(float)  # the moment for the right edge of the plots, in seconds on the service's clock

    def __init__(self) -> None:
        super().__init__()
        self._profile: Profile | None = None
        self._view = (0.0, 0.0)
        self._grabbed_s: float | None = None
        self.setFixedHeight(tokens.HEIGHT_OVERVIEW)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName("Place in the recording")
        self.setToolTip(
            "Drag to move through the recording, Space plays it (Left, Right, Page Up, Page Down, Home, End)"
        )

    def show_profile(self, profile: Profile) -> None:
        self._profile = profile
        self.update()

    def show_notes(self, notes_s: tuple[float, ...]) -> None:
        if self._profile is not None:
            self.show_profile(replace(self._profile, notes_s=notes_s))

    def show_view(self, start_s: float, end_s: float) -> None:
        """Show the part that the plots show."""
        if (start_s, end_s) != self._view:
            self._view = (start_s, end_s)
            if self._profile is not None:
                self.setAccessibleDescription(f"{end_s - self._profile.start_s:.1f} of {self._profile.span_s:.1f} s")
            self.update()

    # What the user does ----------------------------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        at_s = self._time_at(event.position().x())
        start_s, end_s = self._view
        half_s = (end_s - start_s) / 2
        self._grabbed_s = end_s - at_s if start_s <= at_s <= end_s else half_s
        self._move_to(at_s + self._grabbed_s)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._grabbed_s is not None:
            self._move_to(self._time_at(event.position().x()) + self._grabbed_s)

    def mouseReleaseEvent(self, _event: QMouseEvent) -> None:
        self._grabbed_s = None

    def wheelEvent(self, event: QWheelEvent) -> None:
        turned = event.angleDelta()
        self._step(-(turned.y() or turned.x()) / WHEEL_NOTCH * KEY_SHARE)
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {
            Qt.Key.Key_Left: -KEY_SHARE,
            Qt.Key.Key_Right: KEY_SHARE,
            Qt.Key.Key_PageUp: -1.0,
            Qt.Key.Key_PageDown: 1.0,
            Qt.Key.Key_Home: float("-inf"),
            Qt.Key.Key_End: float("inf"),
        }
        step = steps.get(Qt.Key(event.key()))
        if event.key() == Qt.Key.Key_Space:
            self.play_wanted.emit()
        elif step is None:
            super().keyPressEvent(event)
        else:
            self._step(step)

    def _step(self, views: float) -> None:
        start_s, end_s = self._view
        self._move_to(end_s + views * (end_s - start_s))

    def _move_to(self, end_s: float) -> None:
        """Emit `end_s`, kept within the recording."""
        if self._profile is not None:
            shown_s = min(self._view[1] - self._view[0], self._profile.span_s)
            end_s = min(max(end_s, self._profile.start_s + shown_s), self._profile.end_s)
            self.show_view(end_s - (self._view[1] - self._view[0]), end_s)
            self.moved.emit(end_s)

    def _time_at(self, x: float) -> float:
        profile = self._profile
        return 0.0 if profile is None else profile.start_s + x / max(self.width(), 1) * profile.span_s

    # Painting --------------------------------------------------------------------------------------------------------

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        palette = current()
        painter.fillRect(self.rect(), colour(palette.raised))
        if self._profile is None or self._profile.span_s <= 0:
            return
        view = self._view_rect(self._profile)
        painter.fillRect(view, colour(palette.hover))
        self._paint_depth(painter, self._profile)
        painter.setPen(QPen(colour(palette.t2), tokens.LINE_MARKER, Qt.PenStyle.DashLine))
        for at_s in self._profile.changes_s:
            x = self._x_of(self._profile, at_s)
            painter.drawLine(QPointF(x, 0), QPointF(x, self.height()))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour(palette.t1))
        for at_s in self._profile.notes_s:
            x, half = self._x_of(self._profile, at_s), tokens.GAP_1
            painter.drawPolygon(QPolygonF([QPointF(x - half, 0), QPointF(x + half, 0), QPointF(x, 2 * half)]))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(colour(palette.t1), tokens.HAIRLINE))
        painter.drawRect(view)

    def _paint_depth(self, painter: QPainter, profile: Profile) -> None:
        most = max(float(profile.depth.max()), 1.0)
        room = self.height() - 2 * tokens.GAP_HALF
        places = [
            QPointF(n / max(len(profile.depth) - 1, 1) * self.width(), self.height() - depth / most * room)
            for n, depth in enumerate(profile.depth.tolist())
        ]
        edges = [QPointF(self.width(), self.height()), QPointF(0, self.height())]
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour(current().waiting))
        painter.drawPolygon(QPolygonF([*places, *edges]))
        painter.setBrush(Qt.BrushStyle.NoBrush)

    def _view_rect(self, profile: Profile) -> QRectF:
        left, right = (self._x_of(profile, at_s) for at_s in self._view)
        left, right = max(left, 0.0), min(right, self.width() - tokens.HAIRLINE)
        return QRectF(left, 0, max(right - left, tokens.GAP_1), self.height() - tokens.HAIRLINE)

    def _x_of(self, profile: Profile, at_s: float) -> float:
        return (at_s - profile.start_s) / profile.span_s * self.width()
