"""What the window remembers: the last ten minutes of the service and its load, on the service's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from service.analysis.observed.annotations import DeploymentTimeline, LoadTimeline, Outages, OuterMark, SettingsMark
from service.analysis.observed.batches import BatchTable, Regime
from service.analysis.observed.requests import RequestRow as RequestRow  # part of what this module offers
from service.analysis.observed.requests import RequestTable
from service.analysis.observed.rolling import RollingPercentiles
from service.analysis.observed.statuses import ReplicaSlots, Statuses
from service.messages.clock import ClockOffset
from service.messages.load import LoadFrame
from service.messages.settings import SettingsChange, VersionedSettings
from service.messages.telemetry import FramesMissed, ReplicaStatus, TelemetryFrame
from service.messages.workload import TEXT

KEPT_S: Final = 600.0
MARGIN_S: Final = 60.0  # kept beyond that, so that what began before the window can be drawn into it
SPAN_S: Final = KEPT_S + MARGIN_S
DOUBT_S: Final = 3.0  # after missed frames: what the service has not mentioned for so long has ended unseen
MOST_CHANGES: Final = 500


class History:
    """The bounded store that frames are added to and that plots, figures and findings read.

    Attributes:
        requests, batches: the tables; see `RequestTable` and `BatchTable`.
        percentiles: of latency, rolling.
        statuses: of the replicas and the load generator, over time.
        load_timeline: how the load changed.
        outages: when there was no service, or less of it.
        kept_s: how far back one can look.
        sender_clock: the load generator's on the service's clock.
        revision: grows with everything that is added.
    """

    def __init__(
        self,
        clock_id: str,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        kept_s: float = KEPT_S,
    ) -> None:
        self.kept_s = kept_s
        self._clock_id = clock_id
        self._clock = clock
        self._wall_clock = wall_clock
        self.revision = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        span_s = self.kept_s + MARGIN_S
        self.requests = RequestTable()
        self.batches = BatchTable(span_s)
        self.percentiles = RollingPercentiles(span_s)
        self.slots = ReplicaSlots()
        self.statuses = Statuses()
        self.load_timeline = LoadTimeline()
        self.deployment_timeline = DeploymentTimeline()
        self.outages = Outages()
        self.in_force: VersionedSettings | None = None
        self.replicas: tuple[ReplicaStatus, ...] = ()
        self.unit = TEXT.unit  # what the tokens of requests and batches are, in the plural
        self.load: LoadFrame | None = None
        self.behind_s: float | None = None
        self.first_s: float | None = None  # of the first frame
        self.last_s: float | None = None  # of the latest frame
        self._service_offset = ClockOffset(self._clock_id)
        self._load_offset = ClockOffset(self._clock_id)
        self.sender_clock = ClockOffset(self._clock_id)
        self._service = 0
        self._ended_s = -np.inf  # the latest service that has
        self._begun_s: list[float] = []  # each service; not before the end of the one before
        self._last_number = 0
        self._changes: list[SettingsChange] = []
        self._doubtful: tuple[float, set[int]] | None = None
        self._begins_anew = True
        self.revision += 1

    def become(self, other: History) -> None:
        """Hold what another history holds, and go by its clock; the other is not to be used any more."""
        revision = max(self.revision, other.revision) + 1
        vars(self).update(vars(other))
        self.revision = revision
        self.requests.note_all_changed()

    # ------------------------------------------------------------------------------------------------------- feeding

    def add_telemetry(self, frame: TelemetryFrame) -> None:
        """Take in a frame of the service; one that came before is ignored."""
        received_s = self._clock()
        self._service_offset.note(frame.clock, frame.at_s, received_s)
        if frame.number <= self._last_number and not self._is_of_new_service(frame):
            return
        self._last_number = frame.number
        self._note_service(frame)
        self.behind_s = max(received_s - self._service_offset.to_ours(frame.at_s), 0.0)
        self._add_settings(frame)
        self._add_replicas(frame)
        self.batches.add(self._service, frame.batches, self.slots.slot_of, frame.at_s)
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
        self._advance(frame.at_s)

    def add_telemetry_segment(self, earlier: Sequence[TelemetryFrame], last: TelemetryFrame) -> None:
        """Add frames that follow one another, at less cost than one by one; only the last may lose replicas.

        `last` holds the requests of all of them, since only the last record of each request counts. The batches of
        every frame count, since their tokens are spread over time.
        """
        for frame in earlier:
            self._service_offset.note(frame.clock, frame.at_s, self._clock())
            self._note_service(frame)
            self._add_settings(frame)
            self._add_replicas(frame)
            self.batches.add(self._service, frame.batches, self.slots.slot_of, frame.at_s)
        self.add_telemetry(last)

    def add_load(self, frame: LoadFrame) -> None:
        """Take in a frame of the load process, and mark a change of its pattern."""
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
        """Frames were lost: show a gap, and doubt what was under way until the service mentions it again."""
        if self.last_s is None:
            return
        self._last_number = max(self._last_number, missed.last)
        self.outages.open(self.last_s, "gap")
        self._doubtful = self.last_s, set(self.requests.open_rows().tolist())
        self.revision += 1

    def service_started(self) -> None:
        """A service began to answer: its ids, versions and frame numbers begin anew, and an outage ends."""
        if self.last_s is not None and not self._begins_anew:
            self._end_service(self.now_s())
        self.outages.close(self.now_s())
        self.deployment_timeline.begin_service()
        self._begins_anew = True
        self._last_number = 0
        self.revision += 1

    def mark_stop(self) -> None:
        """The service ended in order, and what was under way with it."""
        self._end_service(self.now_s())
        self.revision += 1

    def mark_failure(self, at_s: float | None = None) -> None:
        """The service died, at `at_s` or now; what was under way has failed."""
        at_s = self.now_s() if at_s is None else at_s
        self._end_service(at_s)
        self.outages.open(at_s, "failed")
        self.revision += 1

    # ------------------------------------------------------------------------------------------------------- reading

    def now_s(self) -> float:
        """The present moment on the service's clock."""
        return self._service_offset.from_ours(self._clock())

    def service_begun_s(self, at_s: float) -> float:
        """What ran before this moment, ran in an earlier service than the one of `at_s`."""
        return max((begun_s for begun_s in self._begun_s if begun_s <= at_s), default=-np.inf)

    def wall_time(self, at_s: float) -> float:
        """Seconds since 1970 of a moment on the service's clock."""
        return self._wall_clock() - (self.now_s() - at_s)

    @property
    def is_empty(self) -> bool:
        return len(self.requests.columns) == 0 and len(self.batches.columns) == 0

    @property
    def last_change(self) -> SettingsChange | None:
        return self._changes[-1] if self._changes else None

    def changes(self) -> tuple[SettingsChange, ...]:
        return tuple(self._changes)

    def settings_marks(self) -> list[SettingsMark]:
        return self.batches.marks()

    def outer_marks(self) -> list[OuterMark]:
        """Changes of what the batching meets, of load and of replicas, in order of time."""
        return sorted([*self.load_timeline.marks, *self.deployment_timeline.marks], key=lambda mark: mark.at_s)

    def regime_at(self, at_s: float) -> Regime | None:
        return self.batches.regime_at(at_s)

    def depth_at(self, at_s: float) -> tuple[int, int, int]:
        """How many requests were waiting, formed and running at that moment."""
        columns = self.requests.columns
        ends = np.minimum(columns["formed"], columns["finished"])
        formed_ends = np.minimum(columns["started"], columns["finished"])
        waiting = np.count_nonzero((columns["queued"] <= at_s) & (ends > at_s))
        formed = np.count_nonzero((columns["formed"] <= at_s) & (formed_ends > at_s))
        running = np.count_nonzero((columns["started"] <= at_s) & (columns["finished"] > at_s))
        return int(waiting), int(formed), int(running)

    def percentiles_at(self, step: int) -> tuple[float, ...]:
        return tuple(float(grid.read(step, step)[0]) for grid in self.percentiles.grids)

    def batch_running_at(self, at_s: float) -> int | None:
        """The row of the batch that ran at that moment; with several replicas the one that started last."""
        columns = self.batches.columns
        rows = np.flatnonzero((columns["started"] <= at_s) & (columns["finished"] > at_s))
        return int(rows[np.argmax(columns["started"][rows])]) + columns.first if len(rows) else None

    def take_changed_requests(self, most: int | None = None) -> list[RequestRow]:
        """The rows that are new or changed since they were taken last, at most so many, oldest first."""
        return self.requests.take_changed(most)

    def request_rows(self) -> list[RequestRow]:
        return self.requests.rows(self.requests.numbers())

    # --------------------------------------------------------------------------------------------------------- inner

    def _is_of_new_service(self, frame: TelemetryFrame) -> bool:
        """Whether numbers began anew, rather than a frame having come twice."""
        if self.last_s is None or frame.at_s <= self.last_s:
            return False
        self._end_service(self.last_s)
        self._begins_anew = True
        return True

    def _note_service(self, frame: TelemetryFrame) -> None:
        if self._begins_anew:
            self._service += 1
            self._begun_s.append(self._ended_s)
            self.slots.forget_all()
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
            self._changes = [*self._changes[-MOST_CHANGES:], change]
        self.batches.note_settings(self._service, frame.in_force.version, frame.in_force.settings)
        self.in_force = frame.in_force
        self.deployment_timeline.note(frame.deployment, frame.at_s)

    def _add_replicas(self, frame: TelemetryFrame) -> None:
        if frame.replicas:
            self.replicas = frame.replicas
            self.unit = frame.replicas[0].unit
        for status in frame.replicas:
            if not self.slots.knows(status.replica) and status.replica not in frame.gone_replicas:
                self.slots.slot_of(status.replica)
                self.outages.close_one_loss(status.at_s)
        self.statuses.add_replicas(
            (status for status in frame.replicas if self.slots.knows(status.replica)), self.slots.slot_of
        )

    def _lose_replicas(self, frame: TelemetryFrame) -> None:
        for replica in frame.gone_replicas:
            slot = self.slots.free(replica)
            if slot is not None:
                self.requests.close(self.requests.open_rows(slot).tolist(), frame.at_s, "The replica stopped.")
                self.batches.close(frame.at_s, slot)
                if replica in frame.lost_replicas:
                    self.outages.open(frame.at_s, f"{replica} lost")
        self.replicas = tuple(r for r in self.replicas if r.replica not in frame.gone_replicas)

    def _resolve_doubts(self, frame: TelemetryFrame) -> None:
        if self._doubtful is None:
            return
        missed_s, rows = self._doubtful
        for record in frame.requests:
            rows.discard(self.requests.row_of(self._service, record.id))
        if frame.at_s - missed_s > DOUBT_S:
            self.requests.close(rows, missed_s, "Its end was missed.")
            self._doubtful = None

    def _note_sender(self, frame: LoadFrame) -> None:
        """Until requests tell how far the sender's clock is from the service's, go by when their frames came."""
        self._load_offset.note(frame.clock, frame.at_s, self._clock())
        self.sender_clock.note_clock(frame.clock)
        self.sender_clock.guess(self._load_offset.offset_s - self._service_offset.offset_s)

    def _end_service(self, at_s: float) -> None:
        self._ended_s = at_s
        self.requests.close(self.requests.open_rows().tolist(), at_s, "The service stopped.")
        self.batches.close(at_s)
        self.replicas = ()

    def _regime_start(self, at_s: float) -> tuple[int, float]:
        regime = self.batches.regime_at(at_s)
        return (regime.number, regime.start_s) if regime else (0, -np.inf)

    def _advance(self, at_s: float) -> None:
        self.percentiles.advance(at_s, self.requests.samples, self._regime_start)
        oldest_s = at_s - self.kept_s - MARGIN_S
        self.requests.drop_before(oldest_s)
        self.batches.drop_before(oldest_s)
        self.statuses.drop_before(oldest_s)
        self.load_timeline.drop_before(oldest_s)
        self.deployment_timeline.drop_before(oldest_s)
        self.outages.drop_before(oldest_s)
        self.revision += 1
