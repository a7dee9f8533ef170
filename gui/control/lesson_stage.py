"""Where the runs of a lesson take place: on the service, or in a recording of the same lesson, which is played."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
from PySide6.QtCore import SignalInstance

from gui.control.presenter import Presenter
from gui.control.scenarios import UNKNOWN_PER_S, USERS_A_PLACE
from gui.main_window import MainWindow
from gui.panels.load import ChosenLoad
from gui.session.lifecycle import LifeCycle
from gui.session.session import Session
from service.analysis.lesson.lesson import Lesson, LessonLoad, Run, Step
from service.analysis.observed.history import History
from service.analysis.predict.observation import Observation
from service.analysis.recording.format import Bookmarked
from service.analysis.recording.reader import Recording
from service.messages.load import ClosedLoop, Pattern, RunLoad, describe_pattern
from service.messages.settings import Settings

NOT_RUNNING: Final = "Start the service to go on: this step runs on it."
MEASURING: Final = "First it is measured what this engine answers in full batches."
MEASURING_S: Final = 14.0  # the last 10 s count, and the first answers come after a whole batch
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
        capacity_per_s: requests a second in full batches, of which loads are shares; ``None`` until it is known.
    """

    capacity_per_s: float | None

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

    def words_of(self, step: Step, run: Run) -> str:
        """The load of its run in words."""
        ...

    def leave(self) -> None:
        """Give back what the lesson has changed."""
        ...


def _words_of(run: Run, pattern: Pattern | None) -> str:
    words = "No requests come" if pattern is None else f"Load: {describe_pattern(pattern)}"
    return ", ".join(filter(None, (words, run.load.share_words)))


class OnTheService:
    """Changes settings and load, and bookmarks each run for whoever records it.

    Before the first run of a lesson whose loads are shares, the capacity is measured: users who wait for their answers
    fill the batches, twice over.
    """

    def __init__(self, window: MainWindow, session: Session, presenter: Presenter) -> None:
        self._window, self._session, self._presenter = window, session, presenter
        self.capacity_per_s: float | None = None
        self._measured: Settings | None = None  # the settings under which the capacity is being measured
        self._to_begin: tuple[Step, Run] | None = None  # once it is
        self._load: RunLoad | None = None  # that waits for its settings
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
        return ready.fixed or ready.closed

    def begin(self, lesson: Lesson, step: Step, run: Run) -> None:
        if self._before is None:
            self._before = self._window.batching.settings, self._window.load.chosen
        if run.load.is_share and self.capacity_per_s is None:
            self._measured, self._to_begin = lesson.settings, (step, run)
            users = USERS_A_PLACE * lesson.settings.max_batch_size * max(len(self._session.history.replicas), 1)
            load = LessonLoad(pattern=ClosedLoop(users=users), asked=run.load.asked)
            self._put_in_force(lesson.settings, load.at(0.0))
        else:
            self._begin(step, run)

    def _begin(self, step: Step, run: Run) -> None:
        self._begun_s, self._title = self._session.history.now_s(), step.title
        self._put_in_force(run.settings, run.load.at(self.capacity_per_s or 0.0))

    def _put_in_force(self, settings: Settings, load: RunLoad | None) -> None:
        self._asked_s = self._since_s = time.monotonic()
        self._load = load
        self._session.change_settings(msgspec.to_builtins(settings))
        if load is None:
            self._session.stop_load()
        else:
            self._window.load.set_load(load.pattern, load.max_tokens, load.prompt_words)
            self._load_once_in_force(settings)

    def _load_once_in_force(self, settings: Settings) -> None:
        """Run the load that waits, none of whose requests is to be in a batch of the settings before."""
        in_force = self._session.history.in_force
        is_in_force = in_force is not None and in_force.settings == settings
        if self._load is not None and (is_in_force or time.monotonic() - self._asked_s >= LATEST_S):
            self._session.run_load(self._load)
            self._load = None

    def left_s(self, run: Run) -> float | None:
        if self._measured is not None:
            left_s = self._left_s(self._measured, MEASURING_S, is_loaded=True)
            if left_s is None:
                self._on_measured()
            return run.for_s + (left_s or 0.0)
        left_s = self._left_s(run.settings, run.for_s, is_loaded=run.load.pattern is not None)
        if left_s is None:
            end_s = self._session.history.now_s()
            self._session.note(self._title, self._begun_s, end_s)
        return left_s

    def _left_s(self, settings: Settings, for_s: float, is_loaded: bool) -> float | None:
        """From the first batch of the settings on, until the time is over and the figures to be kept are there."""
        self._load_once_in_force(settings)
        now_s, history = time.monotonic(), self._session.history
        regime = history.batches.regime_at(history.now_s())
        has_begun = regime is not None and regime.settings == settings
        if not has_begun and now_s - self._asked_s < LATEST_S:
            self._since_s = now_s
        left_s = for_s - (now_s - self._since_s)
        present = self._presenter.present
        is_known = not is_loaded or (present.p95_s is not None and present.mean_batch is not None)
        return max(left_s, 0.0) if left_s > -(0.0 if is_known else LATEST_S) else None

    def _on_measured(self) -> None:
        self.capacity_per_s = self._presenter.present.requests_per_s or UNKNOWN_PER_S
        self._measured = None
        assert self._to_begin is not None
        self._session.stop_load()
        self._session.cancel(None)  # or they would be answered first, at the cost of the run's time
        self._begin(*self._to_begin)

    def observation(self) -> Observation | None:
        return Observation.of_history(self._session.history)

    def pattern_of(self, step: Step, run: Run) -> Pattern | None:
        load = run.load.at(self.capacity_per_s or UNKNOWN_PER_S)
        return None if load is None else load.pattern

    def words_of(self, step: Step, run: Run) -> str:
        return MEASURING if self._measured is not None else _words_of(run, self.pattern_of(step, run))

    def forget(self) -> None:
        """What is known of a service that has ended is not true of the next."""
        self.capacity_per_s = self._measured = self._load = None

    def leave(self) -> None:
        self.forget()
        if self._before is None:
            return
        (settings, load), self._before = self._before, None
        if self._session.state is LifeCycle.RUNNING:
            self._session.stop_load()
            self._session.change_settings(msgspec.to_builtins(settings))
        self._window.batching.show_settings(settings)
        self._window.load.show_chosen(load)


class InARecording:
    """Plays the stretch that bears the name of the step."""

    def __init__(self, playback: Playback, recording: Recording, history: History, lesson: Lesson) -> None:
        """`history` is that of the window, which is the recording's."""
        self._playback, self._recording, self._history = playback, recording, history
        self._stretches: Mapping[str, Bookmarked] = {each.text: each for each in recording.bookmarks}
        self._at_s = history.now_s()
        self.capacity_per_s = lesson.capacity_by(self._pattern_of)

    def why_not(self, lesson: Lesson, step: Step) -> str:
        return "" if step.title in self._stretches else f"The recording has no stretch called {step.title!r}."

    def begin(self, lesson: Lesson, step: Step, run: Run) -> None:
        stretch = self._stretches[step.title]
        self._at_s = stretch.end_s
        self._playback.play(stretch.start_s, stretch.end_s)

    def left_s(self, run: Run) -> float | None:
        is_shown = self._playback.shown is self._recording  # where it was left meanwhile, the run is not over
        return self._playback.left_s if is_shown else run.for_s

    def observation(self) -> Observation | None:
        return Observation.of_history(self._history, self._at_s)

    def pattern_of(self, step: Step, run: Run) -> Pattern | None:
        return self._pattern_of(step)

    def words_of(self, step: Step, run: Run) -> str:
        return _words_of(run, self.pattern_of(step, run))

    def leave(self) -> None:
        self._playback.leave()

    def _pattern_of(self, step: Step) -> Pattern | None:
        stretch = self._stretches.get(step.title)
        return None if stretch is None else self._history.statuses.pattern_at(stretch.end_s)
