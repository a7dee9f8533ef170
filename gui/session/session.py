"""One service and the load on it, from start to end: the processes, the clients and the life cycle. No widgets.

The window calls `start`, `fire`, `change_settings`, …; signals report the results.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace
from PySide6.QtCore import QObject, Signal

from gui.session.clients import network
from gui.session.clients.network import Address
from gui.session.clients.settings import DeploymentClient, SettingsClient
from gui.session.clients.telemetry import TelemetryClient
from gui.session.lifecycle import Event, LifeCycle, after
from gui.session.processes.load import LoadProcess
from gui.session.processes.service import ServiceProcess, ServiceStart
from gui.session.start_progress import StartProgress
from service.analysis.observed.history import History
from service.analysis.recording.format import Bookmarked, ClockJumped, ServiceEnded, ServiceStarted
from service.messages.life import ProcessLost, Ready, ServiceState, StageProgress, Starting, Stopping
from service.messages.load import Cancel, Fire, LoadFrame, PauseLoad, ResumeLoad, RunLoad, StopLoad
from service.messages.options import Attachment, read_token
from service.messages.telemetry import FINAL_STATES, TelemetryFrame


class Session(QObject):
    """Drives the service and the load, and reports by signals what they do.

    Attributes:
        frames_seen, requests_seen: frames of telemetry that came in, and requests that ended in them.
        settings, deployment: their clients, whose signals report refusals and missing answers.
        ready: what the service says of itself, and
        at: where it answers; ``None`` before it does.
        lost_process: the name of a process that has ended, and when on the service's clock; ``None`` once telemetry of
            later comes, since Ray Serve has replaced it.
    """

    getting_ready = Signal()  # before anything of the service that is about to run is heard
    life_cycle_changed = Signal(object)  # the new `LifeCycle`
    start_progressed = Signal()  # `progress` has changed
    settings_applied = Signal(object, object)  # the `VersionedSettings` in force; after how many ms, or None if unknown
    died = Signal(str)  # a sentence with the cause and how many requests were under way
    cost_known = Signal(str)  # after `died`, if requests were under way: its sentence with how many of them failed
    load_changed = Signal(object)  # a `LoadFrame` came in
    load_refused = Signal(str)  # a sentence that says why a command was not sent, or why the load has ended
    telemetry_came = Signal(object)  # a `TelemetryFrame` came in
    heard = Signal(object)  # a `RecordedEvent`: each event that the history takes, in the same order
    came_to_rest = Signal()  # no child process runs any more
    logged = Signal(str)  # a line of the service's log, the load generator's or the window's

    def __init__(self, history: History, service: ServiceProcess, load: LoadProcess, parent: QObject) -> None:
        super().__init__(parent)
        self.state = LifeCycle.NOT_STARTED
        self.progress = StartProgress()
        self.ready: Ready | None = None
        self.at: Attachment | None = None
        self.lost_process: tuple[str, float] | None = None
        self.frames_seen = 0
        self.requests_seen = 0
        self._state_since_s = time.monotonic()
        self._seed = time.time_ns() % 2**31
        self.history = history
        self._service = service
        self._load = load
        self._is_service_stop_due = False
        self._start: ServiceStart | Attachment = ServiceStart()
        self._service_id: str | None = None  # of the first frame of a service that was attached to
        self._death: _Death | None = None
        self._failed_before = 0  # requests of the load generator that failed while the service was well
        self._is_ending = False  # the service has said that it stops, which nobody here asked for
        manager = network.manager(self)
        self.settings = SettingsClient(manager, self)
        self.deployment = DeploymentClient(manager, self)
        self._telemetry = TelemetryClient(manager, self)
        self._clients = self._telemetry, self.settings, self.deployment
        self._service.state_changed.connect(self._on_service_state)
        self._service.died.connect(self._on_service_died)
        self._service.stopped.connect(self._on_service_stopped)
        self._service.logged.connect(self.logged)
        self._load.frame_received.connect(self._on_load_frame)
        self._load.refused.connect(self.load_refused)
        self._load.died.connect(self.load_refused)
        self._load.logged.connect(self.logged)
        self._load.stopped.connect(self._on_load_stopped)
        self._telemetry.frame_received.connect(self._on_telemetry_frame)
        self._telemetry.frames_missed.connect(self.history.add_missed)
        self._telemetry.frames_missed.connect(self.heard)
        self._telemetry.trouble.connect(self.logged)
        self.settings.applied.connect(lambda in_force: self.settings_applied.emit(in_force, None))
        self.settings.failed.connect(self.logged)
        self.deployment.failed.connect(self.logged)

    # What the user asks for ------------------------------------------------------------------------------------------

    @property
    def is_at_rest(self) -> bool:
        return not self._service.is_running and not self._load.is_running

    @property
    def state_age_s(self) -> float:
        """How long the present state of the life cycle has lasted."""
        return time.monotonic() - self._state_since_s

    @property
    def is_attached(self) -> bool:
        """Whether the service was there before, and outlives the window."""
        return isinstance(self._start, Attachment)

    @property
    def lost_for_s(self) -> float | None:
        """For how long the telemetry of a service that was attached to is broken off; ``None`` while it is read."""
        lost_s = self._telemetry.lost_s if self.is_attached else None
        return None if lost_s is None else time.monotonic() - lost_s

    def try_now(self) -> None:
        """Look at once whether a telemetry that broke off can be taken up again."""
        self._telemetry.try_now()

    def start(self, start: ServiceStart | Attachment, usual_s: Mapping[str, float] | None = None) -> None:
        """Start the service, or attach to one; also after a failure.

        `usual_s` holds how long its stages took the last time.
        """
        self._start = start
        self.progress = StartProgress(usual_s)
        self._move(Event.START_WANTED)
        self.ready = self.at = self._service_id = self.lost_process = None
        self._is_ending = False
        self._failed_before = self._failed_so_far()
        self._service.start(start)

    def stop(self) -> None:
        """Cancel the requests under way, end the load, then the service; also during a start or after a failure."""
        if self.state in (LifeCycle.STARTING, LifeCycle.RUNNING):
            self._move(Event.STOP_WANTED)
        for client in self._clients:
            client.leave()
        self._is_service_stop_due = True
        self._load.stop()

    def kill(self) -> None:
        self._is_service_stop_due = False
        self._load.kill()
        self._service.kill()

    def change_settings(self, changes: dict[str, object]) -> None:
        """Ask for other settings while the service runs."""
        if self.state is LifeCycle.RUNNING:
            self.settings.ask(changes)

    def redeploy(self, changes: dict[str, object]) -> None:
        """Ask for other numbers of replicas or of what Ray lets them hold, while the service runs."""
        if self.state is LifeCycle.RUNNING:
            self.deployment.ask(changes)

    def fire(self, prompts: tuple[str, ...], copies: int, max_tokens: int) -> None:
        self._load.send(Fire(prompts=prompts, copies=copies, max_tokens=max_tokens))

    def run_load(self, load: RunLoad) -> None:
        """Start a load, or change the one that runs; every load of a window has the same seed."""
        self._load.send(msgspec.structs.replace(load, seed=self._seed))

    def pause_load(self, paused: bool) -> None:
        self._load.send(PauseLoad() if paused else ResumeLoad())

    def stop_load(self) -> None:
        """Send no more requests; those under way finish."""
        self._load.send(StopLoad())

    def cancel(self, ids: tuple[str, ...] | None) -> None:
        """Cancel these requests of the load generator, or all."""
        self._load.send(Cancel(ids=ids))

    def note(self, text: str, start_s: float, end_s: float) -> None:
        """Note something of this stretch, for the plots and for recordings; times are on the service's clock."""
        self.history.notes.add(start_s, text)
        self.heard.emit(Bookmarked(text=text, start_s=start_s, end_s=end_s))

    # What is heard ---------------------------------------------------------------------------------------------------

    def _on_service_state(self, state: ServiceState) -> None:
        match state:
            case Starting() | StageProgress():
                self.progress.take(state)
                self.start_progressed.emit()
            case Ready() if self.state is LifeCycle.STARTING:
                self._begin(state)
            case ProcessLost() if self.state is LifeCycle.RUNNING:
                self.lost_process = state.name, self.history.now_s()
                self.logged.emit(f"{state.name} ended unexpectedly. Ray Serve starts another.")
            case Stopping() if self.state in (LifeCycle.STARTING, LifeCycle.RUNNING):
                self._is_ending = True
                self.logged.emit("Another program asked the service to stop.")

    def _begin(self, ready: Ready) -> None:
        self.getting_ready.emit()
        self.ready = ready
        self.history.service_started(ready)
        self.heard.emit(ServiceStarted(ready=ready))
        start = self._start  # of a server that is not ours the address of its relay is used, with the same token
        self.at = replace(start, url=ready.url) if isinstance(start, Attachment) else Attachment(ready.url)
        address = Address(ready.url, ready.instance, _token(self.at))
        self._telemetry.follow(address)
        self.settings.connect_to(address)
        self.deployment.connect_to(address)
        self._load.start(self.at)
        self._move(Event.READY)

    def _begin_anew(self) -> None:
        """Attach to the service that has taken the place of the one that was looked at."""
        self.logged.emit("Another service answers at this address now.")
        for client in self._clients:
            client.leave()
        self.history.mark_stop()
        self.heard.emit(ServiceEnded())
        self._move(Event.STOPPED)
        self.start(self._start)

    def _on_service_died(self, reason: str) -> None:
        if self.state is LifeCycle.STOPPING:  # its end was asked for
            self._is_service_stop_due = False
            self.logged.emit(reason)
            self._on_service_stopped()
        else:
            self._fail(reason)
            self._report_rest()

    def _fail(self, reason: str) -> None:
        requests = self.history.requests
        in_flight = requests.rows(requests.under_way())
        for client in self._clients:
            client.leave()
        if self.ready is not None:  # a start that fails interrupts nothing
            self.history.mark_failure()
            self.heard.emit(ServiceEnded(reason=reason))
        if self._load.is_running:
            self._load.send(StopLoad())
        self._move(Event.DIED)
        of_others = sum(row.source == "other" for row in in_flight)
        self._death = _Death(reason, len(in_flight) + self._failed_by_death(), of_others, self._sent_so_far())
        self.died.emit(self._death.sentence())
        self._report_cost()

    def _report_cost(self) -> None:
        """Report how many requests the death cost, once the load generator has an end for each that it sent.

        A replica may outlive the service's main process for a moment, and answers what it holds.
        """
        load = self.history.load
        is_over = load is None or (load.pattern is None and not load.totals.outstanding)
        if self._death is not None and self._death.under_way and is_over:
            death = self._death.with_those_sent_meanwhile(self._sent_so_far())
            self.cost_known.emit(death.sentence(death.of_others + self._failed_by_death()))
            self._death = None

    def _failed_by_death(self) -> int:
        return max(0, self._failed_so_far() - self._failed_before)

    def _sent_so_far(self) -> int:
        return self.history.load.totals.sent if self.history.load is not None else 0

    def _failed_so_far(self) -> int:
        return self.history.load.totals.failed if self.history.load is not None else 0

    def _on_load_stopped(self) -> None:
        if self._is_service_stop_due:
            self._is_service_stop_due = False
            self._service.stop()
        self._report_rest()

    def _on_service_stopped(self) -> None:
        if self.state in (LifeCycle.STARTING, LifeCycle.RUNNING, LifeCycle.STOPPING):
            if self.ready is not None:
                mark = self.history.mark_left if self.is_attached else self.history.mark_stop
                mark()
                self.heard.emit(ServiceEnded(is_left=self.is_attached))
            self._move(Event.STOPPED)
        self._report_rest()

    def _report_rest(self) -> None:
        if self.is_at_rest:
            self.came_to_rest.emit()

    def _note_failed(self, frame: TelemetryFrame) -> None:
        """Note how many requests had failed when the service was last well: what fails later, its death costs.

        The load generator may see the death before this process does, and its frame may come before an older one of
        the service.
        """
        load, clock = self.history.load, self.history.sender_clock
        if load is not None and clock.to_ours(load.at_s) <= frame.at_s and not self._is_ending:
            self._failed_before = load.totals.failed

    def _on_telemetry_frame(self, frame: TelemetryFrame) -> None:
        if self.is_attached and self._service_id not in (None, frame.service):
            self._begin_anew()
            return
        self._service_id = frame.service
        if self.lost_process is not None and frame.at_s > self.lost_process[1]:
            self.lost_process = None
        self.frames_seen += 1
        self._note_failed(frame)
        self.requests_seen += sum(record.state in FINAL_STATES for record in frame.requests)
        before = self.history.jumps.latest
        self.history.add_telemetry(frame)
        self.heard.emit(frame)
        jump = self.history.jumps.latest
        if jump is not None and jump != before:
            self.heard.emit(ClockJumped(jump=jump))
        self.settings.observe(frame.in_force)
        self.deployment.observe(frame.deployment)
        if frame.changes:
            self.settings_applied.emit(frame.in_force, frame.changes[-1].in_force_after_ms)
        self.telemetry_came.emit(frame)

    def _on_load_frame(self, frame: LoadFrame) -> None:
        self.history.add_load(frame)
        self.heard.emit(frame)
        if self.state is LifeCycle.FAILED:
            self._report_cost()
        self.load_changed.emit(frame)

    def _move(self, event: Event) -> None:
        state = after(self.state, event)
        if state is not self.state:
            self.state, self._state_since_s = state, time.monotonic()
            self.life_cycle_changed.emit(state)


def _token(at: Attachment) -> str:
    """Its bearer token; empty where there is none, or no more."""
    try:
        return read_token(at.token_file) if at.token_file else ""
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True)
class _Death:
    """The death of the service, and the requests that it may cost.

    Attributes:
        under_way: requests that had no end when the service died, or failed by its death before it was known here.
        of_others: those of them that other clients sent; nobody reports their end, so they count as failed.
        sent: requests of the window that were known then.

    >>> death = _Death("The service was killed by signal 9 (SIGKILL).", 15, 0)
    >>> death.sentence()
    'The service was killed by signal 9 (SIGKILL). 15 requests were under way.'
    >>> death.sentence(failed=1)
    'The service was killed by signal 9 (SIGKILL). 1 of 15 requests under way failed.'
    >>> death.with_those_sent_meanwhile(2).sentence(failed=17)
    'The service was killed by signal 9 (SIGKILL). 17 of 17 requests under way failed.'
    """

    reason: str
    under_way: int
    of_others: int
    sent: int = 0

    def with_those_sent_meanwhile(self, sent: int) -> _Death:
        """With what the load still sent until it heard of the death."""
        return _Death(self.reason, self.under_way + sent - self.sent, self.of_others, sent)

    def sentence(self, failed: int | None = None) -> str:
        """What happened, with the requests under way, or with those of them that failed once their number is known."""
        if not self.under_way:
            return self.reason
        requests = "request" if self.under_way == 1 else "requests"
        if failed is None:
            were = "was" if self.under_way == 1 else "were"
            return f"{self.reason} {self.under_way} {requests} {were} under way."
        return f"{self.reason} {failed} of {self.under_way} {requests} under way failed."
