"""How many requests waited and ran at each replica, over the last seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from service.analysis.observed.columns import Bools, Floats, Ints
from service.analysis.observed.history import History

MOMENTS: Final = 61
STATUS_REACH_S: Final = 3.0  # a replica that said nothing for longer is not there


@dataclass(frozen=True)
class Queues:
    """Numbers of requests at evenly spaced moments, a line a slot and a column a moment.

    Attributes:
        waiting: in the queue or in sealed batches.
        is_present: by slot, whether a replica held it all the time.
    """

    at_s: Floats
    waiting: Ints
    running: Ints
    is_present: Bools

    @property
    def total(self) -> Ints:
        total: Ints = self.waiting.sum(axis=0)
        return total

    @property
    def idle_while_others_queue(self) -> Bools:
        """By slot and moment: whether it had nothing to do while requests waited behind another's batch."""
        queueing = (self.waiting > 0) & (self.running > 0)
        idle: Bools = (self.waiting == 0) & (self.running == 0) & self.is_present[:, None]
        return idle & queueing.any(axis=0)


def queues(history: History, since_s: float, at_s: float) -> Queues:
    moments = np.linspace(since_s, at_s, MOMENTS)
    columns = history.requests.columns
    queued, finished = columns["queued"], columns["finished"]
    alive = (queued <= at_s) & (finished > since_s)
    slot, queued, finished = columns["slot"][alive], queued[alive], finished[alive]
    started = np.minimum(columns["started"][alive], finished)
    present = _present(history, since_s, at_s)
    slots = range(max([*slot.tolist(), *present], default=-1) + 1)
    return Queues(
        at_s=moments,
        waiting=_counts([(queued[slot == n], started[slot == n]) for n in slots], moments),
        running=_counts([(started[slot == n], finished[slot == n]) for n in slots], moments),
        is_present=np.array([n in present for n in slots], np.bool_),
    )


def _counts(spans: list[tuple[Floats, Floats]], moments: Floats) -> Ints:
    """How many of each group's spans each moment lies in."""
    counts = np.zeros((len(spans), len(moments)), np.int64)
    for line, (begin, end) in enumerate(spans):
        counts[line] = np.searchsorted(np.sort(begin), moments, "right") - np.searchsorted(
            np.sort(end), moments, "right"
        )
    return counts


def _present(history: History, since_s: float, at_s: float) -> set[int]:
    """The slots whose replica was there from the beginning to the end."""
    said = history.statuses.replicas
    then, now = (
        set(said["slot"][(said["at"] > moment_s - STATUS_REACH_S) & (said["at"] <= moment_s)].tolist())
        for moment_s in (since_s, at_s)
    )
    return then & now
