"""The memory of the window: the last ten minutes of the service and its load, on the service's clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from service.analysis.observed.annotations import (
    ClockJumps,
    DeploymentTimeline,
    LoadTimeline,
    Notes,
    Outages,
    OuterMark,
    Silence,
    Silences,
    describe_silence,
)
from service.analysis.observed.batches import BatchTable
from service.analysis.observed.columns import Bools, Floats
from service.analysis.observed.request_row import RequestRow as RequestRow  # part of what this module offers
from service.analysis.observed.requests import RequestTable
from service.analysis.observed.rolling import RollingPercentiles, percentiles
from service.analysis.observed.statuses import ReplicaSlots, Statuses
from service.analysis.observed.token_gaps import GapTable
from service.messages.clock import ClockOffset
from service.messages.life import Ready
from service.messages.load import LoadFrame
from service.messages.objectives import Objectives
from service.messages.settings import BOUNDS, SettingsChange, VersionedSettings
from service.messages.telemetry import SILENT_S, FramesMissed, ReplicaStatus, RequestState, TelemetryFrame
from service.messages.workload import TEXT

KEPT_S: Final = 600.0
MARGIN_S: Final = 60.0  # kept beyond that, so that what began before the window can be drawn into it
DOUBT_S: Final = 3.0  # after missed frames, in which the service does not mention a request: it has ended
MOST_CHANGES: Final = 500


class History:
    """A bounded store: frames are added, and plots, figures and findings are read from it.

    Attributes:
        gaps, itl_percentiles: times between tokens (ITL), and their percentiles, rolling.
        statuses: of the replicas and the load generator, over time.
        replicas: the latest status of each replica that has not ended.
        unit: name of the tokens of requests and batches, in the plural.
        ready: what the service has said of itself; ``None`` where that is not known.
        is_left: whether the service runs on as far as is known, and is looked at no longer.
        behind_s: age of the latest frame when it came.
        first_s, last_s: of the first and the latest frame.
        kept_s: age of the oldest data that can be looked at.
        span_s: age of the oldest data that are kept.
        sender_clock: from the load generator's clock to the service's.
        jumps: of the time of day, on this machine.
        objectives: of the viewer, not of the service: they stay when everything is forgotten or replaced.
        revision: grows with everything that is added.
    """

    def __init__(
        self,
        clock_id: str,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] | None = None,
        kept_s: float = KEPT_S,
    ) -> None:
        """`wall_clock` is the system's, or goes as `clock` does where only that is given."""
        self.kept_s = kept_s
        self.span_s = kept_s + MARGIN_S
        self._clock_id = clock_id
        self._clock = clock
        if wall_clock is None:
            ahead_s = time.time() - clock()
            wall_clock = time.time if clock is time.monotonic else lambda: ahead_s + clock()
        self._wall_clock = wall_clock
        self.revision = 0
        self.objectives = Objectives()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.requests = RequestTable()
        self.batches = BatchTable(self.span_s)
        self._percentiles = {"latency": RollingPercentiles(self.span_s)}
        self.gaps = GapTable()
        self.itl_percentiles = RollingPercentiles(self.span_s)
        self.slots = ReplicaSlots()
        self.statuses = Statuses()
        self.load_timeline = LoadTimeline()
        self.deployment_timeline = DeploymentTimeline()
        self.outages = Outages()
        self.notes = Notes()
        self.silences = Silences()
        self.in_force: VersionedSettings | None = None
        self.replicas: tuple[ReplicaStatus, ...] = ()
        self.unit = TEXT.unit
        self.ready: Ready | None = None
        self.load: LoadFrame | None = None
        self.behind_s: float | None = None
        self.first_s: float | None = None
        self.last_s: float | None = None
        self._service_offset = ClockOffset(self._clock_id)
        self._load_offset = ClockOffset(self._clock_id)
        self.sender_clock = ClockOffset(self._clock_id)
        self._service = 0
        self._ended_s = -np.inf  # the latest end of a service
        self.is_left = False
        self._begun_s: list[float] = []  # lower bounds of the services' begins: the end of the one before
        self._last_number = 0
        self._service_id = ""
        self.changes: tuple[SettingsChange, ...] = ()
        self._doubtful: tuple[float, set[int]] | None = None
        self._missing_until_s = -np.inf  # the end of the latest stretch of missed frames
        self._begins_anew = True
        self.jumps = ClockJumps()
        self.revision += 1

    def become(self, other: History) -> None:
        """Take over the content and the clock of another history, which must not be used any more."""
        kept = {"revision": max(self.revision, other.revision) + 1, "objectives": self.objectives}
        vars(self).update({**vars(other), **kept})
        self.requests.note_changed()

    # ------------------------------------------------------------------------------------------------------- feeding

    def add_telemetry(self, frame: TelemetryFrame) -> None:
        """Add a frame of the service; one that came before is ignored."""
        received_s = self._clock()
        self._service_offset.note(frame.clock, frame.at_s, received_s)
        if not self._is_of_new_service(frame) and frame.number <= self._last_number:
            return
        self._last_number, self._service_id = frame.number, frame.service
        self.jumps.note(self._wall_clock() - received_s, frame.at_s)
        self.behind_s = max(received_s - self._service_offset.to_ours(frame.at_s), 0.0)
        self._add_without_requests(frame)
        self.requests.add_records(
            self._service,
            frame.requests,
            self.slots.slot_of,
            lambda batch: self.batches.row_of(self._service, batch),
            self.batches.regime_of,
            self.sender_clock,
        )
        self._lose_replicas(frame)
        self._resolve_doubts(frame)
        self.itl_percentiles.advance(frame.at_s, self._regime_start, self.gaps.percentiles)
        self._advance(frame.at_s)

    def add_telemetry_segment(self, earlier: Sequence[TelemetryFrame], last: TelemetryFrame) -> None:
        """Add frames that follow one another, at less cost than one by one; only the last may lose replicas.

        `last` holds the requests of all of them, since only the last record of each request counts. The batches of
        every frame count, since their tokens are spread over time.
        """
        for frame in earlier:
            self._service_offset.note(frame.clock, frame.at_s, self._clock())
            self._add_without_requests(frame)
        self.add_telemetry(last)

    def add_load(self, frame: LoadFrame) -> None:
        """Add a frame of the load process, and mark a change of its pattern."""
        self._note_sender(frame)
        self.requests.add_client_requests(frame.requests, self.sender_clock, self.batches.regime)
        at_s = self.sender_clock.to_ours(frame.at_s)
        previous = self.load.pattern if self.load is not None else None
        if frame.pattern != previous:
            has_failed = self.outages.failed_since_s is not None
            self.load_timeline.note(previous, frame.pattern, at_s, has_failed=has_failed)
        self.load = frame
        self.statuses.add_load(frame, at_s)
        self._advance(at_s)

    def add_load_segment(self, earlier: Sequence[LoadFrame], last: LoadFrame) -> None:
        """Add frames that follow one another under one pattern, at less cost; `last` holds the requests of all."""
        for frame in earlier:
            self._note_sender(frame)
            self.statuses.add_load(frame, self.sender_clock.to_ours(frame.at_s))
        self.add_load(last)

    def add_missed(self, missed: FramesMissed) -> None:
        """Note lost frames: a gap, and doubt about requests under way until the service mentions them again."""
        if self.last_s is None:
            return
        self._last_number = max(self._last_number, missed.last)
        self.outages.open(self.last_s, "gap")
        self._missing_until_s = np.inf
        self._doubtful = self.last_s, set(self.requests.open_rows().tolist())
        self.revision += 1

    def service_started(self, ready: Ready | None = None) -> None:
        """Note that a service began to answer: ids, versions and frame numbers begin anew, and an outage ends."""
        self.ready = ready
        if self.last_s is not None and not self._begins_anew:
            self._end_service(self.now_s())
        self.outages.close(self.now_s())
        self.deployment_timeline.wanted = None
        self._begins_anew = True
        self._last_number = 0
        self.revision += 1

    def mark_stop(self) -> None:
        """Note that the service ended in order, and with it the requests under way."""
        self._end_service(self.now_s())
        self.revision += 1

    def mark_left(self) -> None:
        """Note that a service which runs on is looked at no longer: what becomes of requests under way is not known."""
        self._end_service(self.now_s(), "cancelled", "Nobody looked at the service until its end.")
        self.is_left = True
        self.revision += 1

    def mark_failure(self, at_s: float | None = None) -> None:
        """Note that the service died, at `at_s` or now; requests under way have failed."""
        at_s = self.now_s() if at_s is None else at_s
        self._end_service(at_s)
        self.outages.open(at_s, "failed")
        self.revision += 1

    # ------------------------------------------------------------------------------------------------------- reading

    def now_s(self) -> float:
        """The present moment on the service's clock."""
        return self._service_offset.from_ours(self._clock())

    def service_begun_s(self, at_s: float) -> float:
        """A moment between the service of `at_s` and the one before it; -infinity for the first."""
        return max((begun_s for begun_s in self._begun_s if begun_s <= at_s), default=-np.inf)

    @property
    def ended_s(self) -> float | None:
        """When the last service stopped or failed; ``None`` before that, and once a later one has reported."""
        has_stopped = self.last_s is not None and self.last_s <= self._ended_s
        ends_s = (self.outages.failed_since_s, self._ended_s if has_stopped else None)
        return min((each for each in ends_s if each is not None), default=None)

    def has_failed_at(self, times: Floats) -> Bools:
        """Which of these moments lie after the beginning of a failure, as long as that lasts."""
        found = np.zeros(len(times), dtype=bool)
        for outage in self.outages:
            if outage.text == "failed":
                found |= (times > outage.start_s) & (times <= (math.inf if outage.end_s is None else outage.end_s))
        return found

    def has_ended_at(self, at_s: float) -> bool:
        """Whether the service had failed at that moment, or had stopped and none has reported since."""
        return self.outages.has_failed_at(at_s) or (self.ended_s is not None and self.ended_s <= at_s)

    def wall_time(self, at_s: float) -> float:
        """Seconds since 1970 of a moment on the service's clock."""
        return self._wall_clock() - (self.now_s() - at_s)

    @property
    def server(self) -> str:
        """Name and release of the server, where it is not ours."""
        return "" if self.ready is None else self.ready.server

    @property
    def knows_cap(self) -> bool:
        """Whether it is known how many requests run at a time at most; another server may not say."""
        most = BOUNDS["max_batch_size"].high
        return not self.server or self.in_force is None or self.in_force.settings.max_batch_size < most

    @property
    def fixed(self) -> str:
        """Why no settings can be changed, as a sentence; empty where they can."""
        return "" if self.ready is None else self.ready.fixed

    @property
    def closed(self) -> str:
        """Why no request can be sent, as a sentence; empty where they can."""
        return "" if self.ready is None else self.ready.closed

    @property
    def is_empty(self) -> bool:
        return len(self.requests.columns) == 0 and len(self.batches.columns) == 0

    def late_replicas(self, now_s: float) -> tuple[ReplicaStatus, ...]:
        """The last statuses of the replicas that have reported nothing for some time and have not ended."""
        return tuple(status for status in self.replicas if now_s - status.at_s > SILENT_S)

    def heard_until_s(self, now_s: float) -> float:
        """The moment up to which the present service is known: now, unless no replica has reported for some time."""
        late = self.late_replicas(now_s)
        return max(status.at_s for status in late) if late and len(late) == len(self.replicas) else now_s

    def silences_until(self, now_s: float) -> tuple[Silence, ...]:
        """The silences that are over, and those that last."""
        late = self.late_replicas(now_s)
        if late and len(late) == len(self.replicas):
            heard_s = self.heard_until_s(now_s)
            present = [Silence(heard_s, None, describe_silence([], now_s - heard_s), hides=True)]
        else:
            silent = ((each.at_s, describe_silence([each.replica], now_s - each.at_s)) for each in late)
            present = [Silence(heard_s, None, text) for heard_s, text in silent]
        return (*self.silences, *present)

    def percentiles_of(self, name: str) -> RollingPercentiles:
        """Of the latency or another of `SAMPLED`, rolling; kept up to date from the first time that it is asked for."""
        rolling = self._percentiles.get(name)
        if rolling is None:
            finished = self.requests.samples["finished"]
            begun_s = float(finished[0]) if len(finished) else math.inf
            rolling = self._percentiles[name] = RollingPercentiles(self.span_s, begun_s)
            if self.last_s is not None:
                self._advance_percentiles(name, rolling, self.last_s)
        return rolling

    def outer_marks(self) -> list[OuterMark]:
        """Changes of the load and of the replicas, in order of time."""
        return sorted([*self.load_timeline.marks, *self.deployment_timeline.marks], key=lambda mark: mark.at_s)

    def marks_beside_settings(self) -> list[OuterMark]:
        """Those, and what was noted, in order of time."""
        return sorted([*self.outer_marks(), *self.notes], key=lambda mark: mark.at_s)

    def depth_at(self, at_s: float) -> tuple[int, int, int]:
        """Numbers of requests that were waiting, formed and running at that moment."""
        columns = self.requests.columns
        begun, ended = self.requests.spans()
        is_there = ended > at_s
        waiting = np.count_nonzero((begun <= at_s) & (columns["formed"] > at_s) & is_there)
        formed = np.count_nonzero((columns["formed"] <= at_s) & (columns["started"] > at_s) & is_there)
        running = np.count_nonzero((columns["started"] <= at_s) & is_there)
        return int(waiting), int(formed), int(running)

    def _is_of_new_service(self, frame: TelemetryFrame) -> bool:
        """Whether another service sent it than the one before; services without an id begin their numbers anew."""
        if self._begins_anew or self.last_s is None or frame.at_s <= self.last_s:
            return False
        if frame.service == self._service_id and (frame.service or frame.number > self._last_number):
            return False
        self._end_service(self.last_s)
        self._begins_anew = True
        return True

    def _add_without_requests(self, frame: TelemetryFrame) -> None:
        self._note_service(frame)
        self._add_settings(frame)
        self._add_replicas(frame)
        self.batches.add(self._service, frame.batches, self.slots.slot_of, frame.at_s)
        self.gaps.add(self._service, frame.gaps)

    def _note_service(self, frame: TelemetryFrame) -> None:
        if self._begins_anew:
            self._service += 1
            self._begun_s.append(self._ended_s)
            self.slots.held.clear()  # the replicas of a new service have other names, or the same for others
            self.outages.close(frame.at_s)
            self._begins_anew = False
        self.outages.close(frame.at_s, "gap")
        if self.sender_clock.own_clock != frame.clock:
            self.sender_clock = ClockOffset(frame.clock)
        self.first_s = frame.at_s if self.first_s is None else self.first_s
        self.last_s = frame.at_s

    def _add_settings(self, frame: TelemetryFrame) -> None:
        for change in frame.changes:
            self.batches.note_change(self._service, change)
            self.changes = (*self.changes[-MOST_CHANGES:], change)
        self.batches.note_settings(self._service, frame.in_force.version, frame.in_force.settings)
        self.in_force = frame.in_force
        self.deployment_timeline.note(frame.deployment, frame.at_s)

    def _add_replicas(self, frame: TelemetryFrame) -> None:
        if frame.replicas:
            self.unit = frame.replicas[0].unit
        for status in frame.replicas:
            if status.replica not in self.slots.held and status.replica not in frame.gone_replicas:
                self.slots.slot_of(status.replica)
                self.outages.close_one_loss(status.at_s)
        known = [status for status in frame.replicas if status.replica in self.slots.held]
        self.statuses.add_replicas(known, self.slots.slot_of)
        latest = {status.replica: status for status in self.replicas}
        if self._missing_until_s == np.inf:
            self._missing_until_s = frame.at_s
        for status in known:
            before = latest.get(status.replica)
            was_heard = before is not None and before.at_s > self._missing_until_s  # then, and not only later
            if before is not None and was_heard and status.at_s - before.at_s > SILENT_S:
                text = describe_silence([status.replica], status.at_s - before.at_s)
                self.silences.add(Silence(before.at_s, status.at_s, text))
            latest[status.replica] = status
        self.replicas = tuple(latest.values())

    def _lose_replicas(self, frame: TelemetryFrame) -> None:
        heard_s = {status.replica: min(status.at_s, frame.at_s) for status in self.replicas}
        for replica in frame.gone_replicas:
            slot = self.slots.held.pop(replica, None)
            if slot is not None:
                at_s = heard_s.get(replica, frame.at_s)  # later than that it is not known to have run
                self.requests.close(self.requests.open_rows(slot).tolist(), at_s, "The replica stopped.")
                self.batches.close(at_s, slot)
                if replica in frame.lost_replicas:
                    self.outages.open(at_s, f"{replica} lost")
        self.replicas = tuple(r for r in self.replicas if r.replica not in frame.gone_replicas)

    def _resolve_doubts(self, frame: TelemetryFrame) -> None:
        if self._doubtful is None:
            return
        missed_s, rows = self._doubtful
        for record in frame.requests:
            rows.discard(self.requests.row_of(self._service, record.id))
        if frame.at_s - missed_s > DOUBT_S:
            self.requests.close(rows, missed_s, "Its end was missed.")
            self.replicas = tuple(status for status in self.replicas if status.at_s > missed_s)
            self._doubtful = None

    def _note_sender(self, frame: LoadFrame) -> None:
        """Guess the offset of the sender's clock from the arrival of frames, until requests give a better one."""
        self._load_offset.note(frame.clock, frame.at_s, self._clock())
        self.sender_clock.note_clock(frame.clock)
        self.sender_clock.guess(self._load_offset.offset_s - self._service_offset.offset_s)

    def _end_service(self, at_s: float, state: RequestState = "failed", why: str = "The service stopped.") -> None:
        self._ended_s, self.is_left = at_s, False
        self.requests.close(self.requests.open_rows().tolist(), at_s, why, state)
        self.batches.close(at_s)
        self.replicas = ()

    def _regime_start(self, at_s: float) -> tuple[int, float]:
        regime = self.batches.regime_at(at_s)
        return (regime.number, regime.start_s) if regime else (0, -np.inf)

    def _advance_percentiles(self, name: str, rolling: RollingPercentiles, at_s: float) -> None:
        rolling.advance(at_s, self._regime_start, partial(percentiles, self.requests.samples, name=name))

    def _advance(self, at_s: float) -> None:
        for name, rolling in self._percentiles.items():
            self._advance_percentiles(name, rolling, at_s)
        oldest_s = at_s - self.span_s
        tables = (self.requests, self.batches, self.gaps, self.statuses, self.notes)
        for each in (*tables, self.load_timeline, self.deployment_timeline, self.outages, self.silences, self.jumps):
            each.drop_before(oldest_s)
        self.revision += 1
