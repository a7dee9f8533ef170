"""One call of the engine: a batch of rows from their first step to their last.

Others may join a batch that is open to them. A part of their prompts goes through the model in the same pass as the
next tokens of the running rows:

    join ──▶ waiting ──▶ joining (prompts, in parts) ──▶ running (a token each a step) ──▶ ends row by row
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from service.engine.batch import Batch, Forward, make_step, sum_of
from service.engine.compute_thread import ComputeThread
from service.engine.job import DeviceLostError, Emit, Progress
from service.engine.out_of_memory import Failure, MemoryLimit, attempt
from service.engine.row import Row
from service.messages.telemetry import BatchWork

logger = logging.getLogger(__name__)

_UNFIT_LOGITS = "The model computed values that are not numbers (NaN or infinite) for this prompt."

AdmitRows: TypeAlias = Callable[[BatchWork, bool], list[Row]]


class Decoding:
    """The steps of a batch, which may alternate with the steps of another batch in another thread."""

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
            logger.warning("A batch of %d failed: %s", len(rows), failure.text)
            if failure.is_of_lost_device:
                self._emit([row.fail(f"The device failed: {failure.text}") for row in rows])
                raise DeviceLostError(failure.text)
            if failure.is_out_of_memory and len(rows) > 1:
                self._memory.lower(len(rows) // 2)
                self._decode_parts(_halves(rows))
                return
            self._isolate(rows, failure)

    def _isolate(self, rows: list[Row], failure: Failure) -> None:
        """Give each of `rows` one more token, by halves, so that `failure` ends only those which cause it."""
        if len(rows) == 1:
            self._emit([rows[0].fail(f"The model failed on this request: {failure.text}")])
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
        progress: list[Progress] = []
        for batch, step in zip(batches, steps, strict=True):
            if step is not None:
                advances = zip(batch.rows, step.tokens, step.is_fit, strict=True)
                progress += [_advance(*each) for each in advances]
        return progress

    def _run_open(self, rows: list[Row], admit: AdmitRows) -> Failure | None:
        """As `_run`, while other rows join; they are added to `rows`."""
        open_batch, before = OpenBatch(self._forward, rows, self._memory), self.work
        rows[:] = self._end_cancelled(rows)
        while rows:
            batches = attempt(open_batch.for_step)
            progress = batches if isinstance(batches, Failure) else self._step(batches)
            self.work = sum_of(before, open_batch.work)
            if isinstance(progress, Failure):
                if progress.is_of_lost_device:
                    return progress
                joining = open_batch.put_back(progress)
                if joining is None:
                    return progress
                logger.warning("%d requests could not join: %s", len(joining), progress.text)
                if not progress.is_out_of_memory:  # else memory lacks for all of them at present
                    self._isolate(joining, progress)
                rows[:] = self._end_cancelled(rows)
            else:
                self._emit(progress)
                rows[:] = self._end_cancelled(rows)
                newcomers = admit(self.work, open_batch.can_join)
                open_batch.join(newcomers)
                rows += newcomers
        return None

    def _end_cancelled(self, rows: Iterable[Row]) -> list[Row]:
        """End the rows that were cancelled; returns the rows that are not done."""
        unfinished = _unfinished(rows)
        if cancelled := [row.cancel() for row in unfinished if row.sequence.is_cancelled]:
            self._emit(cancelled)
        return _unfinished(unfinished)


def _advance(row: Row, token: int, is_fit: bool) -> Progress:
    """Give the row its token. A row whose token can't be used, for whatever reason, ends alone."""
    if not is_fit:
        return row.fail(_UNFIT_LOGITS)
    progress = attempt(lambda: row.advance(token))
    if isinstance(progress, Failure):
        return row.fail(f"The text of this completion could not be written: {progress.text}")
    return progress


def _unfinished(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not row.is_done]


def _halves(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]


class OpenBatch:
    """Two batches that make each step together, and become one when the prompts of the second are read."""

    def __init__(self, forward: Forward, rows: Sequence[Row], memory: MemoryLimit) -> None:
        self._forward = forward
        self._memory = memory
        self._waiting = list(rows)
        self._joining: Batch | None = None
        self._running: Batch | None = None
        self._chunk_tokens = forward.joining_tokens  # of the rows that join now, from the first part to the last
        self._past = BatchWork()  # of batches that have ended

    @property
    def work(self) -> BatchWork:
        """All that was computed so far."""
        return sum_of(self._past, *(batch.work for batch in self._batches))

    @property
    def can_join(self) -> bool:
        """Whether a prompt that joins now would be read at once."""
        return not self._waiting and (self._joining is None or self._joining.has_read)

    def join(self, rows: Sequence[Row]) -> None:
        """Let these in as soon as there is memory for them."""
        self._waiting += rows
        if rows and len(self._waiting) > self._free_rows():
            self._past = sum_of(self._past, BatchWork(splits=1))

    def for_step(self) -> list[Batch]:
        """The rows of the next step."""
        self._drop_ended()
        if self._joining is not None and self._joining.has_read:
            if self._running is None:
                self._running = self._joining
            else:
                self._running.absorb(self._joining)
            self._joining = None
        self._begin_to_read()
        return self._batches

    def put_back(self, failure: Failure) -> list[Row] | None:
        """A step failed: returns the joining rows, which begin once more; ``None`` if all rows have to.

        They have to if no row joins, or if both were being made one batch.
        """
        if self._joining is not None:
            if self._joining.has_read:
                return None
            self._waiting = [*self._joining.rows, *self._waiting]
            self._past, self._joining = sum_of(self._past, self._joining.work), None
        elif not self._free_rows():
            return None
        if self._running is None or not self._waiting:
            return None
        if failure.is_out_of_memory:
            self._memory.lower(len(self._running.rows))
            self._past = sum_of(self._past, BatchWork(splits=1))
        self._running.rewind()
        return [row for row in self._waiting if not row.is_done]

    def _free_rows(self) -> int:
        """The number of further rows for which there may be memory."""
        most = self._memory.rows
        if most is None:
            return len(self._waiting)
        return max(most - self._count_running(), 0)

    def _count_running(self) -> int:
        return sum(not row.is_done for row in self._running.rows) if self._running is not None else 0

    @property
    def _batches(self) -> list[Batch]:
        return [batch for batch in (self._running, self._joining) if batch is not None]

    def _begin_to_read(self) -> None:
        self._waiting = [row for row in self._waiting if not row.is_done]
        is_beside = self._count_running() > 0
        if self._joining is None and self._waiting and (free := self._free_rows()):
            self._chunk_tokens = self._forward.joining_tokens
            most = min(free, self._chunk_tokens) if is_beside else free  # each has at least a token in a part
            self._joining = Batch(self._forward, self._waiting[:most], is_open=True)
            self._waiting = self._waiting[most:]
        if self._joining is not None:
            self._joining.prefill_tokens = self._chunk_tokens if is_beside else self._forward.prefill_tokens
            is_within = not is_beside or len(self._joining.rows) <= self._chunk_tokens
            assert is_within, "a step reads no more of the prompts that join than is allowed"

    def _drop_ended(self) -> None:
        if self._running is not None and all(row.is_done for row in self._running.rows):
            self._past, self._running = sum_of(self._past, self._running.work), None
        if self._joining is not None and all(row.is_done for row in self._joining.rows):
            self._past, self._joining = sum_of(self._past, self._joining.work), None
