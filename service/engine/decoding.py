"""One call of the engine: a batch of rows from their first step to their last.

Others may join a batch that is open to them. A part of their prompts goes through the model in the same pass as the
next tokens of the running rows:

    join ──▶ waiting ──▶ joining (prompts, in parts) ──▶ running (a token each a step) ──▶ ends row by row
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from service.engine.batch import Forward, sum_of
from service.engine.compute_thread import ComputeThread
from service.engine.groups import Groups
from service.engine.job import DeviceLostError, Emit, Likelihoods, Progress
from service.engine.out_of_memory import Failure, MemoryLimit, attempt
from service.engine.row import Row
from service.engine.steps import Steps, Token
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
        try:
            if admit is not None:
                self._decode(rows, admit)
            else:
                self._decode_parts(self._memory.parts(rows))
        except DeviceLostError as lost:
            self._emit([row.fail(f"The device failed: {lost}") for row in _unfinished(rows)])
            raise

    def _decode_parts(self, parts: Sequence[list[Row]]) -> None:
        self.work = sum_of(self.work, BatchWork(splits=len(parts) - 1))
        for part in parts:
            self._decode(part)

    def _decode(self, rows: list[Row], admit: AdmitRows | None = None) -> None:
        while failure := self._run_open(rows, admit) if admit else self._run(rows):
            rows[:] = _unfinished(rows)
            logger.warning("A batch of %d failed: %s", len(rows), failure.text)
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
        groups, before = Groups(self._forward, live, is_whole=single_step), self.work
        steps = Steps(self._forward, groups, self._thread, is_single=single_step)
        while live:
            progress = _progress(steps.next())
            self.work = sum_of(before, steps.work)
            if isinstance(progress, Failure):
                return _of_a_present_device(progress)
            self._emit(progress)
            live = [] if progress and single_step else self._end_cancelled(rows)
        return None

    def _run_open(self, rows: list[Row], admit: AdmitRows) -> Failure | None:
        """As `_run`, while other rows join; they are added to `rows`."""
        groups, before = Groups(self._forward, rows, self._memory, is_open=True), self.work
        steps = Steps(self._forward, groups, self._thread)
        rows[:] = self._end_cancelled(rows)
        while rows:
            progress = _progress(steps.next())
            self.work = sum_of(before, steps.work)
            if isinstance(progress, Failure):
                joining = groups.put_back(_of_a_present_device(progress))
                if joining is None:
                    return progress
                logger.warning("%d requests could not join: %s", len(joining), progress.text)
                if not progress.is_out_of_memory:  # else memory lacks for all of them at present
                    self._isolate(joining, progress)
                rows[:] = self._end_cancelled(rows)
            else:
                self._emit(progress)
                rows[:] = self._end_cancelled(rows)
                newcomers = [] if steps.has_failed else admit(self.work, groups.can_join)
                groups.join(newcomers)
                rows += newcomers
        return None

    def _end_cancelled(self, rows: Iterable[Row]) -> list[Row]:
        """End the rows that were cancelled; returns the rows that are not done."""
        unfinished = _unfinished(rows)
        if cancelled := [row.cancel() for row in unfinished if row.sequence.is_cancelled]:
            self._emit(cancelled)
        return _unfinished(unfinished)


def _of_a_present_device(failure: Failure) -> Failure:
    """The failure; raises `DeviceLostError` where the device computes nothing any more."""
    if failure.is_of_lost_device:
        raise DeviceLostError(failure.text)
    return failure


def _progress(tokens: Sequence[Token] | Failure) -> list[Progress] | Failure:
    """Give each row its token, unless the row has ended since the step was launched."""
    return tokens if isinstance(tokens, Failure) else [_advance(*token) for token in tokens if not token.row.is_done]


def _advance(row: Row, token: int, is_fit: bool, likelihoods: Likelihoods | None) -> Progress:
    """Give the row its token. A row whose token can't be used, for whatever reason, ends alone."""
    if not is_fit:
        return row.fail(_UNFIT_LOGITS)
    progress = attempt(lambda: row.advance(token, likelihoods))
    if isinstance(progress, Failure):
        return row.fail(f"The text of this completion could not be written: {progress.text}")
    return progress


def _unfinished(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not row.is_done]


def _halves(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]
