"""Who ran in a batch, and who ran beside a request."""

from __future__ import annotations

import numpy as np

from service.analysis.observed.batches import CONTINUOUS
from service.analysis.observed.columns import Ints
from service.analysis.observed.history import History


def members_of(history: History, batch: int) -> list[int]:
    """The rows of a batch's requests, in their order in the queue; nobody where it is no longer kept.

    In `continuous` a request belongs to the batch in which it joined, and runs on through those that follow.
    """
    batches, requests = history.batches.columns, history.requests.columns
    if not batches.has(batch):
        return []
    if not is_open(history, batch):
        return _in_order(history, np.flatnonzero(requests["batch"] == batch))
    slot, started_s, finished_s = (batches.get(batch, name) for name in ("slot", "started", "finished"))
    return _in_order(history, _running_between(history, int(slot), started_s, finished_s))


def companions_of(history: History, request: int) -> list[int]:
    """The rows of its batch's requests, itself among them, in their order in the queue.

    In `continuous` of all that ran while it did.
    """
    requests = history.requests.columns
    batch = int(requests.get(request, "batch"))
    if not is_open(history, batch):
        return members_of(history, batch)
    slot, started_s, finished_s = (requests.get(request, name) for name in ("slot", "started", "finished"))
    return _in_order(history, _running_between(history, int(slot), started_s, finished_s))


def batch_running(history: History, slot: int, at_s: float) -> int | None:
    """The row of the batch that ran at that moment in the replica of this slot."""
    columns = history.batches.columns
    runs = (columns["slot"] == slot) & (columns["started"] <= at_s) & (columns["finished"] > at_s)
    rows = np.flatnonzero(runs)
    return int(rows[-1]) + columns.first if len(rows) else None


def is_open(history: History, batch: int) -> bool:
    """Whether others could join it while it ran."""
    columns = history.batches.columns
    return columns.has(batch) and columns.get(batch, "formation") == CONTINUOUS


def _running_between(history: History, slot: int, start_s: float, end_s: float) -> Ints:
    columns = history.requests.columns
    runs = (columns["slot"] == slot) & (columns["started"] < end_s) & (columns["finished"] > start_s)
    result: Ints = np.flatnonzero(runs)
    return result


def _in_order(history: History, places: Ints) -> list[int]:
    columns = history.requests.columns
    order = np.argsort(columns["queued"][places], kind="stable")
    return [int(place) + columns.first for place in places[order]]
