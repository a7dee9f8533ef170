"""Timeline: lanes, and every request a bar in its lane, first waiting, then sealed, then running with its batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gui.look.tokens import LANE_HEIGHTS
from gui.series.declaration import Declaration, Entry, reason_entries, with_reasons
from gui.series.time_range import TimeRange
from service.analysis.observed.batches import REASONS
from service.analysis.observed.columns import Floats, Ints
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import batch_running, is_open, members_of
from service.messages.settings import ReleaseReason

SETTLE_S: Final = 5.0  # of room, after which lanes grow higher: each change places every bar anew
SPARE: Final = 64  # where more lanes are needed than fit, their number is a multiple of this


@dataclass(frozen=True)
class LaneGrid:
    """`total` lanes of `height` pixels, of which `shown` fit."""

    height: int
    total: int
    shown: int

    @property
    def overflows(self) -> bool:
        return self.total > self.shown


def grid_for(needed: int, replicas: int, room: int) -> LaneGrid:
    """The highest lanes with which `needed` for each replica fit into `room` pixels; else the lowest, to be scrolled.

    >>> grid_for(needed=50, replicas=1, room=180)
    LaneGrid(height=3, total=60, shown=60)
    >>> grid_for(needed=256, replicas=1, room=180)
    LaneGrid(height=1, total=256, shown=180)
    """
    for height in LANE_HEIGHTS:
        fitting = max(room // height, 1)
        each = fitting // replicas
        if each >= needed:
            return LaneGrid(height, each * replicas, fitting)
    each = math.ceil(needed / SPARE) * SPARE
    return LaneGrid(LANE_HEIGHTS[-1], each * replicas, max(room // LANE_HEIGHTS[-1], 1))


class LaneChoice:
    """Gives way at once when lanes do not suffice and hesitates to take room back."""

    def __init__(self) -> None:
        self.grid = LaneGrid(LANE_HEIGHTS[0], 1, 1)
        self._room = -1
        self._replicas = 1
        self._could_since_s: float | None = None

    def choose(self, needed: int, replicas: int, room: int, now_s: float) -> LaneGrid:
        wanted = grid_for(needed, replicas, room)
        if (room, replicas) != (self._room, self._replicas) or wanted.total > self.grid.total:
            self._adopt(wanted)
        elif wanted.total == self.grid.total:
            self._could_since_s = None
        elif self._could_since_s is None:
            self._could_since_s = now_s
        elif now_s - self._could_since_s >= SETTLE_S:
            self._adopt(wanted)
        self._room, self._replicas = room, replicas
        return self.grid

    def _adopt(self, grid: LaneGrid) -> None:
        self.grid = grid
        self._could_since_s = None


RUNNING: Final = tuple(reason for reason in REASONS if reason != "left")  # with which no request begins to run
STAGES: Final[tuple[str, ...]] = ("nothing", "waiting", "formed", *RUNNING)  # a later one hides an earlier one
NOTHING: Final = 0
WAITING: Final = 1
FORMED: Final = 2
FIRST_RUNNING: Final = 3
JOINED: Final = RUNNING.index("joined")
COLUMNS: Final = ("slot", "arrival", "received", "queued", "formed", "started", "finished", "batch")  # that bars need
BITS: Final = 3  # 2 ** BITS - 1 bars of one stage may fall into the same pixel

PLOT: Final = Declaration(
    name="timeline",
    title="Timeline",
    unit="a bar per request, a block per batch",
    entries=(Entry("waiting", "lane", "waiting"), Entry("formed", "lane", "formed"), *reason_entries("area")),
    empty_text="Each request is a bar, each batch a block, coloured by why it was released.",
)


@dataclass(frozen=True)
class LaneGroup:
    """The lanes of one replica."""

    slot: int
    replica: str
    first: int
    count: int


@dataclass(frozen=True)
class Lanes:
    """How the lanes are dealt out: each replica has the same number, a request that of its arrival modulo it."""

    groups: tuple[LaneGroup, ...]

    @classmethod
    def dealt(cls, history: History, total: int) -> Lanes:
        replicas = max(len(history.slots), 1)
        each = max(total // replicas, 1)
        return cls(tuple(LaneGroup(slot, history.slots.name_of(slot), slot * each, each) for slot in range(replicas)))

    @property
    def total(self) -> int:
        return self.groups[-1].first + self.groups[-1].count

    @property
    def each(self) -> int:
        return self.groups[0].count

    def of(self, slots: Ints, arrivals: Ints) -> Ints:
        result: Ints = slots * self.each + arrivals % self.each
        return result


@dataclass(frozen=True)
class Block:
    """A batch in the timeline: when it ran, and the lanes of its members, which may wrap around at the last one."""

    start_s: float
    end_s: float
    lanes: tuple[int, ...]

    def spans(self) -> list[tuple[int, int]]:
        """Its lanes as runs of neighbours, first and last included.

        >>> Block(0.0, 1.0, (0, 1, 6, 7)).spans()
        [(0, 1), (6, 7)]
        """
        lanes = np.array(sorted(set(self.lanes)), np.int64)
        parts = np.split(lanes, np.flatnonzero(np.diff(lanes) > 1) + 1)
        return [(int(part[0]), int(part[-1])) for part in parts if len(part)]


@dataclass(frozen=True)
class Bars:
    """The requests in view, one after the other.

    Attributes:
        slot, arrival: the replica, and the number there, which give the lane.
        received, queued, formed, started, finished: when; infinite where that has not happened.
        batch, reason: the row of the batch, negative without one, and why it was released.
    """

    slot: Ints
    arrival: Ints
    received: Floats
    queued: Floats
    formed: Floats
    started: Floats
    finished: Floats
    batch: Ints
    reason: Ints

    @classmethod
    def in_view(cls, history: History, view: TimeRange) -> Bars:
        columns = history.requests.columns
        rows = np.flatnonzero(view.overlaps(columns["queued"], columns["finished"]) & (columns["arrival"] >= 0))
        found = {name: columns[name][rows] for name in COLUMNS}
        return cls(**found, reason=_reasons(history, found["batch"]))

    @property
    def reasons_seen(self) -> tuple[ReleaseReason, ...]:
        """Why the batches were released in which they run."""
        known = (self.batch >= 0) | (self.reason == JOINED)
        return tuple(RUNNING[code] for code in np.unique(self.reason[known]).tolist())

    @property
    def lanes_needed(self) -> int:
        """Lanes that one replica's requests need so that no two are in the same one at the same time."""
        needed = 1
        for slot in np.unique(self.slot):
            of_slot = self.slot == slot
            begun, ended = np.sort(self.received[of_slot]), self.finished[of_slot]
            later = np.searchsorted(begun, ended) - np.arange(len(begun))
            needed = max(needed, int(later.max(initial=1)))
        return needed

    def stages(self, view: TimeRange, lanes: Lanes, shown: range | None = None) -> NDArray[np.int8]:
        """For each lane (of `shown`, or all) and column of pixels the index in `STAGES` of what is to be seen there."""
        lane = lanes.of(self.slot, self.arrival)
        canvas = _Canvas(shown if shown is not None else range(lanes.total), view)
        canvas.add(WAITING, lane, self.queued, np.minimum(self.formed, self.finished))
        canvas.add(FORMED, lane, self.formed, np.minimum(self.started, self.finished))
        canvas.add(FIRST_RUNNING + self.reason, lane, self.started, self.finished)
        return canvas.stages()


def declared(seen: tuple[ReleaseReason, ...]) -> Declaration:
    """With the release reasons that there are; requests that join and leave one by one make no blocks."""
    unit = "a bar per request" if "joined" in seen else PLOT.unit
    return replace(with_reasons(PLOT, reason_entries("area", seen)), unit=unit)


def batch_at(history: History, at_s: float, lane: int, lanes: Lanes) -> int | None:
    """The row of the batch whose block is at that place."""
    columns = history.requests.columns
    there = (columns["started"] <= at_s) & (columns["finished"] > at_s) & (columns["batch"] >= 0)
    there &= lanes.of(columns["slot"], columns["arrival"]) == lane
    rows = np.flatnonzero(there)
    if not len(rows):
        return None
    batch = int(columns["batch"][rows[-1]])
    return batch_running(history, at_s, int(columns["slot"][rows[-1]])) if is_open(history, batch) else batch


def request_at(history: History, at_s: float, lane: int, lanes: Lanes) -> int | None:
    """The row of the request whose bar is at that place; the one that came last where several are."""
    columns = history.requests.columns
    there = (columns["queued"] <= at_s) & (columns["finished"] > at_s) & (columns["arrival"] >= 0)
    there &= lanes.of(columns["slot"], columns["arrival"]) == lane
    rows = np.flatnonzero(there)
    return int(rows[-1]) + columns.first if len(rows) else None


def bar_of(history: History, row: int, lanes: Lanes) -> Block | None:
    """Where a request stands, from the queue to its end; ``None`` if it never stood in the queue."""
    columns = history.requests.columns
    if not columns.has(row) or columns.get(row, "arrival") < 0 or np.isinf(columns.get(row, "queued")):
        return None
    lane = lanes.of(*(np.array([int(columns.get(row, name))]) for name in ("slot", "arrival")))
    return Block(columns.get(row, "queued"), columns.get(row, "finished"), (int(lane[0]),))


def block_of(history: History, batch_row: int, lanes: Lanes) -> Block | None:
    """Where a batch stands, or ``None`` before it ran."""
    batches, columns = history.batches.columns, history.requests.columns
    members = np.array(members_of(history, batch_row), np.int64) - columns.first
    if not len(members) or np.isinf(batches.get(batch_row, "started")):
        return None
    occupied = lanes.of(columns["slot"][members], columns["arrival"][members])
    started_s, finished_s = (batches.get(batch_row, name) for name in ("started", "finished"))
    return Block(started_s, finished_s, tuple(occupied.tolist()))


def neighbour(history: History, batch_row: int | None, step: int, view: TimeRange) -> int | None:
    """The batch that ran before (-1) or after (1) another; without another, the last one in view."""
    columns = history.batches.columns
    started: Floats = columns["started"]
    order = np.argsort(started, kind="stable")
    order = order[np.isfinite(started[order])]
    if len(order) == 0:
        return None
    if batch_row is None or not columns.has(batch_row):
        place = max(int(np.searchsorted(started[order], view.end_s)) - 1, 0)
    else:
        places = np.flatnonzero(order + columns.first == batch_row)
        place = int(np.clip((places[0] if len(places) else len(order) - 1) + step, 0, len(order) - 1))
    return int(order[place]) + columns.first


def _reasons(history: History, batches: Ints) -> Ints:
    """Why the batch of each request was released; as the first reason where that is not known any more.

    Where another server does not say in which batch a request runs, it has joined those that run.
    """
    columns = history.batches.columns
    rows = batches - columns.first
    known = (rows >= 0) & (rows < len(columns))
    result = np.full(len(batches), JOINED if history.server else 0, np.int64)
    result[known] = np.minimum(columns["reason"][rows[known]], len(RUNNING) - 1)
    return result


def _highest_stages() -> NDArray[np.int8]:
    """For each number of three bits a stage the highest stage that is counted in it."""
    numbers = np.arange(1 << (BITS * (len(STAGES) - 1)))
    stages = np.zeros(len(numbers), np.int8)
    for stage in range(1, len(STAGES)):
        stages[numbers >> (BITS * (stage - 1)) > 0] = stage
    return stages


HIGHEST: Final = _highest_stages()
WEIGHTS: Final = np.array([0.0, *(float(1 << (BITS * stage)) for stage in range(len(STAGES) - 1))])


class _Canvas:
    """Counts for each pixel the bars of each stage, in three bits a stage, by the differences along a lane."""

    def __init__(self, lanes: range, view: TimeRange) -> None:
        self._view = view
        self._lanes = lanes
        self._shape = (len(lanes), view.columns + 1)
        self._places: list[Ints] = []
        self._weights: list[Floats] = []

    def add(self, stage: int | Ints, lane: Ints, starts: Floats, ends: Floats) -> None:
        """A bar of at least one pixel for every interval that is not empty."""
        real = np.flatnonzero((starts < ends) & (lane >= self._lanes.start) & (lane < self._lanes.stop))
        left = self._columns(starts[real])
        right = np.minimum(np.maximum(self._columns(ends[real]), left + round(self._view.ratio)), self._view.columns)
        row = (lane[real] - self._lanes.start) * self._shape[1]
        weight = WEIGHTS[np.broadcast_to(stage, starts.shape)[real]]
        self._places += [row + left, row + right]
        self._weights += [weight, -weight]

    def stages(self) -> NDArray[np.int8]:
        size = self._shape[0] * self._shape[1]
        change = np.bincount(np.concatenate(self._places), np.concatenate(self._weights), minlength=size)
        counts = np.cumsum(change.astype(np.int32).reshape(self._shape), axis=1, dtype=np.int32)[:, :-1]
        return HIGHEST[counts]

    def _columns(self, times: Floats) -> Ints:
        return np.floor(np.clip(self._view.positions(times), 0, self._view.columns)).astype(np.int64)
