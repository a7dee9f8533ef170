"""Takes a reader through a lesson on the service that runs: scenes are set, figures kept, guesses held against them.

::

    a step that runs:  settings and load in force ──▶ its time passes ──▶ figures of the row are kept, its text filled
    a step that asks:  the predictor is asked for the next run, unseen ──▶ the guess ──▶ the next step runs and reveals
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from PySide6.QtCore import QFileSystemWatcher, QObject, Signal

from gui.control.lesson_stage import InARecording, OnTheService, Playback, Stage
from gui.control.presenter import Presenter
from gui.main_window import MainWindow
from gui.panels.finder import Entry
from gui.panels.lesson import LessonPanel, Page, Reveal
from gui.plots.plot_stack import PlotStack
from gui.session.lifecycle import LifeCycle
from gui.session.processes.analysis import PredictProcess
from gui.session.session import Session
from gui.widgets.dialogs import ask_for_file
from service.analysis.lesson.file import SUFFIX, number_of, path_of, read, shipped
from service.analysis.lesson.lesson import Lesson, Run, filled
from service.analysis.observed.register import REGISTER, Figures
from service.analysis.predict.predict import Prediction
from service.messages.text import UserError

FILTER: Final = f"Lessons (*{SUFFIX})"
HOLDER: Final = "the lesson, which needs the service to itself"
TAKEN: Final = "A comparison runs. Stop it, or take the lesson once it is over."


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

    opened = Signal()
    failed = Signal(str)  # a sentence that says why a lesson could not be opened

    def __init__(
        self,
        window: MainWindow,
        plots: PlotStack,
        session: Session,
        presenter: Presenter,
        playback: Playback,
    ) -> None:
        super().__init__(window)
        self._window, self._plots = window, plots
        self._session, self._presenter, self._playback = session, presenter, playback
        self.panel = LessonPanel()
        self.panel.setParent(window)  # which it ends with, also where it is never shown
        self.panel.hide()
        self.predictor = PredictProcess(self)
        self._lesson: Lesson | None = None
        self._recording = Path()  # of the lesson
        self._place = 0
        self._outcomes: dict[int, Outcome] = {}
        self._guesses: dict[int, float] = {}  # by the step that runs after it
        self._predictions: dict[int, Prediction] = {}
        self._foreseen = 0  # the step that was asked about last
        self._answers: dict[int, dict[int, int]] = {}
        self._running: Run | None = None
        self._left_s: float | None = None
        self._on_the_service = OnTheService(window, session, presenter)
        self._stage: Stage = self._on_the_service
        self._watcher = QFileSystemWatcher(self)  # so that its author sees what is written
        self._watcher.fileChanged.connect(self._on_file_changed)
        panel = self.panel
        panel.next_wanted.connect(self.go_on)
        panel.back_wanted.connect(self.go_back)
        panel.end_wanted.connect(self.end)
        panel.guessed.connect(self._on_guessed)
        plots.guessed.connect(self._on_guess_dragged)
        panel.answered.connect(self._on_answered)
        self.predictor.predicted.connect(self._on_predicted)
        self.predictor.logged.connect(session.logged)
        window.toolbar.lessons_menu.aboutToShow.connect(self._offer)
        window.notice.starting.show_me.clicked.connect(lambda: self.open(path_of("1")))
        window.found_elsewhere = self._found
        playback.changed.connect(self._on_recording_shown)
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
            Entry(f"Lesson {number_of(path)}: {title}", "Take it, on the service", partial(self.open, path), "Lesson")
            for title, path in shipped().items()
        ]
        return [*lessons, Entry("Open a lesson", "From a file of your own", self.ask_for_file)]

    def open(self, path: Path) -> None:
        """Begin the lesson of this file."""
        if self._window.is_reserved and not self.is_open:
            self.failed.emit(TAKEN)
            return
        try:
            lesson = read(path)
        except UserError as error:
            self.failed.emit(str(error))
            return
        self.end()
        self.opened.emit()
        self._begin_at(lesson, path, 0)
        self._watcher.addPath(str(path))
        if lesson.recording and self._playback.can_show:
            self._playback.open(self._recording)

    def _begin_at(self, lesson: Lesson, path: Path, place: int) -> None:
        self._lesson, self._place = lesson, place
        self._recording = path.parent / lesson.recording
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
        self._on_the_service.leave()
        self._forget()
        self._begin_at(lesson, Path(path), min(self._place, len(lesson.steps) - 1))
        self._window.status.say(f"{Path(path).name} read again")

    def end(self) -> None:
        """Stop its load, and put the user's settings in force again."""
        if self._lesson is None:
            return
        self._lesson = None
        self._forget()
        if self._watcher.files():
            self._watcher.removePaths(self._watcher.files())
        self._plots.ask(None)
        self._stage.leave()
        self._stage = self._on_the_service
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
            self._left_s = self._stage.left_s(run)
            if self._left_s is None:
                before = self._outcomes.get(self._last_run_before(lesson))
                figures = None if before is None else before.figures
                self._outcomes[self._place] = Outcome(self._presenter.shown, figures)
                self._running = None
        self._show()

    def _enter(self, lesson: Lesson, place: int) -> None:
        self._place = place
        step = lesson.steps[place]
        if step.run is not None and place not in self._outcomes:
            self._running, self._left_s = step.run, step.run.for_s
            self._stage.begin(lesson, step, step.run)
        elif step.guess is not None and place + 1 not in self._outcomes:
            self._foresee(lesson, place + 1)
        self._show()

    def _foresee(self, lesson: Lesson, place: int) -> None:
        """Ask the predictor what the reader is asked; its answer is shown only once the run is over."""
        step, observation = lesson.steps[place], self._stage.observation()
        assert step.run is not None, "a guess is of the next step"
        pattern = self._stage.pattern_of(step, step.run)
        if observation is not None and pattern is not None:
            self._foreseen = place
            self.predictor.observe(observation)
            self.predictor.ask(step.run.settings, pattern)

    def _on_predicted(self, prediction: Prediction | None) -> None:
        if prediction is not None and self._lesson is not None:
            self._predictions[self._foreseen] = prediction

    def _on_guessed(self, value: float) -> None:
        self._guesses[self._place + 1] = value
        self._show()

    def _on_guess_dragged(self, value: float) -> None:
        asked = None if self._lesson is None else self._lesson.steps[self._place].guess
        if asked is not None:
            self._on_guessed(round(value, REGISTER[asked.figure].decimals))

    def _on_answered(self, question: int, answer: int) -> None:
        self._answers.setdefault(self._place, {})[question] = answer
        self._show()

    def _on_recording_shown(self) -> None:
        """A recording of the lesson is shown, and can be played; or it is left, and the service is what there is."""
        if self._lesson is None:
            return
        shown = self._playback.shown
        self._stage = self._on_the_service
        if shown is not None and shown.path == self._recording:
            self._stage = InARecording(self._playback, shown, self._session.history, self._lesson)
        self._give_up_run()
        self._show()

    def _give_up_run(self) -> None:
        """A run that loses its stage did not happen."""
        if self._running is not None:
            self._running, self._place = None, self._place - 1

    def _on_life_cycle_changed(self, state: LifeCycle) -> None:
        if self._lesson is not None and state is not LifeCycle.RUNNING:
            self._on_the_service.forget()
            self._give_up_run()
            self._show()

    def _why_not(self, lesson: Lesson) -> str:
        """Why it cannot go on."""
        if lesson.run_after(self._place) is None or self._place + 1 in self._outcomes:
            return ""
        return self._stage.why_not(lesson, lesson.steps[self._place + 1])

    def _last_run_before(self, lesson: Lesson) -> int:
        """The place of the run before the present one, or -1."""
        return next((place for place in range(self._place - 1, -1, -1) if lesson.steps[place].run is not None), -1)

    def _show(self) -> None:
        if self._lesson is not None:
            page = self._page(self._lesson)
            if self.panel.show_page(page):
                self._window.watch_focus(self.panel)
            self._plots.ask(*page.asks or (None,))

    def _page(self, lesson: Lesson) -> Page:
        place, step = self._place, lesson.steps[self._place]
        page = Page(
            lesson=lesson.title,
            steps=tuple(each.title for each in lesson.steps),
            place=place,
            text=step.before,
            remark="" if step.run is None else self._stage.words_of(step, step.run),
            questions=step.questions,
            answers=tuple(sorted(self._answers.get(place, {}).items())),
            next_hint=self._hint(lesson),
            why_not=self._why_not(lesson) if self._running is None else "",
        )
        if self._running is not None:
            return replace(page, waits_s=self._left_s)
        outcome = self._outcomes.get(place if step.run is not None else self._last_run_before(lesson))
        figures, before = (None, None) if outcome is None else (outcome.figures, outcome.before)
        text = page.text + step.after if step.run is None or place in self._outcomes else page.text
        page = replace(page, text=filled(text, figures, before, self._stage.capacity_per_s))
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

    def _hint(self, lesson: Lesson) -> str:
        run = lesson.run_after(self._place)
        return "" if run is None or self._place + 1 in self._outcomes else f"runs {run.for_s:.0f} s"
