"""Where the runs of a lesson take place: on the service, or in a recording of the same lesson, which is played."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
from PySide6.QtCore import SignalInstance

from gui.control.load_defaults import LoadDefaults
from gui.control.presenter import Presenter
from gui.control.scenarios import UNKNOWN_PER_S
from gui.main_window import MainWindow
from gui.panels.load import ChosenLoad
from gui.session.lifecycle import LifeCycle
from gui.session.session import Session
from service.analysis.lesson import Lesson, Run, Step
from service.analysis.observed.history import History
from service.analysis.predict.observation import Observation
from service.analysis.recording.format import Bookmarked
from service.analysis.recording.reader import Recording
from service.messages.load import Pattern, describe_pattern, mean
from service.messages.settings import Settings

NOT_RUNNING: Final = "Start the service to go on: this step runs on it."
LATEST_S: Final = 10.0  # that a run waits for its first batch, and at its end for figures


class Playback(Protocol):
    """Of a recording that is shown in the window."""

    changed: SignalInstance

    @property
    def can_show(self) -> bool: ...
    @property
    def shown(self) -> Recording | None: ...
    def open(self, path: Path) -> None: ...
    def play(self, start_s: float, end_s: float) -> None: ...
    @property
    def left_s(self) -> float | None:
        """The seconds until what is played is over; ``None`` where it is."""
        ...

    def leave(self) -> None: ...


class Stage(Protocol):
    """Runs one step of a lesson at a time.

    Attributes:
        capacity_per_s: requests a second in full batches, of which loads are shares.
    """

    capacity_per_s: float

    def why_not(self, lesson: Lesson, step: Step) -> str:
        """Why this step cannot run; empty where it can."""
        ...

    def begin(self, lesson: Lesson, step: Step, run: Run) -> None:
        """Begin its run."""
        ...

    def left_s(self, run: Run) -> float | None:
        """The seconds until it is over; ``None`` once it is."""
        ...

    def observation(self) -> Observation | None:
        """What a prediction of the next run can rest on."""
        ...

    def pattern_of(self, step: Step, run: Run) -> Pattern | None:
        """Its arrivals; ``None``: none."""
        ...

    def leave(self) -> None:
        """Give back what the lesson has changed."""
        ...


def words_of(run: Run, pattern: Pattern | None) -> str:
    """The load of a run in words."""
    words = "No requests come" if pattern is None else f"Load: {describe_pattern(pattern)}"
    return ", ".join(filter(None, (words, run.load.share_words)))


class OnTheService:
    """Changes settings and load, keeps the figures of the row, and bookmarks each run for whoever records it."""

    def __init__(self, window: MainWindow, session: Session, defaults: LoadDefaults, presenter: Presenter) -> None:
        self._window, self._session, self._defaults, self._presenter = window, session, defaults, presenter
        self.capacity_per_s = UNKNOWN_PER_S
        self._before: tuple[Settings, ChosenLoad] | None = None  # the user's, once the lesson has changed them
        self._asked_s = self._since_s = 0.0
        self._begun_s = 0.0  # on the service's clock
        self._title = ""

    def why_not(self, lesson: Lesson, step: Step) -> str:
        ready = self._session.ready
        if self._session.state is not LifeCycle.RUNNING or ready is None:
            return NOT_RUNNING
        if ready.workload.name != lesson.workload:
            return f"This lesson is for the workload {lesson.workload}; {ready.workload.name} runs."
        return ""

    def begin(self, lesson: Lesson, step: Step, run: Run) -> None:
        if self._before is None:
            self._before = self._window.batching.settings, self._window.load.chosen
            known = self._defaults.of_trial(lesson.settings.max_batch_size, mean(run.load.asked.max_tokens))
            self.capacity_per_s = UNKNOWN_PER_S if known is None else known.per_s
        self._asked_s = self._since_s = time.monotonic()
        self._begun_s, self._title = self._session.history.now_s(), step.title
        self._session.change_settings(msgspec.to_builtins(run.settings))
        load = run.load.at(self.capacity_per_s)
        if load is None:
            self._session.stop_load()
        else:
            self._window.load.set_load(load.pattern, load.max_tokens, load.prompt_words)
            self._session.run_load(load)

    def left_s(self, run: Run) -> float | None:
        now_s, history = time.monotonic(), self._session.history
        regime = history.batches.regime_at(history.now_s())
        has_begun = regime is not None and regime.settings == run.settings
        if not has_begun and now_s - self._asked_s < LATEST_S:
            self._since_s = now_s
        left_s = run.for_s - (now_s - self._since_s)
        if left_s > -(0.0 if self._is_known(run) else LATEST_S):
            return max(left_s, 0.0)
        self._session.heard.emit(Bookmarked(text=self._title, start_s=self._begun_s, end_s=history.now_s()))
        return None

    def observation(self) -> Observation | None:
        return Observation.of_history(self._session.history)

    def pattern_of(self, step: Step, run: Run) -> Pattern | None:
        load = run.load.at(self.capacity_per_s)
        return None if load is None else load.pattern

    def leave(self) -> None:
        if self._before is None:
            return
        (settings, load), self._before = self._before, None
        if self._session.state is LifeCycle.RUNNING:
            self._session.stop_load()
            self._session.change_settings(msgspec.to_builtins(settings))
        self._window.batching.show_settings(settings)
        self._window.load.show_chosen(load)

    def _is_known(self, run: Run) -> bool:
        """Whether the figures that are to be kept are there."""
        present = self._presenter.present
        return run.load.pattern is None or (present.p95_s is not None and present.mean_batch is not None)


class InARecording:
    """Plays the stretch that bears the name of the step."""

    def __init__(self, playback: Playback, recording: Recording, history: History, lesson: Lesson) -> None:
        """`history` is that of the window, which is the recording's."""
        self._playback, self._history = playback, history
        self._stretches: Mapping[str, Bookmarked] = {each.text: each for each in recording.bookmarks}
        self._at_s = history.now_s()
        self.capacity_per_s = self._capacity_per_s(lesson)

    def why_not(self, lesson: Lesson, step: Step) -> str:
        return "" if step.title in self._stretches else f"The recording has no stretch called {step.title!r}."

    def begin(self, lesson: Lesson, step: Step, run: Run) -> None:
        stretch = self._stretches[step.title]
        self._at_s = stretch.end_s
        self._playback.play(stretch.start_s, stretch.end_s)

    def left_s(self, run: Run) -> float | None:
        return self._playback.left_s

    def observation(self) -> Observation | None:
        return Observation.of_history(self._history, self._at_s)

    def pattern_of(self, step: Step, run: Run) -> Pattern | None:
        stretch = self._stretches.get(step.title)
        return None if stretch is None else self._history.statuses.pattern_at(stretch.end_s)

    def leave(self) -> None:
        self._playback.leave()

    def _capacity_per_s(self, lesson: Lesson) -> float:
        """That by which the recorded loads were shares."""
        steps = ((step, step.run) for step in lesson.steps if step.run is not None)
        known = (run.load.capacity_at(self.pattern_of(step, run)) for step, run in steps)
        return next((each for each in known if each is not None), UNKNOWN_PER_S)
