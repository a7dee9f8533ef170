"""Shows recordings in the place of a service: a thread reads the file, then the history becomes the recorded one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from PySide6.QtCore import QObject, QThreadPool, Signal

from gui.main_window import TITLE, MainWindow
from gui.panels.views import LIVE
from gui.plots.plot_stack import PlotStack
from gui.recordings.bar import RecordingBar
from gui.session.lifecycle import LifeCycle
from gui.session.processes.child import start_detached
from gui.session.session import Session
from gui.widgets.dialogs import RECORDINGS, ask_for_file, ask_for_line
from service.analysis.findings.ranking import findings, prepare
from service.analysis.observed.history import History
from service.analysis.recording.format import LONGEST_NOTE, Bookmarked, RecordingError
from service.analysis.recording.reader import NotWantedError, Recording, open_recording
from service.analysis.recording.writer import add_to
from service.messages.clock import monotonic_clock_id
from service.messages.pipes import our_python
from service.messages.settings import VersionedSettings
from service.messages.text import clock_text

SHORTEST_VIEW_S: Final = 2.0
LONGEST_END_MS: Final = 5_000
READING_S: Final = 10.0  # of processor time for any file, and for each megabyte: ten times what a recording takes


class Recordings(QObject):
    """Opens one recording at a time."""

    failed = Signal(str)  # a sentence that says why a recording could not be opened
    changed = Signal()  # a recording is shown, and the plots are to be frozen; or none is any more
    _read = Signal(object)

    def __init__(self, window: MainWindow, plots: PlotStack, session: Session, window_s: Callable[[], float]) -> None:
        """`window_s` returns the seconds that the plots show of a running service."""
        super().__init__(window)
        self._window = window
        self._plots = plots
        self._history = session.history
        self._session = session
        self._window_s = window_s
        self._live: History | None = None
        self._shown: Recording | None = None
        self._opening: Path | None = None
        self._until_s = math.inf  # to where it is played
        self._played_s: float | None = None  # when it was last played on, on this machine's clock
        self.bar = RecordingBar()
        window.put_above_views(self.bar)
        self._pool = QThreadPool(self)
        self._pool.setMaxThreadCount(1)
        toolbar, bar = self._window.toolbar, self.bar
        toolbar.open_action.triggered.connect(self.ask_for_file)
        self._window.recording_dropped.connect(self.open)
        toolbar.close_action.triggered.connect(self.leave)
        toolbar.note_action.triggered.connect(self.ask_for_note)
        bar.close_button.clicked.connect(self.leave)
        bar.overview.moved.connect(self._plots.show_until)
        bar.play_button.clicked.connect(self.play_or_pause)
        bar.overview.play_wanted.connect(self.play_or_pause)
        session.getting_ready.connect(self.leave)
        self._read.connect(self._on_read)
        self.failed.connect(bar.show_failure)

    @property
    def can_show(self) -> bool:
        """Whether no service runs whose telemetry would be shown; one that starts has none yet."""
        return self._session.is_at_rest or self._session.state is LifeCycle.STARTING

    @property
    def is_viewing(self) -> bool:
        """Whether a recording is shown, not a service."""
        return self._shown is not None

    @property
    def shown(self) -> Recording | None:
        return self._shown

    @property
    def is_playing(self) -> bool:
        """Whether the recording runs on by itself."""
        return self._played_s is not None

    def play_or_pause(self) -> None:
        """Let the recording run on from where it stands, from its beginning if that is the end; or stand still."""
        if self._shown is None or self.is_playing:
            self._pause()
            return
        if self._plots.view_end_s() >= self._history.now_s():
            self._plots.show_until(float("-inf"))
        self._played_s = time.monotonic()
        self.bar.set_playing(True)

    def play(self, start_s: float, end_s: float) -> None:
        """Run from one moment to another, and stand still there."""
        self._plots.let_begin(SHORTEST_VIEW_S)
        self._plots.show_until(start_s)
        self._until_s = end_s
        self._played_s = time.monotonic()
        self.bar.set_playing(True)

    @property
    def left_s(self) -> float | None:
        """The seconds until a stretch that is played is over; ``None`` where none is."""
        if self._until_s == math.inf:
            return None
        return max(self._until_s - self._plots.view_end_s(), 0.0) / self.bar.speed

    def _pause(self) -> None:
        self._played_s = None
        self.bar.set_playing(False)

    def ask_for_note(self) -> None:
        """Let the user note something of the moment at the right edge of the plots, if there is any."""
        if self._history.is_empty:
            self._window.status.set_activity("There is nothing to note yet: no service has run")
            return
        at_s = self._plots.view_end_s()
        when = clock_text(self._history.wall_time(at_s))
        ask_for_line(self._window, "Note", f"Of {when}:", lambda text: self.note(text, at_s))

    def note(self, text: str, at_s: float) -> None:
        """Note this of a moment: in the recording that is shown, or in the plots and recordings of the service."""
        text = text[:LONGEST_NOTE]
        shown = self._shown
        if shown is None:
            self._session.note(text, at_s, at_s)
            return
        event, last_s = Bookmarked(text=text, start_s=at_s, end_s=at_s), shown.header.at_s + shown.duration_s
        try:
            add_to(shown.path, last_s, event, is_ended=shown.is_ended)
        except RecordingError as error:
            self.failed.emit(str(error))
            return
        self._history.notes.add(at_s, text)
        self.bar.show_notes(self._history)
        self._plots.draw_anew()

    def ask_for_file(self) -> None:
        ask_for_file(self._window, "Open a recording", RECORDINGS, self.open)

    def open(self, path: Path) -> None:
        """Show a recording: here, or in a window of its own while a service runs in this one."""
        if not self.can_show:
            start_detached(our_python("gui", str(path.absolute())))
            return
        self._opening = path
        self._window.status.set_activity(f"Opening {path.name}")
        self._pool.start(lambda: self._open(path))

    def leave(self) -> None:
        """Show the history again that was shown before the recording."""
        self._opening = None
        self._until_s = math.inf
        self._pause()
        self.bar.hide()
        if self._live is None:
            return
        live, self._live, self._shown = self._live, None, None
        self._window.views.name_live("Live")
        self._show_history(live)
        self._window.show_recorded_settings(None)
        self._plots.set_window_s(self._window_s())
        self._window.setWindowTitle(TITLE)
        self.changed.emit()

    def show_place(self) -> None:
        """Show the time at the right edge of the plots and the settings in force then."""
        if self._shown is None:
            return
        window, history = self._window, self._history
        at_s = self._plots.view_end_s()
        clock_time = clock_text(history.wall_time(at_s))
        window.toolbar.show_replay(self._shown.path.name, clock_time)
        regime = history.batches.regime_at(at_s)
        settings = None if regime is None else regime.settings
        self.bar.show_settings(None if history.server else settings)
        scores = self._shown.scores_at(at_s)
        window.views.describe(LIVE, scores.words, brief=scores.brief, tip=scores.details)
        if regime is not None and settings is not None:
            recorded = VersionedSettings(version=regime.version, settings=settings)
            window.show_recorded_settings(recorded, history.statuses.scale_at(at_s))
        if self._session.state is LifeCycle.NOT_STARTED:
            window.load.set_can_run(False, "This is a recording. Start leaves it.")

    def follow(self) -> None:
        """Play on, and show in the overview what the plots show; called once a frame."""
        if self._shown is not None:
            self._play_on()
            end_s = self._plots.view_end_s()
            self.bar.overview.show_view(end_s - self._plots.window_s, end_s)

    def _play_on(self) -> None:
        """Move on by the time that has passed; stand still at the end."""
        if self._played_s is None:
            return
        now_s = time.monotonic()
        passed_s, self._played_s = now_s - self._played_s, now_s
        self._plots.play_on(passed_s * self.bar.speed)
        if self._plots.view_end_s() >= min(self._until_s, self._history.now_s()):
            self._pause()
            if self._until_s != math.inf:
                self._plots.show_until(self._until_s)
                self._until_s = math.inf

    def finish(self) -> None:
        """Give up the file that is being read; returns once that has ended, or after `LONGEST_END_MS`."""
        self._opening = None
        self._pool.waitForDone(LONGEST_END_MS)

    def _open(self, path: Path) -> None:
        try:
            until_s = time.thread_time() + READING_S * (1 + (path.stat().st_size / 1e6 if path.exists() else 0))
            recording = open_recording(path, lambda: self._opening == path and time.thread_time() < until_s)
            prepare()
            findings(recording.history)  # what it computes once is computed here, where it halts no window
            self._read.emit(recording)
        except NotWantedError:
            if self._opening == path:
                self.failed.emit(f"{path} takes longer to read than a recording of its size can.")
        except RecordingError as error:
            self.failed.emit(str(error))
        except Exception as error:
            self.failed.emit(f"Could not open {path}: {error!r}.")
            raise

    def _on_read(self, recording: Recording) -> None:
        if recording.path != self._opening or not self.can_show:
            return  # another was chosen, or a service started, meanwhile
        self._opening = None
        if self._live is None:
            self._live = History(monotonic_clock_id())
            self._live.become(self._history)
        self._pause()
        self._shown = recording
        self._window.views.name_live("Recording")
        self._show_history(recording.history)
        self._plots.set_window_s(max(min(self._window_s(), recording.duration_s), SHORTEST_VIEW_S))
        self._window.notice.clear()
        self._window.setWindowTitle(f"{recording.path.name} – {TITLE}")
        self.bar.show_recording(recording)
        self._window.status.set_activity(recording.damage or f"Recording {recording.path}")
        self.changed.emit()
        self.show_place()
        self.follow()

    def _show_history(self, history: History) -> None:
        self._window.requests.model.clear()
        self._history.become(history)
        self._window.set_fixed(history.fixed, is_ours=not history.server)
        self._plots.begin_anew()
