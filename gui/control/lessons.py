"""Takes a reader through a lesson on the service that runs: scenes are set, figures kept, guesses held against them.

::

    a step that runs:  settings and load in force ──▶ its time passes ──▶ figures of the row are kept, its text filled
    a step that asks:  the predictor is asked for the next run, unseen ──▶ the guess ──▶ the next step runs and reveals
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from PySide6.QtCore import QFileSystemWatcher, QObject, Signal

from gui.control.load_defaults import LoadDefaults
from gui.control.presenter import Presenter
from gui.control.scenarios import UNKNOWN_PER_S
from gui.main_window import MainWindow
from gui.panels.finder import Entry
from gui.panels.lesson import LessonPanel, Page, Reveal
from gui.panels.load import ChosenLoad
from gui.session.lifecycle import LifeCycle
from gui.session.processes.analysis import PredictProcess
from gui.session.session import Session
from gui.widgets.dialogs import ask_for_file
from service.analysis.lesson import SUFFIX, Lesson, Run, filled, read, shipped
from service.analysis.observed.register import REGISTER, Figures
from service.analysis.predict.observation import Observation
from service.analysis.predict.predict import Prediction
from service.messages.load import describe_pattern, mean
from service.messages.settings import Settings
from service.messages.text import UserError

FILTER: Final = f"Lessons (*{SUFFIX})"
HOLDER: Final = "the lesson, which sets them"
NOT_RUNNING: Final = "Start the service to go on: this step runs on it."
LATEST_S: Final = 10.0  # that a run waits for its first batch, and at its end for figures


@dataclass(frozen=True)
class Outcome:
    """Of a step that ran.

    Attributes:
        figures: of the row at its end.
        before: those of the run before it.
    """

    figures: Figures
    before: Figures | None


class Lessons(QObject):
    """Opens one lesson at a time.

    Attributes:
        panel: that shows it.
        predictor: its process runs from the first guess on.
    """

    failed = Signal(str)  # a sentence that says why a lesson could not be opened

    def __init__(self, window: MainWindow, session: Session, defaults: LoadDefaults, presenter: Presenter) -> None:
        super().__init__(window)
        self._window, self._session, self._defaults, self._presenter = window, session, defaults, presenter
        self.panel = LessonPanel()
        self.predictor = PredictProcess(self)
        self._lesson: Lesson | None = None
        self._place = 0
        self._outcomes: dict[int, Outcome] = {}
        self._guesses: dict[int, float] = {}  # by the step that runs after it
        self._predictions: dict[int, Prediction] = {}
        self._foreseen = 0  # the step that was asked about last
        self._answers: dict[int, dict[int, int]] = {}
        self._running: Run | None = None
        self._asked_s = self._since_s = 0.0
        self._capacity_per_s = UNKNOWN_PER_S
        self._before: tuple[Settings, ChosenLoad] | None = None  # the user's, once the lesson has changed them
        self._watcher = QFileSystemWatcher(self)  # so that its author sees what is written
        self._watcher.fileChanged.connect(self._on_file_changed)
        panel = self.panel
        panel.next_wanted.connect(self.go_on)
        panel.back_wanted.connect(self.go_back)
        panel.end_wanted.connect(self.end)
        panel.guessed.connect(self._on_guessed)
        panel.answered.connect(self._on_answered)
        self.predictor.predicted.connect(self._on_predicted)
        self.predictor.logged.connect(session.logged)
        window.toolbar.lessons_menu.aboutToShow.connect(self._offer)
        window.found_elsewhere = self._found
        presenter.numbers_shown.connect(self.follow)
        session.life_cycle_changed.connect(self._on_life_cycle_changed)

    @property
    def is_open(self) -> bool:
        return self._lesson is not None

    def ask_for_file(self) -> None:
        ask_for_file(self._window, "Open a lesson", FILTER, self.open)

    def _offer(self) -> None:
        """Fill the menu, when it is wanted: only then the files are read."""
        menu = self._window.toolbar.lessons_menu
        menu.clear()
        for title, path in shipped().items():
            menu.addAction(title).triggered.connect(partial(self.open, path))
        menu.addSeparator()
        menu.addAction("Open a lesson…").triggered.connect(self.ask_for_file)

    def _found(self) -> list[Entry]:
        """What Ctrl+K finds of lessons."""
        lessons = [
            Entry(f"Lesson: {title}", "Take it, on the service", partial(self.open, p))
            for title, p in shipped().items()
        ]
        return [*lessons, Entry("Open a lesson", "From a file of your own", self.ask_for_file)]

    def open(self, path: Path) -> None:
        """Begin the lesson of this file."""
        try:
            lesson = read(path)
        except UserError as error:
            self.failed.emit(str(error))
            return
        self.end()
        self._begin_at(lesson, 0)
        self._watcher.addPath(str(path))

    def _begin_at(self, lesson: Lesson, place: int) -> None:
        self._lesson, self._place = lesson, place
        self._window.reserve(HOLDER)
        self._window.load.setEnabled(False)
        if self._window.notice.invites:
            self._window.notice.clear()
        self._window.show_in_right(self.panel)
        self._show()

    def _on_file_changed(self, path: str) -> None:
        """Show what its author has written; what is run or asked begins anew."""
        if Path(path).exists():
            self._watcher.addPath(path)  # editors replace a file, which is then watched no more
        try:
            lesson = read(Path(path))
        except UserError as error:
            self.failed.emit(str(error))
            return
        place = min(self._place, len(lesson.steps) - 1)
        self._forget()
        self._begin_at(lesson, place)
        self._window.status.say(f"{Path(path).name} read again")

    def end(self) -> None:
        """Stop its load, and put the user's settings in force again."""
        if self._lesson is None:
            return
        self._lesson = None
        self._forget()
        if self._watcher.files():
            self._watcher.removePaths(self._watcher.files())
        if self._before is not None:
            settings, load = self._before
            if self._session.state is LifeCycle.RUNNING:
                self._session.stop_load()
                self._session.change_settings(msgspec.to_builtins(settings))
            self._window.batching.show_settings(settings)
            self._window.load.show_chosen(load)
        self._before = None
        self._window.load.setEnabled(True)
        self._window.show_in_right(None)
        self._window.reserve()

    def _forget(self) -> None:
        self._running = None
        self.predictor.forget()
        for kept in (self._outcomes, self._guesses, self._predictions, self._answers):
            kept.clear()

    def go_on(self) -> None:
        """To the next step, which runs if it has not yet; from the last to the end."""
        lesson = self._lesson
        if lesson is None or self._running is not None or self._why_not(lesson):
            return
        if self._place == len(lesson.steps) - 1:
            self.end()
            return
        self._enter(lesson, self._place + 1)

    def go_back(self) -> None:
        """To the step before, as it was left."""
        if self._lesson is not None and self._running is None and self._place > 0:
            self._place -= 1
            self._show()

    def follow(self) -> None:
        """Look whether the run is over; four times a second."""
        lesson, run = self._lesson, self._running
        if lesson is None:
            return
        if run is not None:
            now_s = time.monotonic()
            if self._is_to_begin(run) and now_s - self._asked_s < LATEST_S:
                self._since_s = now_s
            elif now_s - self._since_s >= run.for_s + (0.0 if self._is_known(run) else LATEST_S):
                before = self._outcomes.get(self._last_run_before(lesson))
                figures = None if before is None else before.figures
                self._outcomes[self._place] = Outcome(self._presenter.present, figures)
                self._running = None
        self._show()

    def _enter(self, lesson: Lesson, place: int) -> None:
        self._place = place
        step = lesson.steps[place]
        if step.run is not None and place not in self._outcomes:
            self._begin(lesson, step.run)
        elif step.guess is not None and place + 1 not in self._outcomes:
            self._foresee(lesson, place + 1)
        self._show()

    def _begin(self, lesson: Lesson, run: Run) -> None:
        if self._before is None:
            self._before = self._window.batching.settings, self._window.load.chosen
            known = self._defaults.of_trial(lesson.settings.max_batch_size, mean(run.load.asked.max_tokens))
            self._capacity_per_s = UNKNOWN_PER_S if known is None else known.per_s
        self._running = run
        self._asked_s = self._since_s = time.monotonic()
        self._session.change_settings(msgspec.to_builtins(run.settings))
        load = run.load.at(self._capacity_per_s)
        if load is None:
            self._session.stop_load()
        else:
            self._window.load.set_load(load.pattern, load.max_tokens, load.prompt_words)
            self._session.run_load(load)

    def _is_to_begin(self, run: Run) -> bool:
        """Whether no batch has run under the settings of this run."""
        history = self._session.history
        regime = history.batches.regime_at(history.now_s())
        return regime is None or regime.settings != run.settings

    def _is_known(self, run: Run) -> bool:
        """Whether the figures that are to be kept are there."""
        present = self._presenter.present
        return run.load.pattern is None or (present.p95_s is not None and present.mean_batch is not None)

    def _foresee(self, lesson: Lesson, place: int) -> None:
        """Ask the predictor what the reader is asked; its answer is shown only once the run is over."""
        run, observation = lesson.steps[place].run, Observation.of_history(self._session.history)
        assert run is not None, "a guess is of the next step"
        load = run.load.at(self._capacity_per_s)
        if observation is not None and load is not None:
            self._foreseen = place
            self.predictor.observe(observation)
            self.predictor.ask(run.settings, load.pattern)

    def _on_predicted(self, prediction: Prediction | None) -> None:
        if prediction is not None and self._lesson is not None:
            self._predictions[self._foreseen] = prediction

    def _on_guessed(self, value: float) -> None:
        self._guesses[self._place + 1] = value
        self._show()

    def _on_answered(self, question: int, answer: int) -> None:
        self._answers.setdefault(self._place, {})[question] = answer
        self._show()

    def _on_life_cycle_changed(self, state: LifeCycle) -> None:
        """A run that loses its service did not happen."""
        if self._lesson is None or state is LifeCycle.RUNNING:
            return
        if self._running is not None:
            self._running, self._place = None, self._place - 1
        self._show()

    def _why_not(self, lesson: Lesson) -> str:
        """Why it cannot go on."""
        run = lesson.run_after(self._place)
        state, ready = self._session.state, self._session.ready
        if run is None or self._place + 1 in self._outcomes:
            return ""
        if state is not LifeCycle.RUNNING or ready is None:
            return NOT_RUNNING
        if ready.workload.name != lesson.workload:
            return f"This lesson is for the workload {lesson.workload}; {ready.workload.name} runs."
        return ""

    def _last_run_before(self, lesson: Lesson) -> int:
        """The place of the run before the present one, or -1."""
        return next((place for place in range(self._place - 1, -1, -1) if lesson.steps[place].run is not None), -1)

    def _show(self) -> None:
        if self._lesson is not None:
            self.panel.show_page(self._page(self._lesson))
            self._window.watch_focus(self.panel)

    def _page(self, lesson: Lesson) -> Page:
        place, step = self._place, lesson.steps[self._place]
        page = Page(
            lesson=lesson.title,
            steps=tuple(each.title for each in lesson.steps),
            place=place,
            text=step.before,
            remark=self._said_of(step.run),
            questions=step.questions,
            answers=tuple(sorted(self._answers.get(place, {}).items())),
            next_hint=self._hint(lesson),
            why_not=self._why_not(lesson) if self._running is None else "",
        )
        if self._running is not None:
            return replace(page, waits_s=max(self._running.for_s - (time.monotonic() - self._since_s), 0.0))
        outcome = self._outcomes.get(place if step.run is not None else self._last_run_before(lesson))
        figures, before = (None, None) if outcome is None else (outcome.figures, outcome.before)
        text = page.text + step.after if step.run is None or place in self._outcomes else page.text
        page = replace(page, text=filled(text, figures, before, self._capacity_per_s))
        if step.guess is not None:
            seen = None if figures is None else getattr(figures, step.guess.figure)
            at_first = round(seen or 0.0, REGISTER[step.guess.figure].decimals)
            return replace(page, asks=(step.guess.figure, self._guesses.setdefault(place + 1, at_first)))
        guess = lesson.steps[place - 1].guess if place else None
        if guess is not None and outcome is not None and place in self._outcomes:
            name, prediction = guess.figure, self._predictions.get(place)
            predicted = None if prediction is None else getattr(prediction, name)
            return replace(page, reveal=Reveal(name, self._guesses[place], predicted, getattr(outcome.figures, name)))
        return page

    def _said_of(self, run: Run | None) -> str:
        """The load of a run in words."""
        load = None if run is None else run.load.at(self._capacity_per_s)
        if run is None or self._before is None:
            return ""
        words = "No requests come" if load is None else f"Load: {describe_pattern(load.pattern)}"
        return ", ".join(filter(None, (words, run.load.share_words)))

    def _hint(self, lesson: Lesson) -> str:
        run = lesson.run_after(self._place)
        return "" if run is None or self._place + 1 in self._outcomes else f"runs {run.for_s:.0f} s"
