"""Connects the view Compare with the service: pins, measures, applies and saves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from PySide6.QtCore import QObject, QThreadPool, Signal

from gui.comparing.setup import NOTHING_PINNED, RunControls
from gui.comparing.side_by_side import MOST, Recorded
from gui.comparing.view import SWEEP, CompareView
from gui.session.lifecycle import LifeCycle
from gui.session.processes.analysis import CompareProcess
from gui.session.session import Session
from gui.widgets.dialogs import RECORDINGS, ask_for_files, ask_where_to_save
from service.analysis.compare.html import comparison_page, sweep_page
from service.analysis.compare.progress import Compared, CompareEvent, Duration, Progress, Refused, SweepTask, Swept
from service.analysis.compare.run import recorded_run
from service.analysis.compare.run_plan import ComparePlan, PlanError, Side, SweepPlan, grid
from service.analysis.compare.serve_config import measured_config
from service.analysis.compare.sweep import Sweep
from service.analysis.observed.statistics import figures
from service.analysis.recording.format import RecordingError
from service.analysis.recording.reader import NotWantedError, open_recording
from service.messages.files import NotWrittenError, write_whole
from service.messages.load import RunLoad
from service.messages.objectives import Objectives
from service.messages.settings import SettingError, Settings
from service.messages.workload import TEXT

NEEDS_SERVICE: Final = "Waits for the service."
BUSY: Final = "A comparison runs: it needs the service to itself."
LONGEST_READ_MS: Final = 2_000
FILES: Final = {"html": "Web page (*.html)", "yaml": "Ray Serve config (*.yaml)"}


class CompareController(QObject):
    """Runs one comparison or sweep at a time, and keeps the view up to date."""

    busy_changed = Signal(bool)  # whether a measurement runs; meanwhile the service takes no other load
    failed = Signal(str)  # a sentence with the cause
    written = Signal(str)  # the path of a saved file
    _read = Signal(object)  # the recordings that were chosen, in a thread

    def __init__(self, view: CompareView, session: Session, load: Callable[[], RunLoad]) -> None:
        """`load` returns the load that is chosen in the window."""
        super().__init__(view)
        self._view = view
        self._session = session
        self._history = session.history
        self._load = load
        self._process = CompareProcess(self)
        self._pool = QThreadPool(self)
        self._pinned: Side | None = None
        self._shown: tuple[Side | None, Side | None, Objectives] | None = None
        self._shown_answer_s = 0
        self._sweep: Sweep | None = None
        self._running: RunControls | None = None
        self._complaint = ""
        self._reads: tuple[Path, ...] = ()
        self._connect_view()
        self._process.event_received.connect(self._on_event)
        self._process.ended.connect(self._on_ended)
        session.life_cycle_changed.connect(self._on_life_cycle_changed)
        self._show_what_can_be_done()

    @property
    def is_busy(self) -> bool:
        return self._process.is_running

    def refresh(self) -> None:
        """Show the settings in force and the load, where they have changed."""
        if not self._view.isVisible() or self.is_busy:
            return
        shown = self._pinned, self._present, self._history.objectives
        if shown != self._shown:
            self._shown = shown
            self._view.setup.show_sides(self._pinned, self._present)
            self._view.sweep_setup.show_load(self._load(), self._history.objectives)
            if self._present is not None:
                generates = self._history.unit == TEXT.unit
                self._view.side_setup.show_present(self._present.settings, self._load(), generates=generates)
            self._show_points()
            self._show_what_can_be_done()
        if round(self._answer_s) != self._shown_answer_s:
            self._show_durations()

    def paint(self) -> None:
        """Follow what stands side by side; to be called at the pace of the curves."""
        self._view.side_results.follow(time.monotonic())

    def finish(self) -> None:
        """Kill the measuring process, and read no more: the window closes."""
        self._process.kill()
        self._reads = ()
        self._pool.waitForDone(LONGEST_READ_MS)

    # What the user wants ---------------------------------------------------------------------------------------------

    def _connect_view(self) -> None:
        view = self._view
        view.setup.pin.clicked.connect(self._pin)
        view.setup.batching.clicked.connect(self._measure_batching)
        view.setup.controls.run_wanted.connect(self._compare)
        view.sweep_setup.controls.run_wanted.connect(self._sweep_anew)
        view.sweep_setup.resume.clicked.connect(self._resume)
        view.sweep_results.apply.clicked.connect(self._apply)
        view.side_setup.controls.run_wanted.connect(self._run_side_by_side)
        view.side_setup.recordings.clicked.connect(
            lambda: ask_for_files(view, "Recordings side by side", RECORDINGS, self.show_recordings)
        )
        self._read.connect(view.side_results.show_recordings)
        view.side_results.apply.clicked.connect(lambda: self._put_in_force(view.side_results.best))
        view.side_results.report.clicked.connect(lambda: self._save_page(view.side_results.sweep))
        for setup in (view.setup, view.sweep_setup, view.side_setup):
            setup.controls.stop_wanted.connect(self._process.stop)
            setup.controls.backlog_unwanted.connect(lambda: self._session.cancel(None))
            setup.changed.connect(self._show_points)
        view.results.report.clicked.connect(self._save_comparison)
        view.results.config.clicked.connect(self._save_b)
        view.sweep_results.report.clicked.connect(self._save_sweep)
        view.sweep_results.config.clicked.connect(self._save_point)

    def _pin(self) -> None:
        self._pinned = self._present
        self.refresh()

    def _compare(self) -> None:
        b, setup = self._present, self._view.setup
        if self._pinned is None or b is None:
            return
        plan = setup.plan(self._pinned, b, self._history.objectives, _new_seed())
        self._view.results.show_comparison(None)
        self._start(plan, setup.controls)

    def _measure_batching(self) -> None:
        """Compare batches of one with the present settings, shown as A and B meanwhile."""
        present, setup = self._present, self._view.setup
        if present is None:
            return
        try:
            plan = setup.batching_plan(present, _new_seed())
        except PlanError as error:
            setup.controls.set_note(str(error))
            return
        self._view.results.show_comparison(None)
        self._start(plan, setup.controls)
        setup.show_sides(plan.a, plan.b)

    def _sweep_anew(self) -> None:
        points = self._points()
        if points is None:
            return
        setup = self._view.sweep_setup
        self.measure(setup.plan(points, self._load(), self._history.objectives, _new_seed()))

    def measure(self, plan: SweepPlan) -> None:
        """Carry out a sweep whose settings were found elsewhere."""
        if self._session.state is LifeCycle.RUNNING and not self.is_busy:
            self._view.show_kind(SWEEP)
            self._sweep = None
            self._view.sweep_results.show_sweep(None)
            self._start(SweepTask(plan=plan), self._view.sweep_setup.controls)

    def _run_side_by_side(self) -> None:
        setup, results = self._view.side_setup, self._view.side_results
        plan = setup.plan(self._load(), self._history.objectives, _new_seed())
        results.begin(plan)
        self._start(SweepTask(plan=plan), setup.controls)

    def show_recordings(self, paths: Sequence[Path]) -> None:
        """Show these recordings side by side, once they are read; `failed` says which cannot be."""
        self._reads = tuple(paths[:MOST])
        self._pool.start(partial(self._read_recordings, self._reads))

    def _read_recordings(self, paths: tuple[Path, ...]) -> None:
        recorded = []
        for path in paths:
            try:
                recording = open_recording(path, lambda: self._reads is paths)
            except NotWantedError:
                return
            except RecordingError as error:
                self.failed.emit(str(error))
                return
            run = recorded_run(recording.history)
            if run is None:
                self.failed.emit(f"{path} holds no answered request, so there is nothing to show beside others.")
                return
            recorded.append(Recorded(path.stem, recording.history, run))
        self._read.emit(recorded)

    def _resume(self) -> None:
        if self._sweep is not None:
            self._start(SweepTask(plan=self._sweep.plan, before=self._sweep), self._view.sweep_setup.controls)

    def _start(self, task: ComparePlan | SweepTask, controls: RunControls) -> None:
        assert self._session.at is not None
        if self._history.load is not None and self._history.load.pattern is not None:
            self._session.stop_load()
        self._running = controls
        controls.show_running(True)
        self.busy_changed.emit(True)  # first, so that whatever ends by it disturbs no measurement
        self._process.start(self._session.at, task)
        self._show_what_can_be_done()

    def _apply(self) -> None:
        self._put_in_force(self._view.sweep_results.chosen_settings)

    def _put_in_force(self, settings: Settings | None) -> None:
        if settings is not None:
            self._session.change_settings(msgspec.structs.asdict(settings))

    # What is saved ---------------------------------------------------------------------------------------------------

    def write(self, path: Path, text: str) -> None:
        """Write a report or a config file; `written` or `failed` follows."""
        try:
            write_whole(path, text.encode())
        except NotWrittenError as error:
            self.failed.emit(str(error))
        else:
            self.written.emit(str(path))

    def _save_comparison(self) -> None:
        comparison = self._view.results.comparison
        if comparison is not None:
            self.ask_where("comparison", "html", comparison_page(comparison))

    def _save_b(self) -> None:
        comparison = self._view.results.comparison
        if comparison is not None:
            config = measured_config(comparison.service, comparison.plan.b.settings, comparison.verdict)
            self.ask_where("serve", "yaml", config)

    def _save_sweep(self) -> None:
        self._save_page(self._sweep)

    def _save_page(self, sweep: Sweep | None) -> None:
        if sweep is not None:
            self.ask_where("sweep", "html", sweep_page(sweep))

    def _save_point(self) -> None:
        results = self._view.sweep_results
        if self._sweep is not None and results.chosen_settings is not None:
            config = measured_config(self._sweep.service, results.chosen_settings, results.point)
            self.ask_where("serve", "yaml", config)

    def ask_where(self, stem: str, suffix: str, text: str) -> None:
        """Let the user choose where this text is saved."""
        write = partial(self.write, text=text)
        ask_where_to_save(self._view, "Save", f"batchscope-{stem}", suffix, FILES[suffix], write)

    # What is heard ---------------------------------------------------------------------------------------------------

    def _on_event(self, event: CompareEvent) -> None:
        match event:
            case Progress() if self._running is not None:
                load = self._history.load
                self._running.show_progress(event, load is not None and load.totals.outstanding > 0)
                if self._running is self._view.side_setup.controls:
                    self._view.side_results.show_progress(event)
            case Compared(comparison=comparison):
                self._view.results.show_comparison(comparison)
            case Swept(sweep=sweep) if self._running is self._view.side_setup.controls:
                self._view.side_results.show_sweep(sweep)
            case Swept(sweep=sweep):
                self._sweep = sweep
                self._view.sweep_results.show_sweep(sweep)
            case Refused(reason=reason):
                self._complaint = reason

    def _on_ended(self, sentence: str) -> None:
        complaint = sentence or self._complaint
        if self._running is not None:
            self._running.show_running(False)
            self._running.set_note(complaint)
        self._running, self._complaint = None, ""
        if complaint:
            self.failed.emit(complaint)
        self.busy_changed.emit(False)
        self._show_what_can_be_done()

    def _on_life_cycle_changed(self, state: LifeCycle) -> None:
        if state is not LifeCycle.RUNNING and self.is_busy:
            self._process.stop()
        self._show_what_can_be_done()

    # What can be done ------------------------------------------------------------------------------------------------

    @property
    def _present(self) -> Side | None:
        in_force = self._history.in_force
        return Side(settings=in_force.settings, load=self._load()) if in_force is not None else None

    def _points(self) -> tuple[Settings, ...] | None:
        """The settings that the sweep's values make, or ``None`` after the view has shown which rule they break."""
        setup = self._view.sweep_setup
        try:
            in_force = self._history.in_force
            points = grid(in_force.settings if in_force is not None else Settings(), setup.axes())
        except SettingError as error:
            setup.show_refusal(error.field, error.rule)
            return None
        except PlanError as error:
            setup.show_refusal("", str(error))
            return None
        setup.show_refusal("", "")
        return points

    def _show_durations(self) -> None:
        """How long either takes, where the last answers of a run take as long as answers do now."""
        view, objectives, present = self._view, self._history.objectives, self._present
        answer_s = self._shown_answer_s = round(self._answer_s)
        if present is not None:
            compared = view.setup.plan(self._pinned or present, present, objectives, seed=0)
            view.setup.controls.show_duration(Duration.of(compared, answer_s=answer_s))
        points = self._points()
        swept = None if points is None else view.sweep_setup.plan(points, self._load(), objectives, seed=0)
        view.sweep_setup.controls.show_duration(None if swept is None else Duration.of(swept, answer_s=answer_s))
        side = view.side_setup.plan(self._load(), objectives, seed=0)
        view.side_setup.controls.show_duration(Duration.of(side, answer_s=answer_s))

    @property
    def _answer_s(self) -> float:
        return figures(self._history).p95_s or 0.0

    def _show_points(self) -> None:
        self._show_durations()
        self._show_what_can_be_done()

    def _show_what_can_be_done(self) -> None:
        runs = self._session.state is LifeCycle.RUNNING
        never = self._history.fixed or self._history.closed if runs else ""
        is_free = runs and not self.is_busy and not never
        why = "" if is_free else never or (BUSY if runs else NEEDS_SERVICE)
        view = self._view
        view.setup.pin.setEnabled(is_free)
        view.setup.batching.setEnabled(is_free)
        is_pinned = self._pinned is not None
        view.setup.controls.set_can_run(is_free and is_pinned, why or ("" if is_pinned else NOTHING_PINNED))
        view.sweep_setup.controls.set_can_run(is_free, why)
        view.sweep_results.set_can_apply(is_free)
        view.side_setup.controls.set_can_run(is_free, why)
        view.side_results.set_can_apply(is_free)
        is_open = self._sweep is not None and not self._sweep.is_finished and not self.is_busy
        view.sweep_setup.resume.setVisible(is_open)
        view.sweep_setup.resume.setEnabled(is_free)


def _new_seed() -> int:
    """A seed from the clock; round n adds n to it."""
    return time.time_ns() % 2**31
