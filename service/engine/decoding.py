"""One call of the engine: a batch of rows from their first step to their last."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from service.engine.batch import Batch, Forward, Step, make_step
from service.engine.compute_thread import ComputeThread
from service.engine.job import Emit, Progress
from service.engine.open_batch import OpenBatch, sum_of
from service.engine.out_of_memory import Failure, MemoryLimit, attempt
from service.engine.row import Row
from service.messages.telemetry import BatchWork

logger = logging.getLogger(__name__)

_UNFIT_LOGITS = "The model computed values that are not numbers (NaN or infinite) for this prompt."

AdmitRows: TypeAlias = Callable[[BatchWork, bool], list[Row]]


class Decoding:
    """The steps of a batch, which may alternate with the steps of another batch in another thread.

    Attributes:
        work: what was computed.
    """

    def __init__(self, forward: Forward, memory: MemoryLimit, thread: ComputeThread, emit: Emit) -> None:
        self.work = BatchWork()
        self._forward = forward
        self._memory = memory
        self._thread = thread
        self._emit = emit

    def run(self, rows: list[Row], admit: AdmitRows | None = None) -> None:
        """Decode until all rows have ended, with those that `admit` lets join; see `TextEngine.generate`."""
        if admit is not None:
            self._decode(rows, admit)
        else:
            self._decode_parts(self._memory.parts(rows))

    def _decode_parts(self, parts: Sequence[list[Row]]) -> None:
        self.work = sum_of(self.work, BatchWork(splits=len(parts) - 1))
        for part in parts:
            self._decode(part)

    def _decode(self, rows: list[Row], admit: AdmitRows | None = None) -> None:
        while failure := self._run_open(rows, admit) if admit else self._run(rows):
            rows = _unfinished(rows)
            logger.warning("A batch of %d failed: %s", len(rows), failure)
            if failure.is_out_of_memory and len(rows) > 1:
                self._memory.lower(len(rows) // 2)
                self._decode_parts(_halves(rows))
                return
            self._isolate(rows, failure)

    def _isolate(self, rows: list[Row], failure: Failure) -> None:
        """Give each of `rows` one more token, by halves, so that `failure` ends only those which cause it."""
        if len(rows) == 1:
            self._emit([rows[0].fail(f"The model failed on this request: {failure}")])
            return
        for half in _halves(rows):
            if renewed := self._run(half, single_step=True):
                self._isolate(_unfinished(half), renewed)

    def _run(self, rows: list[Row], *, single_step: bool = False) -> Failure | None:
        """Compute `rows` from their tokens on until all are done, or for one token; returns what the model raised."""
        live = self._end_cancelled(rows)
        if not live:
            return None
        batch = self._thread.compute(lambda: attempt(lambda: Batch(self._forward, live)))
        if isinstance(batch, Failure):
            return batch
        try:
            return self._step_through(batch, rows, single_step)
        finally:
            self.work = sum_of(self.work, batch.work)

    def _step_through(self, batch: Batch, rows: list[Row], single_step: bool) -> Failure | None:
        while True:
            progress = self._step([batch])
            if isinstance(progress, Failure):
                return progress
            self._emit(progress)
            if (progress and single_step) or not self._end_cancelled(rows):
                return None

    def _step(self, batches: list[Batch]) -> list[Progress] | Failure:
        """The tokens of a step, none for a row whose prompt is not read yet."""
        steps = self._thread.compute(lambda: attempt(lambda: make_step(self._forward, batches)))
        if isinstance(steps, Failure):
            return steps
        return [each for batch, step in zip(batches, steps, strict=True) if step for each in _advance(batch.rows, step)]

    def _run_open(self, rows: list[Row], admit: AdmitRows) -> Failure | None:
        """As `_run`, while other rows join; they are added to `rows`."""
        open_batch, before = OpenBatch(self._forward, rows, self._memory), self.work
        rows[:] = self._end_cancelled(rows)
        while rows:
            batches = attempt(open_batch.for_step)
            progress = batches if isinstance(batches, Failure) else self._step(batches)
            self.work = sum_of(before, open_batch.work)
            if isinstance(progress, Failure):
                joining = open_batch.put_back(progress)
                if joining is None:
                    return progress
                self._rescue(joining, progress)
                rows[:] = self._end_cancelled(rows)
            else:
                self._emit(progress)
                rows[:] = self._end_cancelled(rows)
                newcomers = admit(self.work, open_batch.can_join)
                open_batch.join(newcomers)
                rows += newcomers
        return None

    def _rescue(self, joining: list[Row], failure: Failure) -> None:
        """One of the rows that were to join made the model fail, or memory lacks for all of them at present."""
        logger.warning("%d requests could not join: %s", len(joining), failure)
        if not failure.is_out_of_memory:
            self._isolate(joining, failure)

    def _end_cancelled(self, rows: Iterable[Row]) -> list[Row]:
        """End those of `rows` that were cancelled; returns those that are not done."""
        unfinished = _unfinished(rows)
        if cancelled := [row.cancel() for row in unfinished if row.sequence.is_cancelled]:
            self._emit(cancelled)
        return _unfinished(unfinished)


def _advance(rows: Sequence[Row], step: Step) -> list[Progress]:
    """Give each row its token. A row whose token can't be used, for whatever reason, ends alone."""
    return [_advance_row(*each) for each in zip(rows, step.tokens, step.is_fit, strict=True)]


def _advance_row(row: Row, token: int, is_fit: bool) -> Progress:
    if not is_fit:
        return row.fail(_UNFIT_LOGITS)
    progress = attempt(lambda: row.advance(token))
    if isinstance(progress, Failure):
        return row.fail(f"The text of this completion could not be written: {progress}")
    return progress


def _unfinished(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not row.is_done]


def _halves(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]
