"""Connects the service with the window: intents of the user go to the session, its states to the panels."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from gui.control.choices import Choices
from gui.main_window import MainWindow
from gui.session.lifecycle import LifeCycle
from gui.session.session import Session
from service.messages.load import LoadFrame, longest
from service.messages.options import AUTO_MODEL
from service.messages.telemetry import FIRST_REQUEST, TelemetryFrame

PROMPTS_QUIET_MS: Final = 300
AT_REST: Final = "Service log"


class ServiceController(QObject):
    """Hands the user's intents to the session, and shows the life cycle of the service."""

    complained = Signal(str)  # an error that the window shows

    def __init__(self, window: MainWindow, session: Session, choices: Choices, start: Callable[[], None]) -> None:
        super().__init__(window)
        self._window = window
        self._session = session
        self._history = session.history
        self._choices = choices
        self._start = start
        self._is_unused = True  # no request has come to this service
        self._prompts_quiet = QTimer(self, singleShot=True, interval=PROMPTS_QUIET_MS)
        self._connect_intents()
        self._connect_session()
        self.show_life_cycle(session.state)

    def _connect_intents(self) -> None:
        window, session = self._window, self._session
        window.toolbar.step_wanted.connect(self._on_step_wanted)
        window.batching.settings_wanted.connect(session.change_settings)
        window.batching.redeployment.wanted.connect(session.redeploy)
        window.load.load_wanted.connect(lambda: session.run_load(self._choices.load))
        window.load.stop_wanted.connect(session.stop_load)
        window.load.pause_wanted.connect(session.pause_load)
        window.prompts.fire_wanted.connect(self._on_fire_wanted)
        window.prompts.editor.textChanged.connect(self._prompts_quiet.start)
        self._prompts_quiet.timeout.connect(self._on_prompts_settled)
        window.requests.cancel_wanted.connect(session.cancel)
        for used in (window.load.load_wanted, window.prompts.fire_wanted, window.show_me_wanted):
            used.connect(self._on_used)

    def _connect_session(self) -> None:
        session, window = self._session, self._window
        redeployment = window.batching.redeployment
        session.life_cycle_changed.connect(self.show_life_cycle)
        session.start_progressed.connect(self.show_start)
        session.settings_applied.connect(window.batching.show_in_force)
        session.deployment.seen.connect(redeployment.show_deployment)
        for client, panel in ((session.settings, window.batching), (session.deployment, redeployment)):
            client.refused.connect(panel.show_refusal)
            client.failed.connect(panel.settle)
            client.failed.connect(self.complained)
        session.died.connect(self._on_died)
        session.cost_known.connect(self._on_cost_known)
        session.load_changed.connect(self._on_load_changed)
        session.telemetry_came.connect(self._on_telemetry_came)
        session.load_refused.connect(self._on_load_refused)
        session.logged.connect(window.log.append)

    # What the user wants ---------------------------------------------------------------------------------------------

    def _on_step_wanted(self, step: str) -> None:
        if step in ("start", "restart"):
            self._start()
        else:
            self._session.stop()

    def _on_fire_wanted(self, prompts: tuple[str, ...], copies: int) -> None:
        self._session.fire(prompts, copies, longest(self._window.load.max_tokens))

    def _on_used(self) -> None:
        if self._is_unused and self._session.state is LifeCycle.RUNNING:
            self._is_unused = False
            self._show_used()

    def _show_used(self) -> None:
        """Invite to the first requests, until there are some; one button at a time is stressed."""
        window = self._window
        if self._is_unused and not window.is_reserved and not self._history.closed:
            window.notice.show_ready()
            if window.toolbar.step_button.hasFocus():
                window.notice.ready.show_me.setFocus()
        else:
            window.notice.clear()
        window.prompts.set_first(not self._is_unused)

    def _on_prompts_settled(self) -> None:
        load = self._history.load
        if load is not None and load.pattern is not None and self._session.state is LifeCycle.RUNNING:
            self._session.run_load(msgspec.structs.replace(self._choices.load, pattern=load.pattern))

    # What becomes of it ----------------------------------------------------------------------------------------------

    def show_life_cycle(self, state: LifeCycle) -> None:
        """Show the state of the service, also after the window showed something else."""
        window = self._window
        window.show_life_cycle(state, has_data=not self._history.is_empty)
        window.toolbar.set_detail("")
        window.toolbar.set_url(None)
        window.prompts.set_first(True)
        if state is not LifeCycle.RUNNING:
            window.batching.redeployment.forget_service()
        match state:
            case LifeCycle.NOT_STARTED:
                self._show_rest()
            case LifeCycle.STARTING:
                window.set_fixed("", is_ours=True)
                window.set_closed("")
                self._is_unused = True
                self.show_start()
            case LifeCycle.RUNNING:
                self._show_ready()
            case LifeCycle.STOPPING:
                window.notice.clear()
                window.load.show_running(None)
                window.status.set_activity("Stopping the service")
            case LifeCycle.FAILED:  # `_on_died` says how
                window.load.show_running(None)

    def _show_rest(self) -> None:
        self._window.load.show_running(None)
        self._window.status.set_activity(AT_REST)
        if self._history.is_empty:
            self._window.notice.show_empty(*self._choices.invitation)
        else:
            self._window.notice.clear()

    def _show_ready(self) -> None:
        ready, window, toolbar = self._session.ready, self._window, self._window.toolbar
        assert ready is not None
        self._show_used()
        at = self._choices.attachment
        if at is not None:
            toolbar.show_model_in_force(at.url, f"{ready.server or 'It'} serves {ready.model}. {ready.untold}".rstrip())
        else:
            toolbar.set_url(ready.url)
            if ready.workload.generates and self._choices.model == AUTO_MODEL:
                toolbar.show_model_in_force(ready.model, ready.why_model)
        toolbar.show_device_in_force(ready.device, ready.dtype, ready.why_processor)
        window.set_fixed(ready.fixed, is_ours=not ready.server)
        window.set_closed(ready.closed)
        self._choices.note_workload(ready.workload)
        self._choices.note_start(self._session.progress.durations_s)

    def show_start(self) -> None:
        """Show how far a start is; also between its reports, so that its clock does not stand still."""
        if self._session.state is LifeCycle.STARTING:
            progress = self._session.progress
            self._window.notice.show_starting(progress.lines(), progress.lead)

    def _on_died(self, sentence: str) -> None:
        window = self._window
        self._show_failure(sentence)
        window.toolbar.set_detail(f"at {time.strftime('%H:%M:%S')}")
        if self._history.load is not None:
            window.load.set_note(f"Stopped with the service: {self._history.load.totals.sent:,} sent.")
        self._complain(sentence)

    def _on_cost_known(self, sentence: str) -> None:
        self._show_failure(sentence)
        self._window.log.append(sentence)

    def _show_failure(self, sentence: str) -> None:
        self._window.notice.show_failed(sentence)
        self._window.status.set_activity(sentence)

    def _on_load_changed(self, frame: LoadFrame) -> None:
        if self._session.state is LifeCycle.RUNNING:
            self._window.load.show_running(frame.pattern, frame.is_paused)
            self._window.load.show_totals(frame.totals, frame.lag_p99_ms)

    def _on_telemetry_came(self, frame: TelemetryFrame) -> None:
        if any(each.client_id != FIRST_REQUEST for each in frame.requests):  # of whatever client
            self._on_used()

    def _on_load_refused(self, sentence: str) -> None:
        self._window.load.show_refusal(sentence)
        self._complain(sentence)

    def _complain(self, sentence: str) -> None:
        self._window.log.append(sentence)
        self.complained.emit(sentence)
