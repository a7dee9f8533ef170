"""One batch: its summary, its members, and the requests that run beside one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.observed.batches import CONTINUOUS, REASONS
from service.analysis.observed.columns import Bools, Columns
from service.analysis.observed.history import History
from service.messages.settings import FORMATIONS, Formation, ReleaseReason


@dataclass(frozen=True)
class BatchSummary:
    """The known facts of a batch.

    Attributes:
        waited_s: shortest and longest time that a member waited before it ran; ``None`` as long as none is known.
        unit: name of its tokens, in the plural.
        ran_s: so far, if it still runs; ``None`` before it started.
    """

    row: int
    id: str
    number: int
    replica: str
    version: int
    formation: Formation
    size: int
    cap: int
    reason: ReleaseReason
    formed_s: float
    started_s: float | None
    finished_s: float | None
    tokens: int
    waited_s: tuple[float, float] | None
    ran_s: float | None
    unit: str


def batch_summary(history: History, row: int) -> BatchSummary | None:
    """The summary of a batch; ``None`` if it is no longer kept."""
    columns = history.batches.columns
    if not columns.has(row):
        return None
    slot, formation, reason = (int(columns.get(row, name)) for name in ("slot", "formation", "reason"))
    started_s, finished_s = (
        value if np.isfinite(value := columns.get(row, name)) else None for name in ("started", "finished")
    )
    until_s = finished_s if finished_s is not None else history.last_s
    requests = history.requests.columns
    members = (requests["batch"] == row) & np.isfinite(requests["started"])
    waited = requests["started"][members] - requests["queued"][members]
    return BatchSummary(
        row=row,
        id=history.batches.id_of(row),
        replica=history.slots.name_of(slot),
        formation=FORMATIONS[formation],
        reason=REASONS[reason],
        formed_s=columns.get(row, "formed"),
        started_s=started_s,
        finished_s=finished_s,
        waited_s=(float(waited.min()), float(waited.max())) if len(waited) else None,
        ran_s=None if started_s is None or until_s is None else max(until_s - started_s, 0.0),
        unit=history.unit,
        **{name: int(columns.get(row, name)) for name in ("number", "version", "size", "cap", "tokens")},
    )


def last_batch(history: History) -> BatchSummary | None:
    """The batch that finished last."""
    columns = history.batches.columns
    finished = np.where(np.isinf(columns["finished"]), -np.inf, columns["finished"])
    if not len(finished) or np.isinf(finished.max()):
        return None
    return batch_summary(history, int(np.argmax(finished)) + columns.first)


def batch_running(history: History, at_s: float, slot: int | None = None) -> int | None:
    """The row of the batch that ran at that moment, in one slot or in any; of several, the one that started last."""
    columns = history.batches.columns
    runs = (columns["started"] <= at_s) & (columns["finished"] > at_s)
    if slot is not None:
        runs &= columns["slot"] == slot
    rows = np.flatnonzero(runs)
    return int(rows[np.argmax(columns["started"][rows])]) + columns.first if len(rows) else None


def members_of(history: History, batch: int) -> list[int]:
    """The rows of a batch's requests, in their order in the queue; empty where the batch is no longer kept.

    In `continuous` a request belongs to the batch in which it joined, and runs on through those that follow.
    """
    if not history.batches.columns.has(batch):
        return []
    if is_open(history, batch):
        return _running_beside(history, history.batches.columns, batch)
    return _in_order(history, history.requests.columns["batch"] == batch)


def companions_of(history: History, request: int) -> list[int]:
    """The rows of the requests in the batch of `request`, this one included, in their order in the queue.

    In `continuous` the rows of all requests that ran while it did.
    """
    batch = int(history.requests.columns.get(request, "batch"))
    if is_open(history, batch):
        return _running_beside(history, history.requests.columns, request)
    return members_of(history, batch)


def is_open(history: History, batch: int) -> bool:
    """Whether other requests could join the batch while it ran."""
    columns = history.batches.columns
    return columns.has(batch) and columns.get(batch, "formation") == CONTINUOUS


def _running_beside(history: History, table: Columns, row: int) -> list[int]:
    """The rows of the requests that ran in the same slot while this row of a table did."""
    slot, started_s, finished_s = (table.get(row, name) for name in ("slot", "started", "finished"))
    columns = history.requests.columns
    runs = (columns["slot"] == slot) & (columns["started"] < finished_s) & (columns["finished"] > started_s)
    return _in_order(history, runs)


def _in_order(history: History, chosen: Bools) -> list[int]:
    columns = history.requests.columns
    places = np.flatnonzero(chosen)
    order = np.argsort(columns["queued"][places], kind="stable")
    return [int(place) + columns.first for place in places[order]]
