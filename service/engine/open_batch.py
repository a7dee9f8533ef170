"""A batch that rows join while it runs: rows that decode, and rows whose prompts are still read.

::

    join ──▶ waiting ──▶ joining (prompts, in parts) ──▶ running (a token each a step) ──▶ ends row by row

A part of the joining prompts goes through the model in the same pass as the next tokens of the running rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.batch import Batch, Forward
from service.engine.out_of_memory import Failure, MemoryLimit
from service.engine.row import Row
from service.messages.telemetry import BatchWork


class OpenBatch:
    """Two batches that make each step together, and become one when the prompts of the second are read."""

    def __init__(self, forward: Forward, rows: Sequence[Row], memory: MemoryLimit) -> None:
        self._forward = forward
        self._memory = memory
        self._waiting = list(rows)
        self._joining: Batch | None = None
        self._running: Batch | None = None
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
        if rows and len(self._waiting) > self._room():
            self._past = sum_of(self._past, BatchWork(splits=1))

    def for_step(self) -> list[Batch]:
        """The rows of the next step."""
        self._drop_ended()
        if self._joining is not None and self._joining.has_read:
            self._merge(self._joining)
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
        elif not self._room():
            return None
        if self._running is None or not self._waiting:
            return None
        if failure.is_out_of_memory:
            self._memory.lower(len(self._running.rows))
            self._past = sum_of(self._past, BatchWork(splits=1))
        self._running.rewind()
        return [row for row in self._waiting if not row.is_done]

    def _room(self) -> int:
        """For so many more there may be memory."""
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
        if self._joining is None and self._waiting and (room := self._room()):
            self._joining = Batch(self._forward, self._waiting[:room], is_open=True)
            self._waiting = self._waiting[room:]
        if self._joining is not None:
            self._joining.prefill_tokens = self._forward.tokens_beside(self._count_running(), len(self._joining.rows))

    def _merge(self, joining: Batch) -> None:
        if self._running is None:
            self._running = joining
        else:
            self._running.absorb(joining)
        self._joining = None

    def _drop_ended(self) -> None:
        if self._running is not None and all(row.is_done for row in self._running.rows):
            self._past, self._running = sum_of(self._past, self._running.work), None
        if self._joining is not None and all(row.is_done for row in self._joining.rows):
            self._past, self._joining = sum_of(self._past, self._joining.work), None


def sum_of(*works: BatchWork) -> BatchWork:
    return BatchWork(**{name: sum(getattr(work, name) for work in works) for name in BatchWork.__struct_fields__})
