"""Connects the view Goal with the service: the search, what is done with its result, and Hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec
from PySide6.QtCore import QObject, Signal

from gui.comparing.controller import NEEDS_SERVICE
from gui.comparing.goal import GoalView
from gui.comparing.hold import HANDS_OFF
from gui.plots.plot_stack import PlotStack
from gui.session.lifecycle import LifeCycle
from gui.session.processes.analysis import HoldProcess, SearchProcess
from gui.session.session import Session
from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.progress import Refused
from service.analysis.compare.serve_config import measured_config
from service.analysis.goal.control import HoldEvent, HoldTask, Moved, Searched, SearchEvent, SearchTask
from service.analysis.goal.hold import MOVED_BY, Said
from service.analysis.goal.planner import ReplicaPlan
from service.analysis.goal.search import Goal, GoalSearch, SearchProgress
from service.analysis.observed.register import Figures
from service.analysis.predict.observation import Observation
from service.analysis.predict.speed import Withheld
from service.messages.settings import SettingsChange
from service.messages.telemetry import TelemetryFrame
from service.messages.text import counted, format_time
from service.messages.workload import TEXT

NEEDS_GOAL: Final = "Say what must hold first: a time above 0."
NEEDS_REPLICA: Final = "No replica runs now: search again once Ray Serve has started one."
NEEDS_REQUESTS: Final = "Too few requests were seen to simulate from: run a load for some seconds first."
HOW: Final = "Simulated by what was observed"
GOAL_CHANGED: Final = "The goal has changed, so Hold has let go: switch it on again for the new one"


class GoalController(QObject):
    """Runs one search at a time, and Hold beside it."""

    goal_wanted = Signal(object)  # the `Objectives`, which are those under Load
    measuring_wanted = Signal(object)  # a `SweepPlan` that measures the best
    described = Signal(str)  # the search in words
    held = Signal(bool)  # whether Hold is on
    moved = Signal(int)  # the version of settings that Hold has put in force, this window's or another
    config_wanted = Signal(str)  # a config file's text, to be saved
    failed = Signal(str)  # a sentence with the cause

    def __init__(
        self,
        view: GoalView,
        session: Session,
        plots: PlotStack,
        shown: Callable[[], Figures],
        prompts: Callable[[], tuple[str, ...]],
    ) -> None:
        """`shown` are the figures that stand in the row, `prompts` those that are chosen in the window."""
        super().__init__(view)
        self._view = view
        self._session = session
        self._history = session.history
        self._plots = plots
        self._shown = shown
        self._prompts = prompts
        self._search, self._hold = SearchProcess(self), HoldProcess(self)
        self._found: GoalSearch | None = None
        self._begun_s = 0.0  # the search
        self._service: ServiceFacts | None = None  # that was searched for
        self._holder = ""  # what has the service to itself
        self._is_cancelled = False
        self._last_words, self._held = HANDS_OFF, session.history.objectives
        view.row.goal_wanted.connect(self.goal_wanted)
        view.row.search_wanted.connect(self._search_settings)
        view.row.stop_wanted.connect(self._cancel)
        view.results.apply.clicked.connect(self._apply)
        view.results.config.clicked.connect(lambda: self.config_wanted.emit(self.config))
        view.results.measure.clicked.connect(self._measure)
        view.hold.wanted.connect(lambda is_on: self._begin_hold() if is_on else self.let_go())
        view.hold.undo_wanted.connect(self._undo)
        self._search.event_received.connect(self._on_searched)
        self._search.ended.connect(self._on_search_ended)
        self._hold.event_received.connect(self._on_held)
        self._hold.ended.connect(self._on_hold_ended)
        for process in (self._search, self._hold):
            process.logged.connect(session.logged)
        session.telemetry_came.connect(self._on_telemetry_came)
        session.life_cycle_changed.connect(self._on_life_cycle_changed)
        self.refresh()

    @property
    def is_holding(self) -> bool:
        return self._hold.is_running

    def refresh(self) -> None:
        """Bring what is shown of the service, and what can be done, up to date; let go of a goal that has changed."""
        if self.is_holding and self._history.objectives != self._held:
            self._last_words = GOAL_CHANGED
            self.let_go()
        if not self._view.isVisible():
            return
        view, history = self._view, self._history
        view.row.show_objectives(history.objectives, generates=history.unit == TEXT.unit)
        if view.hold.latency.measure.name != view.row.measured:
            view.hold.latency.show_measure(view.row.measured)
        view.hold.latency.show_figures(self._shown())
        view.hold.show_ages()
        self._show_what_can_be_done()

    def paint(self) -> None:
        """Follow the time; to be called at the pace of the curves."""
        if self._view.isVisible():
            self._view.hold.latency.follow(self._plots.moment(), self._plots.marks())

    def set_empty(self, is_empty: bool) -> None:
        self._view.hold.latency.set_empty(is_empty)

    def set_reserved(self, holder: str) -> None:
        """While something has the service to itself, nothing here moves its settings."""
        self._holder = holder
        if holder:
            self.let_go()
        self._show_what_can_be_done()

    def let_go(self) -> None:
        """Turn Hold off; what it has put in force stays."""
        self._hold.stop()

    def finish(self) -> None:
        """Kill both processes: the window closes."""
        self._search.finish()
        self._hold.finish()

    # What the user wants ---------------------------------------------------------------------------------------------

    def _search_settings(self) -> None:
        row, in_force = self._view.row, self._history.in_force
        observation, withheld = Observation.of_history(self._history), Withheld.at(self._history)
        if observation is None or withheld is not None or in_force is None:
            self._view.results.show_progress(NEEDS_REQUESTS if withheld is None else withheld.sentence)
            return
        if not self._history.replicas:
            self._view.results.show_progress(NEEDS_REPLICA)
            return
        row.set_rate(observation.load.rate_per_s)
        goal = Goal(objectives=self._history.objectives, replicas_up_to=int(row.replicas.number))
        task = SearchTask(
            observation=observation,
            goal=goal,
            base=in_force.settings,
            pattern=row.pattern,
            prompts=self._prompts(),
        )
        self._service = self._facts()
        self._found = None
        self._view.results.show_found(None, None)
        row.show_searching(True)
        self._begun_s = time.monotonic()
        self._search.start(task)

    def _cancel(self) -> None:
        self._is_cancelled = True
        self._search.kill()

    def _apply(self) -> None:
        chosen = self._view.results.chosen_candidate
        if chosen is None:
            return
        self._session.change_settings(msgspec.structs.asdict(chosen.settings))
        if chosen.replicas != len(self._history.replicas):
            self._session.redeploy({"replicas": chosen.replicas})

    def _measure(self) -> None:
        plan = self._view.results.plan
        if plan is not None:
            self.measuring_wanted.emit(plan)

    def _begin_hold(self) -> None:
        at = self._session.at
        if at is not None and not self._hold.is_running:
            self._last_words, self._held = HANDS_OFF, self._history.objectives
            self._hold.start(at, HoldTask(objectives=self._held))
        self._show_hold()

    def _undo(self, change: SettingsChange) -> None:
        self.let_go()
        self._session.change_settings(msgspec.structs.asdict(change.previous))

    @property
    def config(self) -> str:
        """A config file for the chosen settings; empty where there are none."""
        chosen, found, service = self._view.results.chosen_candidate, self._found, self._service
        if chosen is None or found is None or service is None:
            return ""
        service = msgspec.structs.replace(service, replicas=chosen.replicas)
        return measured_config(service, chosen.settings, found.described(chosen), HOW)

    # What is heard ---------------------------------------------------------------------------------------------------

    def _on_searched(self, event: SearchEvent) -> None:
        results = self._view.results
        match event:
            case SearchProgress(done=done, total=total, runs=runs, is_first=is_first):
                doing = "Trying all settings" if is_first else "Deciding the close ones"
                results.show_progress(f"{doing}: {done} of {total}, {counted(runs, 'run')} simulated.")
            case Searched(search=found, plan=plan, runs=runs):
                self._found = found
                results.show_found(found, plan)
                settings = counted(len(found.candidates), "setting")
                took = format_time(time.monotonic() - self._begun_s)
                self.described.emit(f"{settings} simulated in {took}, {counted(runs, 'run')}")
            case ReplicaPlan():
                results.show_plan(event)
            case Refused(reason=reason):
                results.show_progress(reason)
        self._show_what_can_be_done()

    def _on_search_ended(self, sentence: str) -> None:
        self._view.row.show_searching(False)
        if sentence:
            self._view.results.show_progress(sentence)
            self.failed.emit(sentence)
        elif self._is_cancelled:
            self._view.results.show_found(None, None)
        self._is_cancelled = False
        self._show_what_can_be_done()

    def _on_held(self, event: HoldEvent) -> None:
        match event:
            case Moved():
                self._last_words = HANDS_OFF
            case Said(sentence=words) | Refused(reason=words):
                self._last_words = words
        self._show_hold()

    def _on_telemetry_came(self, frame: TelemetryFrame) -> None:
        for change in frame.changes:
            if change.reason.startswith(MOVED_BY):
                self._view.hold.add_move(change)
                self.moved.emit(change.version)

    def _on_hold_ended(self, sentence: str) -> None:
        if sentence:
            self._last_words = sentence
            self.failed.emit(sentence)
        self._show_hold()
        self._show_what_can_be_done()

    def _on_life_cycle_changed(self, state: LifeCycle) -> None:
        if state is not LifeCycle.RUNNING:
            self.let_go()
        self._show_what_can_be_done()

    # What can be done ------------------------------------------------------------------------------------------------

    def _facts(self) -> ServiceFacts:
        ready = self._session.ready
        first = self._history.replicas[0]
        return ServiceFacts(
            url="" if ready is None else ready.url,
            model=first.model,
            device=first.device,
            dtype=first.dtype,
            replicas=len(self._history.replicas),
        )

    def _show_hold(self) -> None:
        self.held.emit(self.is_holding)
        self._view.hold.show_on(self.is_holding, self._last_words)
        self._view.hold.show_ages()

    def _show_what_can_be_done(self) -> None:
        runs = self._session.state is LifeCycle.RUNNING
        fixed = self._history.fixed if runs else ""
        is_free = runs and not self._holder and not fixed
        why = "" if is_free else fixed or (f"Waits for {self._holder}." if runs else NEEDS_SERVICE)
        why_no_goal = why or ("" if self._history.objectives else NEEDS_GOAL)
        self._view.row.set_can_search(why_no_goal)
        self._view.results.set_can(apply=is_free, measure=is_free and not self._history.closed)
        self._view.hold.set_can_hold(why_no_goal)
        self._view.hold.set_can_undo(is_free)
