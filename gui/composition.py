"""The second half of the composition: everything behind the window. Its import loads numpy and pyqtgraph.

::

    panels ── intents ──▶ ServiceController ──▶ Session ──▶ processes, HTTP
    panels ◀── Presenter (1 to 10 Hz) ◀── History ◀── Session ◀── telemetry, load
    plots  ◀── FrameClock (30 Hz) ◀── History
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from PySide6.QtCore import QObject, Signal

from gui.comparing.controller import CompareController
from gui.comparing.goal import GoalView
from gui.comparing.goal_controller import GoalController
from gui.comparing.view import CompareView
from gui.control.choices import Choices
from gui.control.clocks import FrameClock, FrameMeter
from gui.control.diagnostics import Diagnostics
from gui.control.exporter import LONGEST_END_MS, Exporter
from gui.control.foresight import Foresight
from gui.control.inspector import RequestInspector
from gui.control.lessons import Lessons
from gui.control.load_defaults import LoadDefaults
from gui.control.preferences import FEWEST_S, MOST_S
from gui.control.presenter import FINDINGS_EVERY_S, NUMBERS_EVERY_S, Presenter
from gui.control.service_controller import ServiceController
from gui.control.show_me import ShowMe
from gui.main_window import MainWindow
from gui.panels.measure_chooser import MeasureChooser
from gui.panels.views import COMPARE, DISTRIBUTIONS, GOAL
from gui.plots.distributions import DistributionsView
from gui.plots.plot_stack import PlotStack
from gui.recordings.recorder import Recorder
from gui.recordings.viewer import Recordings
from gui.session.processes.load import LoadProcess
from gui.session.processes.service import ServiceProcess, ServiceStart
from gui.session.session import Session
from service.analysis.compare.run_plan import SweepPlan
from service.analysis.lesson.file import SUFFIX as LESSON_SUFFIX
from service.analysis.observed.history import History
from service.analysis.observed.scores import NO_SCORES
from service.analysis.recording.format import PredictionsScored, RecordedEvent
from service.messages.clock import monotonic_clock_id
from service.messages.objectives import Objectives

COMPARISON: Final = "the comparison, which needs the service to itself"
DRAWING_S: Final = 0.003  # of a frame, in which plots are begun: some now and some in the next


class Composition(QObject):
    """Session, presenter, plots and controllers, made once, after the window's first frame."""

    complained = Signal(str)  # an error that the window shows
    came_to_rest = Signal()  # no child process runs, and no export is under way

    def __init__(self, window: MainWindow, choices: Choices, service_start: ServiceStart) -> None:
        super().__init__(window)
        self._window = window
        self._choices = choices
        self._service_start = service_start
        self.history = History(monotonic_clock_id())
        self.session = Session(self.history, ServiceProcess(parent=self), LoadProcess(parent=self), self)
        self.meter = FrameMeter()
        self.plots = PlotStack(self.history)
        self.distributions = DistributionsView(self.history, self.plots)
        window.views.put(DISTRIBUTIONS, self.distributions)
        self.distributions.described.connect(partial(window.views.describe, DISTRIBUTIONS))
        self.service_controller = ServiceController(window, self.session, choices, self.start_service)
        self.presenter = Presenter(window, self.plots, self.session, self.meter)
        self.session.life_cycle_changed.connect(lambda _state: self.presenter.show_numbers())
        self.presenter.numbers_shown.connect(self.service_controller.show_start)
        self.presenter.round_robin.add(self.distributions.count, NUMBERS_EVERY_S)
        self.inspector = RequestInspector(window, self.plots, self.history)
        self.presenter.numbers_shown.connect(self.inspector.refresh)
        self.foresight = Foresight(window, self.plots, self.session)
        self.presenter.numbers_shown.connect(self.foresight.check)
        self.presenter.round_robin.add(self.foresight.follow, FINDINGS_EVERY_S)
        self.load_defaults = LoadDefaults(window, self.plots, self.session)
        self.presenter.round_robin.add(self.load_defaults.follow, FINDINGS_EVERY_S)
        self.show_me = ShowMe(window, self.session, choices, self.load_defaults, self.presenter)
        self._add_comparing()
        self._add_goal()
        self.exporter = Exporter(window, self.history, self.plots)
        self.diagnostics = Diagnostics(window, self.session)
        self._add_recordings()
        self._add_lessons()
        self.frame_clock = FrameClock(self._paint, self.meter, self)
        self.frame_clock.painted.connect(self.presenter.round_robin.take)
        self._is_empty = True
        self._set_empty(True)
        self.plots.set_window_s(choices.window_s)
        toolbar, plots = self._window.toolbar, self.plots
        toolbar.window_chosen.connect(self.look_at)
        toolbar.freeze_toggled.connect(self.set_frozen)
        toolbar.export_wanted.connect(self.exporter.ask)
        self._add_choosers()
        plots.window_changed.connect(self._on_plots_window_changed)
        plots.live_requested.connect(self._on_live_requested)
        plots.scrolled_back.connect(lambda _is_back: self._offer_way_back())
        self.presenter.numbers_shown.connect(self._offer_way_back)
        self._window.views.back_wanted.connect(self._go_back_to_now)
        self._set_objectives(window.load.objectives.objectives)
        window.load.objectives.changed.connect(self._set_objectives)
        self._connect_complaints()
        window.toolbar.model_chosen.connect(self._show_unit)
        self._show_unit()

    def _add_choosers(self) -> None:
        """Let the user choose in the headers which time of the requests is shown."""
        self.choosers = MeasureChooser(), MeasureChooser()
        for chooser, plot in zip(self.choosers, (self.plots.latency, self.distributions.histogram), strict=True):
            plot.header.put(chooser)
            chooser.chosen.connect(self.show_measure)
            self.presenter.numbers_shown.connect(lambda chooser=chooser: chooser.offer(self.history.unit))
        self.show_measure(self._choices.measure)

    def _add_comparing(self) -> None:
        view = CompareView(self.history)
        self.compare = CompareController(view, self.session, lambda: self._choices.load)
        self._window.views.put(COMPARE, view)
        self.presenter.numbers_shown.connect(self.compare.refresh)
        self.compare.busy_changed.connect(self._on_comparing)

    def _on_comparing(self, is_busy: bool) -> None:
        """Let a comparison have the service to itself: whatever else moves settings and load ends."""
        if is_busy:
            self.show_me.end()
            self.lessons.end()
        self._window.reserve(COMPARISON if is_busy else "")

    def _add_goal(self) -> None:
        view = GoalView(self.history)
        shown, prompts = (lambda: self.presenter.shown), (lambda: self._choices.load.prompts)
        self.goal = GoalController(view, self.session, self.plots, shown, prompts)
        self._window.views.put(GOAL, view)
        self.presenter.numbers_shown.connect(self.goal.refresh)
        self._window.reserved.connect(self.goal.set_reserved)
        self.goal.config_wanted.connect(partial(self.compare.ask_where, "serve", "yaml"))
        self.goal.measuring_wanted.connect(self._measure)
        self.goal.goal_wanted.connect(self._window.load.objectives.set_objectives)
        self.goal.goal_wanted.connect(self._set_objectives)
        self.goal.held.connect(self.presenter.show_held)
        self._window.verdict.hold_unwanted.connect(self.goal.let_go)
        self._window.verdict.try_wanted.connect(self.session.try_now)
        self.goal.moved.connect(self._window.batching.show_moved)
        self.goal.described.connect(partial(self._window.views.describe, GOAL))

    def _measure(self, plan: SweepPlan) -> None:
        self._window.views.show_view(COMPARE)
        self.compare.measure(plan)

    def _add_lessons(self) -> None:
        self.lessons = Lessons(self._window, self.plots, self.session, self.presenter, self.recordings)
        self.lessons.failed.connect(self.complain)
        self.lessons.opened.connect(self.show_me.end)

    def open(self, path: Path) -> None:
        """Begin a lesson, or show a recording."""
        (self.lessons if path.suffix == LESSON_SUFFIX else self.recordings).open(path)

    def _add_recordings(self) -> None:
        self.recordings = Recordings(self._window, self.plots, self.session, lambda: self._choices.window_s)
        self.recorder = Recorder(self._window, self.session, self._known)
        self.foresight.scored.connect(lambda scores: self.session.heard.emit(PredictionsScored(scores=scores)))
        for show in (self.recordings.show_place, self.recorder.show_state):
            self.presenter.numbers_shown.connect(show)
        self.recordings.changed.connect(self._on_recording_shown)

    def _known(self) -> list[RecordedEvent]:
        """What is known of predictions, for a recording that begins now or earlier."""
        return [PredictionsScored(scores=scores) for scores in self.foresight.known if scores is not NO_SCORES]

    def _on_recording_shown(self) -> None:
        self.inspector.close()
        self.set_frozen(False)
        self.plots.set_frozen(self.recordings.is_viewing)
        if not self.recordings.is_viewing:
            self.service_controller.show_life_cycle(self.session.state)
            self.foresight.describe()
        self.presenter.show_numbers()

    def _connect_complaints(self) -> None:
        self.service_controller.complained.connect(self.complained)
        self.recordings.failed.connect(self.complain)
        self.goal.failed.connect(self.complain)
        for writer in (self.exporter, self.compare, self.recorder):
            writer.failed.connect(self.complain)
            writer.written.connect(self._on_written)
        for each in (self.session, self.exporter):
            each.came_to_rest.connect(self._report_rest)

    @property
    def is_at_rest(self) -> bool:
        """Whether no child process runs, and no export is under way."""
        return self.session.is_at_rest and not self.exporter.under_way

    def leave(self) -> None:
        """End what runs and complete exports; `came_to_rest` follows, unless nothing runs."""
        names = ", ".join(path.name for path in self.exporter.under_way)
        if names:
            self._window.status.say(
                f"Closes when {names} is written; close again to give that up", LONGEST_END_MS / 1e3
            )
        self.session.stop()
        self.exporter.finish()

    def leave_at_once(self) -> None:
        """Kill the child processes and give up exports."""
        self.session.kill()
        self.exporter.give_up()

    def finish(self) -> None:
        """End what would go on without a window: the clock, recordings, and the processes that compute."""
        self.frame_clock.stop()
        self.recordings.finish()
        self.recorder.file.finish()
        self.compare.finish()
        self.goal.finish()
        self.foresight.predictor.finish()
        self.lessons.predictor.finish()

    def start_service(self) -> None:
        self.recordings.leave()
        start = self._choices.attachment or replace(self._service_start, options=self._choices.service_options)
        self.session.start(start, self._choices.usual_stages_s)

    def _show_unit(self) -> None:
        """Count in the unit of the chosen workload until a service reports its own."""
        if self.history.is_empty and self._choices.unit is not None:
            self.history.unit = self._choices.unit

    def _set_objectives(self, objectives: Objectives) -> None:
        """Judge what was observed, and what comes, by these."""
        self.history.objectives = objectives
        self.presenter.show_numbers()

    def look_at(self, seconds: float) -> None:
        """Let the plots show the last `seconds`."""
        self._choices.window_s = seconds
        self._window.toolbar.set_window_s(seconds)
        self.plots.set_window_s(seconds)

    def show_measure(self, name: str) -> None:
        """Show this time of the requests wherever their latency is plotted."""
        self._choices.measure = name
        for chooser in self.choosers:
            chooser.choose(name)
        self.plots.latency.show_measure(name)
        self.distributions.show_measure(name)
        self.plots.refresh()

    def set_frozen(self, frozen: bool) -> None:
        self._window.toolbar.set_frozen(frozen)
        self.presenter.set_frozen(frozen)

    def complain(self, sentence: str) -> None:
        """Show an error that belongs to no panel."""
        self._window.status.say(sentence)
        self._window.log.append(sentence)
        self.complained.emit(sentence)

    def _report_rest(self) -> None:
        if self.is_at_rest:
            self.came_to_rest.emit()

    def _on_written(self, path: str) -> None:
        # A method, not a lambda: the recorder's signal comes from another thread, and only a QObject's slot is called
        # in its own.
        self._window.status.say(f"Written to {path}")

    def _on_live_requested(self) -> None:
        if not self.recordings.is_viewing:
            self.set_frozen(False)

    def _offer_way_back(self) -> None:
        self._window.views.offer_back(not self.plots.is_live and not self.recordings.is_viewing)

    def _go_back_to_now(self) -> None:
        self.set_frozen(False)
        self.plots.back_to_live()
        self.presenter.show_numbers()

    def _on_plots_window_changed(self, seconds: float) -> None:
        if not self.recordings.is_viewing:
            self._choices.window_s = min(max(seconds, FEWEST_S), MOST_S)
        self._window.toolbar.set_window_s(seconds)

    def _paint(self) -> None:
        if self._is_empty != self.history.is_empty:
            self._is_empty = not self._is_empty
            self._set_empty(self._is_empty)
        self.plots.refresh(DRAWING_S)
        self.distributions.refresh()
        self.compare.paint()
        self.goal.paint()
        self.recordings.follow()

    def _set_empty(self, is_empty: bool) -> None:
        self.plots.set_empty(is_empty)
        self.distributions.set_empty(is_empty)
        self.goal.set_empty(is_empty)
