"""All that is known of one request: its stages, its batch, who ran beside it, and what it waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gui.series.waits import wait_sentence
from service.analysis.observed import stages
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import BatchSummary, batch_summary, companions_of
from service.analysis.observed.requests import RequestRow
from service.analysis.observed.stages import Stage


@dataclass(frozen=True)
class RequestDetails:
    """
    Attributes:
        spans_s: seconds in each of its `stages`, so far where it is under way.
        batch: ``None`` as long as it has none.
        mates: the other members of its batch, or all that ran while it did where others could join, in their order in
            the queue.
        waited: the sentence on what it waited for.
    """

    request: RequestRow
    stages: tuple[Stage, ...]
    spans_s: tuple[float, ...]
    batch: BatchSummary | None
    mates: tuple[RequestRow, ...]
    waited: str

    @property
    def latency_s(self) -> float:
        return sum(self.spans_s)


def request_details(history: History, row: int) -> RequestDetails | None:
    """Of a row of the request table; ``None`` if it is no longer kept."""
    table = history.requests
    if not table.columns.has(row):
        return None
    spans = stages.durations(stages.marks(table.columns, np.array([row])), history.now_s())[0]
    batch = int(table.columns.get(row, "batch"))
    return RequestDetails(
        request=table.row(row),
        stages=stages.stages_of(history.unit),
        spans_s=tuple(np.nan_to_num(spans).tolist()),
        batch=batch_summary(history, batch),
        mates=tuple(table.rows(each for each in companions_of(history, row) if each != row)),
        waited=wait_sentence(history, row),
    )
