"""Shows the history in the panels: rows of the table, numbers, findings and the status bar, each at its own rate."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Final

import psutil
from PySide6.QtCore import QObject, Signal

from gui.control.clocks import FrameMeter, RoundRobin
from gui.control.rows import Rows
from gui.main_window import MainWindow
from gui.panels.findings_panel import EMPTY_TEXT
from gui.panels.verdict_line import FIRST as NOTHING_YET
from gui.plots.plot_stack import PlotStack
from gui.series.prediction import CapacityLine
from gui.session.lifecycle import LifeCycle
from gui.session.session import Session
from service.analysis.findings.changed import with_change
from service.analysis.findings.facts import Facts, Finding
from service.analysis.findings.ranking import findings_of, nothing_found, prepare
from service.analysis.findings.verdict import Situation, Standing, Verdict, verdict
from service.analysis.observed.annotations import Drain, Predecessors
from service.analysis.observed.contention import contentions
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import last_batch
from service.analysis.observed.register import REGISTER, UNKNOWN_FIGURES, Figures, numbers, without_present
from service.analysis.observed.statistics import figures, previous_figures
from service.messages.telemetry import GraphUse
from service.messages.text import clock_text, format_time, percent

ROWS_EVERY_S: Final = 0.1
NUMBERS_EVERY_S: Final = 0.25
FINDINGS_EVERY_S: Final = 1.0  # sentences that change faster cannot be read
JUDGED_ANEW_S: Final = 2.0
PREPARED_S: Final = 0.2  # within which facts of a moment serve for the findings of it
FAILED_TEXT: Final = "Nothing is judged while the service has failed."
READY: Final = Verdict("unloaded", "Ready", second=": no request but the start's own has come")
READY_ELSEWHERE: Final = Verdict("unloaded", "Ready", second=": no request has come")
UNJUDGED_TEXT: Final = "Nothing to judge yet: no batch has run."
RATE_SPAN: Final = 8  # ticks of the numbers that the rate of telemetry is measured over
GIGABYTE: Final = 1e9
LONGEST_HOST: Final = 24  # characters of a sentence
PROCESSOR: Final = REGISTER["processor_share"]
REPLAYED: Final = "replayed"
MACHINE_LOAD: Final[tuple[tuple[str, Callable[[list[float]], float], Callable[[float], str]], ...]] = (
    ("cpu_percent", sum, "CPU {:.0f} %".format),
    ("memory_bytes", sum, lambda used: f"memory {used / GIGABYTE:.1f} GB"),
    ("cache_share", max, lambda share: f"KV cache {percent(share)}"),
    ("gpu_clock_mhz", min, "GPU clock {:.0f} MHz".format),
    ("gpu_power_w", sum, "GPU power {:.0f} W".format),
    ("gpu_percent", max, "GPU {:.0f} %".format),
    ("gpu_memory_bytes", sum, lambda used: f"GPU memory {used / GIGABYTE:.1f} GB"),
)
"""A field of a replica's status, how those of several become one, and how that is written."""
NVIDIA_GPUS: Final = Path("/proc/driver/nvidia/gpus")


class Presenter(QObject):
    """Reads the history after frames, one task each, and hands the panels what changed.

    Attributes:
        round_robin: the tasks and how often each runs; others may add theirs.
        present: the figures of now, as they were shown last.
    """

    numbers_shown = Signal()  # four times a second, after the numbers; other texts follow it

    def __init__(self, window: MainWindow, plots: PlotStack, session: Session, meter: FrameMeter) -> None:
        super().__init__(window)
        self._window = window
        self._plots = plots
        self._history = session.history
        self._session = session
        self._meter = meter
        self._frozen_at: str | None = None
        self._contentions_of = -1
        self._had_data = False
        self._finished_at_freeze = 0
        self._standing = Standing()
        self._facts: Facts | None = None
        self._found: tuple[Finding, ...] = ()
        self._prepared: Facts | None = None
        self._judged_s = float("-inf")
        self._still: tuple[float, Figures] | None = None
        self.present = UNKNOWN_FIGURES
        self._announced: Verdict | None = None
        self._is_held = False
        self._row: Figures | None = None  # what stands in the row of figures, and so in all sentences
        self._rows = Rows(window.requests.model, plots, session)
        self._ticks: deque[tuple[float, int]] = deque(maxlen=RATE_SPAN)
        self.round_robin = RoundRobin()
        self.round_robin.add(self._rows.show, ROWS_EVERY_S)
        self.round_robin.add(self.show_numbers, NUMBERS_EVERY_S)
        for work in (self.prepare_findings, self.show_findings, self.show_contentions):
            self.round_robin.add(work, FINDINGS_EVERY_S)

    def set_frozen(self, frozen: bool) -> None:
        """Freeze figures and plots at this moment, or let them run."""
        self._plots.set_frozen(frozen)
        self._frozen_at = self._clock_time(self._plots.view_end_s()) if frozen else None
        self._still = self._prepared = None
        self._finished_at_freeze = self._session.requests_seen
        self.show_numbers()
        self.show_findings()

    def prepare_findings(self) -> None:
        """Fit the engine's costs, which takes as long as the findings: between two other frames than these."""
        prepared = Facts.at(self._history, self._moment_s(self._shown_at_s()))
        if prepared is not None and prepared.cost is not None:
            self._prepared = prepared

    def show_findings(self) -> None:
        """Show the findings, and the engine's capacity as a line."""
        at_s = self._shown_at_s()
        facts, self._prepared = self._prepared, None
        present = Facts.at(self._history, self._moment_s(at_s))
        if facts is None or abs(facts.at_s - self._moment_s(at_s)) > PREPARED_S:
            facts = present
        self._facts, self._judged_s = facts, self._moment_s(at_s) if facts is None else facts.at_s
        self._found = () if facts is None else with_change(present or facts, findings_of(facts))
        self._show_drain()  # findings say what is left, too
        panel = self._window.findings
        panel.set_can_change(self._can_change(at_s))
        judged = self._show_verdict(self._figures(at_s) if self._row is None else self._row, at_s)
        listed = judged.listed(self._found)
        if self._window.is_reserved:  # nothing can be changed, and advice would give away what a lesson asks
            listed = [finding.observed for finding in listed]
        panel.show_findings(listed, self._nothing_found(judged))
        self._plots.show_capacity(None if facts is None else CapacityLine.of(facts))

    def show_contentions(self) -> None:
        """Mark in the plots when the engine was slowed."""
        history = self._history
        if self._contentions_of != history.revision:
            self._contentions_of = history.revision
            now_s = history.now_s()
            self._plots.show_contentions(contentions(history, now_s, now_s - history.kept_s))

    def _nothing_found(self, judged: Verdict) -> str:
        if self._facts is not None:
            return nothing_found(self._facts, judged.state == "well")
        if self._history.outages.has_failed_at(self._judged_s):
            return FAILED_TEXT
        return EMPTY_TEXT if self._session.state is LifeCycle.NOT_STARTED else UNJUDGED_TEXT

    def _can_change(self, at_s: float | None) -> bool:
        return at_s is None and self._window.batching.isEnabled()

    def _show_verdict(self, shown: Figures, at_s: float | None) -> Verdict:
        """Say the state of the moment that the figures are of."""
        session, history, now_s = self._session, self._history, time.monotonic()
        is_present = session.state is LifeCycle.RUNNING and at_s is None
        if not is_present:
            self._standing.forget()
        judged = verdict_at_rest(session)
        if judged is None:
            prediction = self._window.figures.prediction
            is_held = is_present and self._is_held
            situation = Situation(history, self._moment_s(at_s), self._facts, shown, self._found, prediction, is_held)
            judged = self._standing.take(situation, now_s) if is_present else verdict(situation)
            if is_present and (self._announced is not None or self._window.notice.invites):
                judged = self._announced or (READY_ELSEWHERE if history.server else READY)
        is_unloaded = history.load is None or history.load.pattern is None
        is_offered = self._window.notice.invites  # by a button of the notice
        is_taken = is_offered or history.closed or self._window.is_reserved
        self._window.verdict.show_verdict(judged, self._can_change(at_s), is_present and is_unloaded and not is_taken)
        self._window.findings.set_said(judged.finding, judged.mend)
        return judged

    def show_numbers(self) -> None:
        """Show the figures of the moment that is looked at in every place.

        While a service runs, rows and status are of the present also where the plots are frozen or scrolled back.
        """
        self._rows.show()
        at_s = self._shown_at_s()
        self.present = present = self._figures(None)
        shown_figures = present if at_s is None else self._figures(at_s)
        self._row = shown_figures
        self._show_figures(shown_figures, at_s)
        says_left = any(finding.rule == "settings_changed" and finding.data["left"] for finding in self._found)
        is_left = self._show_drain()
        if (says_left and not is_left) or abs(self._moment_s(at_s) - self._judged_s) > JUDGED_ANEW_S:
            self.show_findings()  # another moment is looked at, or nothing is left any more
        else:
            self._show_verdict(shown_figures, at_s)
        past_s = self._rows.past_s
        self._window.requests.model.tick(self._moment_s(past_s))
        has_failed = self._history.outages.failed_since_s is not None  # figures then stand at the failure, rows do not
        counted = shown_figures if self._plots.is_live or past_s is not None else present
        self._window.requests.refresh_counts(UNKNOWN_FIGURES if has_failed and past_s is None else counted)
        self._show_state()
        self._show_status(present, present if self._session.state is LifeCycle.RUNNING else shown_figures)
        self.numbers_shown.emit()

    @property
    def shown(self) -> Figures:
        """The figures that stand in the row."""
        return self.present if self._row is None else self._row

    def announce(self, verdict: Verdict | None) -> None:
        """Show this for the present instead of what is judged; ``None``: what is judged again."""
        if verdict != self._announced:
            self._announced = verdict
            at_s = self._shown_at_s()
            self._show_verdict(self._figures(at_s) if self._row is None else self._row, at_s)

    def show_held(self, is_held: bool) -> None:
        """Say how well Hold keeps the goal, as long as it is on."""
        if is_held != self._is_held:
            self._is_held = is_held
            self._standing.forget()

    def _figures(self, at_s: float | None) -> Figures:
        """The figures of that moment (now); while frozen as they were at first, whatever comes to be known of it."""
        if at_s is None or self._frozen_at is None:
            return figures(self._history, at_s)
        if self._still is None or self._still[0] != at_s:
            self._still = at_s, figures(self._history, at_s)
        return self._still[1]

    def _shown_at_s(self) -> float | None:
        """The right edge of the plots, or what was heard last; ``None`` while they follow the present."""
        if not self._plots.is_live:
            return self._plots.view_end_s()
        now_s = self._history.now_s()
        heard_s = self._history.heard_until_s(now_s)
        return None if heard_s == now_s else heard_s

    def _moment_s(self, at_s: float | None) -> float:
        return self._history.now_s() if at_s is None else at_s

    def _clock_time(self, at_s: float) -> str:
        """The time of day of a moment on the service's clock."""
        return clock_text(self._history.wall_time(at_s))

    def _show_figures(self, now: Figures, at_s: float | None) -> None:
        before = previous_figures(self._history, at_s)
        version, previous = before if before is not None else (None, None)
        self._window.figures.set_unit(self._history.unit)
        self._window.figures.set_time(None if at_s is None else self._clock_time(at_s))
        self._window.figures.set_objectives(self._history.objectives)
        has_ended = self._history.has_ended_at(self._moment_s(at_s))  # the figures then stand at the end
        shown = without_present(now) if has_ended else now
        self._window.figures.set_dimmed(has_ended)
        self._window.figures.show_figures(shown, previous, version)
        self._plots.show_figures(shown, is_dimmed=has_ended)
        self._window.batching.show_measured(now.mean_batch)

    def _show_drain(self) -> bool:
        """Say how long batches under older settings ran on, or what comes before the first batch under the new ones.

        Returns whether something is left of them.
        """
        batches, in_force = self._history.batches, self._history.in_force
        is_recorded = self._window.batching.is_recorded  # the settings are those of the place looked at then
        at_s = self._plots.view_end_s() if is_recorded else self._history.now_s()
        regime = batches.regime_at(at_s) if is_recorded else next(reversed(batches.regimes), None)
        is_obeyed = regime is not None and in_force is not None and regime.version == in_force.version
        found: Drain | Predecessors | None = None
        if regime is not None and (is_obeyed or is_recorded):
            found = batches.drain(regime)
            if found is not None and found.end_s is not None and found.end_s > at_s:
                found = replace(found, end_s=None)
        elif in_force is not None:
            found = batches.formed_before(in_force.version, at_s)
        words, brief = ("", "") if found is None else (found.words, found.brief)
        self._window.batching.show_drained(words, brief, is_pending=isinstance(found, Predecessors))
        return isinstance(found, Predecessors) or (isinstance(found, Drain) and found.end_s is None)

    def _show_state(self) -> None:
        toolbar, session = self._window.toolbar, self._session
        lost_for_s = session.lost_for_s
        self._window.set_lost(lost_for_s is not None)
        if session.state is LifeCycle.STARTING:
            toolbar.set_detail(f"{session.state_age_s:.0f} s")
        elif lost_for_s is not None:
            toolbar.show_reconnecting(lost_for_s)
        if self._had_data is self._history.is_empty:  # the first data make more possible
            self._had_data = not self._had_data
            self._window.show_life_cycle(session.state, self._had_data)
        running = session.state is LifeCycle.RUNNING
        toolbar.set_uptime_s(session.state_age_s if running and not session.is_attached else None)
        if self._frozen_at is not None:
            toolbar.set_frozen(True, self._frozen_at, session.requests_seen - self._finished_at_freeze)

    def _show_status(self, present: Figures, of_facts: Figures) -> None:
        status, session = self._window.status, self._session
        self._ticks.append((time.monotonic(), session.frames_seen))
        match session.state:
            case LifeCycle.STARTING:
                _prepare_findings()
                status.update_activity(session.progress.summary)
            case LifeCycle.RUNNING:
                status.update_activity(activity(self._history, present))
            case LifeCycle.NOT_STARTED if self._history.is_empty:
                status.set_facts(facts_at_rest())
                return
        rate = self._telemetry_per_s() if session.state is LifeCycle.RUNNING else None
        frame_p99_ms = self._meter.recent_p99_ms()
        status.set_facts(
            facts(self._history, of_facts, rate, frame_p99_ms, self._rows.past_s), fact_tips(self._history)
        )

    def _telemetry_per_s(self) -> float | None:
        (first_s, first), (last_s, last) = self._ticks[0], self._ticks[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None


def verdict_at_rest(session: Session) -> Verdict | None:
    """What is said while no service runs or can be reached; ``None`` where the history says it."""
    if session.at is not None and session.lost_for_s is not None:
        lost_for, host = format_time(session.lost_for_s), session.at.url.partition("://")[2][:LONGEST_HOST]
        missed = ". What is missed is named"
        return Verdict("silent", f"No word from {host} for ", lost_for, "; trying again", missed, is_lost=True)
    if session.lost_process is not None and session.state is LifeCycle.RUNNING:
        name, since_s = session.lost_process
        lost_for = format_time(session.history.now_s() - since_s)
        return Verdict("silent", f"{name} ended ", lost_for, " ago", ": Ray Serve starts another")
    match session.state:
        case LifeCycle.NOT_STARTED if session.history.is_empty:
            return NOTHING_YET
        case LifeCycle.STARTING:
            doing = "Attaching to" if session.is_attached else "Starting"
            return Verdict("unloaded", f"{doing} the service: ", f"{session.state_age_s:.0f} s", " so far")
        case LifeCycle.STOPPING:
            return Verdict("unloaded", "Leaving the service" if session.is_attached else "Stopping the service")
        case LifeCycle.FAILED if session.history.outages.failed_since_s is None:
            doing = "is not reached" if session.is_attached else "did not start"
            return Verdict("failed", f"The service {doing}")
    return None


def activity(history: History, present: Figures) -> str:
    """The last batch, or under continuous formation the places that are taken; a silence, while one lasts."""
    silences = [silence.text for silence in history.silences_until(history.now_s()) if silence.end_s is None]
    if silences:
        text = ", ".join(silences)
        return f"{text[0].upper()}{text[1:]}: shown as last heard"
    batch = last_batch(history)
    if batch is None or batch.ran_s is None:
        return "No batch yet"
    if batch.formation == "continuous":
        places, written = batch.cap * max(len(history.replicas), 1), numbers(present)
        waiting = f", {written['queue']} waiting" if present.queue else ""
        taken = f"of {places} places taken" if history.knows_cap else "running"
        return f"{written['running']} {taken}{waiting}"
    requests = "1 request" if batch.size == 1 else f"{batch.size} requests"
    return f"replica {batch.replica.removeprefix('r')}: batch {batch.number}, {requests}, {batch.ran_s:.2f} s"


def facts_at_rest() -> list[str]:
    """Cores, GPUs and free memory of the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = psutil.virtual_memory().available / GIGABYTE
    gpus = len(os.listdir(NVIDIA_GPUS)) if NVIDIA_GPUS.is_dir() else 0
    facts_known = [f"{cores} core{'s' if cores != 1 else ''}"]
    if gpus:
        facts_known.append(f"{gpus} GPU{'s' if gpus != 1 else ''}")
    return [*facts_known, f"{free:.1f} GB memory free"]


def facts(
    history: History,
    now: Figures,
    telemetry_per_s: float | None,
    frame_p99_ms: float | None,
    past_s: float | None = None,
) -> list[str]:
    """Facts about the service, now or at a moment `past_s`, the least important first."""
    facts_known: list[str] = []
    in_force = history.in_force if past_s is None else history.batches.regime_at(past_s)
    if in_force is not None:
        facts_known.append(f"settings v{in_force.version}")
    if telemetry_per_s is not None:
        behind = "" if history.behind_s is None else f", {history.behind_s * 1e3:.0f} ms behind"
        facts_known.append(f"telemetry {telemetry_per_s:.0f}/s{behind}")
    if history.replicas and past_s is None:
        facts_known += _machine_load(history)
    if in_force is not None:
        facts_known.append(f"{PROCESSOR.name} {PROCESSOR.with_unit(now.processor_share)}")
    if frame_p99_ms is not None:
        facts_known.append(f"frame p99 {frame_p99_ms:.0f} ms")
    return facts_known


def fact_tips(history: History) -> dict[str, str]:
    """What is said of a fact on hover, by its first word."""
    use = _graph_use(history)
    lines = ["Share of the decode steps since the start that were replayed from CUDA graphs.", use.why_not]
    return {PROCESSOR.name: PROCESSOR.sentence, REPLAYED: "\n".join(filter(None, lines))}


def _graph_use(history: History) -> GraphUse:
    """Of all replicas that report it."""
    uses = [replica.graphs for replica in history.replicas if replica.graphs is not None]
    return GraphUse(
        steps=sum(use.steps for use in uses),
        replayed=sum(use.replayed for use in uses),
        why_not=next((use.why_not for use in uses if use.why_not), ""),
    )


def _machine_load(history: History) -> list[str]:
    facts_known = []
    for field, of_all, words in MACHINE_LOAD:
        if known := [value for replica in history.replicas if (value := getattr(replica, field)) is not None]:
            facts_known.append(words(of_all(known)))
    if steps := (use := _graph_use(history)).steps:
        facts_known.append(f"{REPLAYED} {use.replayed / steps * 100:.0f} %")
    return facts_known


@cache
def _prepare_findings() -> None:
    """Import scipy while Ray starts: during the first fit the import would halt the window."""
    Thread(target=prepare, name="import of scipy").start()
