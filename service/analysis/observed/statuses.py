"""The reports of replicas and of the load generator on themselves over time, and the slots of the replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from service.analysis.observed.columns import Columns
from service.messages.load import LoadFrame, Pattern
from service.messages.settings import Scale
from service.messages.telemetry import ReplicaStatus

REPLICA_EVERY_S: Final = 1.0
LOAD_EVERY_S: Final = 0.25
MAX_ROWS: Final = 60_000
UNKNOWN: Final = -1


class ReplicaSlots:
    """Slots of the replicas, counted from 0; the lowest free one is given to the next replica.

    Attributes:
        held: the slot of each replica that has one; without its entry the slot is free.
    """

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._names)

    def slot_of(self, replica: str) -> int:
        """The replica's slot, which it is given if it has none."""
        if replica not in self.held:
            taken = set(self.held.values())
            slot = next(n for n in range(len(taken) + 1) if n not in taken)
            self.held[replica] = slot
            self._names[slot] = replica
        return self.held[replica]

    def name_of(self, slot: int) -> str:
        """The replica that holds the slot, or held it last."""
        return self._names.get(slot, "")


class Statuses:
    """A row a second for each replica, and a row a quarter of a second for the load generator.

    Attributes:
        replicas: `max_ongoing` is -1 where the service does not report it. `got` and `waited` are the processor time
            of the engine's threads since the replica's start, in seconds, infinite where it is not reported.
        load: totals of the generator, and its lag, infinite while it sent nothing.
        patterns: moments at which the load became another and what it was from then on, ``None`` while it pauses.
    """

    def __init__(self) -> None:
        self.replicas = Columns(("at", "got", "waited"), ("slot", "pid", "memory", "max_ongoing"), MAX_ROWS)
        self.load = Columns(("at", "lag_ms"), ("sent", "dropped"), MAX_ROWS)
        self.patterns: list[tuple[float, Pattern | None]] = []
        self._replica_due_s: dict[int, float] = {}
        self._load_due_s = -np.inf

    def add_replicas(self, statuses: Iterable[ReplicaStatus], slot_of: Callable[[str], int]) -> None:
        for status in statuses:
            slot = slot_of(status.replica)
            if self._replica_due_s.get(slot, -np.inf) <= status.at_s:
                self._replica_due_s[slot] = status.at_s + REPLICA_EVERY_S
                ongoing = status.max_ongoing_requests
                row = {"at": status.at_s, "slot": slot, "pid": status.pid, "memory": status.memory_bytes or 0}
                use = status.engine_processor
                used = {} if use is None else {"got": use.got_s, "waited": use.waited_s}
                self.replicas.append({**row, **used, "max_ongoing": UNKNOWN if ongoing is None else ongoing})

    def scale_at(self, at_s: float) -> Scale | None:
        """The scale of the deployment at that moment; ``None`` where the replicas did not report it."""
        reported = self.replicas
        recent = (reported["at"] > at_s - 2 * REPLICA_EVERY_S) & (reported["at"] <= at_s)
        limits = reported["max_ongoing"][recent & (reported["max_ongoing"] != UNKNOWN)]
        if not len(limits):
            return None
        return Scale(replicas=len(np.unique(reported["slot"][recent])), max_ongoing_requests=int(limits[-1]))

    def add_load(self, frame: LoadFrame, at_s: float) -> None:
        pattern = None if frame.is_paused else frame.pattern
        if not self.patterns or self.patterns[-1][1] != pattern:
            self.patterns.append((at_s, pattern))
        if self._load_due_s <= at_s:
            self._load_due_s = at_s + LOAD_EVERY_S
            lag_ms = np.inf if frame.lag_p99_ms is None else frame.lag_p99_ms
            totals = frame.totals
            self.load.append({"at": at_s, "lag_ms": lag_ms, "sent": totals.sent, "dropped": totals.dropped})

    def pattern_at(self, at_s: float) -> Pattern | None:
        return next((pattern for since_s, pattern in reversed(self.patterns) if since_s <= at_s), None)

    def drop_before(self, time_s: float) -> None:
        for table in (self.replicas, self.load):
            table.drop_before(table.first + int(np.searchsorted(table["at"], time_s)))
        while len(self.patterns) > 1 and self.patterns[1][0] < time_s:
            del self.patterns[0]
