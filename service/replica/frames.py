"""The one stream of telemetry: reports of all replicas in, numbered frames out, a bounded stretch of them kept."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec

from service.messages.clock import ClockOffset, monotonic_clock_id
from service.messages.settings import SettingsChange, VersionedSettings
from service.messages.telemetry import (
    BatchRecord,
    Deployment,
    FramesMissed,
    ReplicaStatus,
    RequestRecord,
    TelemetryFrame,
    TokenGaps,
)
from service.replica.recorder import ReplicaReport

SHORTEST_INTERVAL_S = 0.05
LONGEST_INTERVAL_S = 0.2
FRAME_WORK_S = 0.008
"""What a frame takes of a processor: two calls between Ray's processes, and a piece of a stream."""
MOST_WORK = 0.02
UNWATCHED_INTERVAL_S = 0.5
KEPT_FRAMES = 1200
FRAMES_OF_A_LIFE = 10**9
"""More than a hub sends in a year."""
KEPT_BYTES = 32 * 2**20
WATCHED_S = 6.0
"""A reader that has asked within this time will ask again."""
SILENCE_S = 1.5
"""Of a replica that has been silent for this time it is asked whether it has ended."""


def frame_interval_s(cores: int) -> float:
    """The time between frames that leaves the model its processors: at most a fiftieth of `cores` is for telemetry.

    >>> frame_interval_s(2), frame_interval_s(4), frame_interval_s(64)
    (0.2, 0.1, 0.05)
    """
    return min(max(FRAME_WORK_S / (MOST_WORK * cores), SHORTEST_INTERVAL_S), LONGEST_INTERVAL_S)


class FrameLog:
    """Collects what comes in and closes a frame every `interval_s` in which anything came.

    Kept frames are encoded once and bounded in number and in bytes; a reader that asks for one that is no longer
    kept learns which it missed.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = SHORTEST_INTERVAL_S,
        service: str = "",
        life: int = 0,
    ) -> None:
        """The log of a hub that has taken the place of `life` others.

        It goes on with higher numbers than these can have given, so that a reader of both gets a `FramesMissed`.
        """
        self.interval_s = interval_s
        self._service = service
        self._clock = clock
        self._frames: deque[bytes] = deque()
        self._kept_bytes = 0
        self._closed = life * FRAMES_OF_A_LIFE
        self._grown = asyncio.Event()
        self._offsets: dict[str, ClockOffset] = {}
        self._heard_s: dict[str, float] = {}
        self._numbers: dict[str, float] = {}  # of the newest report of each replica
        self._asked_s = -math.inf
        self._begin_frame()

    def _begin_frame(self) -> None:
        self._batches: dict[str, BatchRecord] = {}
        self._requests: dict[str, RequestRecord] = {}
        self._gaps: list[TokenGaps] = []
        self._statuses: dict[str, ReplicaStatus] = {}
        self._changes: list[SettingsChange] = []
        self._lost: list[str] = []
        self._left: list[str] = []

    @property
    def has_news(self) -> bool:
        return bool(self._statuses or self._changes or self._lost or self._left)

    @property
    def is_watched(self) -> bool:
        """Whether there is a reader."""
        return self._clock() - self._asked_s < WATCHED_S

    @property
    def report_interval_s(self) -> float:
        """How soon a replica that has news should report again: in time for each frame, if there is a reader."""
        return self.interval_s if self.is_watched else UNWATCHED_INTERVAL_S

    def add_report(self, report: ReplicaReport) -> bool:
        """Take a replica's report in, its times translated to this clock; whether no later one had overtaken it."""
        replica = report.status.replica
        if report.number <= self._numbers.get(replica, 0):
            return False
        self._numbers[replica] = report.number
        self._heard_s[replica] = self._clock()
        offset = self._offsets.setdefault(replica, ClockOffset(monotonic_clock_id()))
        offset.note(report.clock, report.sent_s, self._clock())
        self._statuses[replica] = on_our_clock(report.status, offset)
        self._batches.update((batch.id, on_our_clock(batch, offset)) for batch in report.batches)
        self._requests.update((request.id, on_our_clock(request, offset)) for request in report.requests)
        self._gaps.extend(on_our_clock(gaps, offset) for gaps in report.gaps)
        return True

    def expect(self, replica: str) -> None:
        """There is a replica, from which reports are to come."""
        self._heard_s[replica] = self._clock()

    def add_change(self, change: SettingsChange) -> None:
        self._changes.append(change)

    def silent_replicas(self) -> tuple[str, ...]:
        """Names of the replicas from which nothing has come for `SILENCE_S`: late, or ended."""
        now_s = self._clock()
        return tuple(replica for replica, heard_s in self._heard_s.items() if now_s - heard_s > SILENCE_S)

    def end(self, replica: str, *, has_left: bool) -> None:
        """A replica has left as it was asked to, or else is lost."""
        (self._left if has_left else self._lost).append(replica)
        self._heard_s.pop(replica, None)
        self._numbers[replica] = math.inf  # a report that is still under way comes too late
        self._offsets.pop(replica, None)

    def close_frame(self, in_force: VersionedSettings, deployment: Deployment | None = None) -> None:
        """Number what has come in and hand it to the readers."""
        self._closed += 1
        frame = TelemetryFrame(
            number=self._closed,
            at_s=self._clock(),
            clock=monotonic_clock_id(),
            service=self._service,
            in_force=in_force,
            changes=tuple(self._changes),
            batches=tuple(self._batches.values()),
            requests=tuple(self._requests.values()),
            gaps=tuple(self._gaps),
            replicas=tuple(self._statuses.values()),
            lost_replicas=tuple(self._lost),
            left_replicas=tuple(self._left),
            deployment=deployment,
        )
        self._begin_frame()
        encoded = msgspec.json.encode(frame)
        self._frames.append(encoded)
        self._kept_bytes += len(encoded)
        while len(self._frames) > KEPT_FRAMES or (self._kept_bytes > KEPT_BYTES and len(self._frames) > 1):
            self._kept_bytes -= len(self._frames.popleft())
        self._grown.set()
        self._grown = asyncio.Event()

    async def after(self, number: int | None, timeout_s: float) -> tuple[int, list[bytes]]:
        """The events that follow frame `number` (``None``: the newest), as JSON, and the number to ask with next.

        Waits for up to `timeout_s`; then the list is empty. A number that was never given out is one of another
        service, and is answered with all that is kept.
        """
        self._asked_s = self._clock()
        if number is None:
            number = self._closed
        if number > self._closed:
            number = 0
        if number == self._closed:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._grown.wait()
            except TimeoutError:
                return number, []
        oldest = self._closed - len(self._frames) + 1
        events = list(self._frames)[max(0, number + 1 - oldest) :]
        if number + 1 < oldest:
            events.insert(0, msgspec.json.encode(FramesMissed(first=number + 1, last=oldest - 1)))
        return self._closed, events


Record = TypeVar("Record", bound=msgspec.Struct)
SPANS = frozenset({"longest_gap_s"})


def on_our_clock(record: Record, offset: ClockOffset) -> Record:
    """`record` with all its times, the fields named `…_s` that are no `SPANS`, on our clock."""
    if offset.is_shared:
        return record
    names = [name for name in record.__struct_fields__ if name.endswith("_s") and name not in SPANS]
    times = {name: getattr(record, name) for name in names}
    return msgspec.structs.replace(record, **{n: offset.to_ours(t) for n, t in times.items() if t is not None})


FramesAfter = Callable[[int | None], Awaitable[tuple[int, list[bytes]] | None]]

KEEP_ALIVE = b": nothing new\n\n"


async def telemetry_events(frames_after: FramesAfter, after: int | None) -> AsyncIterator[bytes]:
    """One event a frame, its number as the event's id, for as long as the reader stays and there are more."""
    yield KEEP_ALIVE  # the reader's headers, before the first frame
    number = after
    while (answer := await frames_after(number)) is not None:
        number, events = answer
        first = number - len(events) + 1
        yield b"".join(b"id: %d\ndata: %b\n\n" % (first + i, event) for i, event in enumerate(events)) or KEEP_ALIVE
