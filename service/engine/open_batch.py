"""A batch that others join while it runs: those who decode, and those whose prompts are still read.

::

    join ──▶ waiting ──▶ joining (prompts, in parts) ──▶ running (a token each a step) ──▶ ends row by row

A pass over prompts takes about as long as a step, however few they are. So there are steps between two of them, in
which others can come who then share the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.batch import Batch, Forward
from service.engine.failure import Failure
from service.engine.row import Row
from service.messages.settings import STEPS_BETWEEN_READINGS
from service.messages.telemetry import BatchWork


class OpenBatch:
    """Two batches that take turns, and become one when the prompts of the second are read.

    Attributes:
        only_joining: whether what was computed last concerns those who join, and nobody else.
    """

    def __init__(self, forward: Forward, rows: Sequence[Row]) -> None:
        self.only_joining = False
        self._forward = forward
        self._waiting = list(rows)
        self._joining: Batch | None = None
        self._running: Batch | None = None
        self._past = BatchWork()  # of batches that have ended
        self._steps_since_read = STEPS_BETWEEN_READINGS
        self._too_many: int | None = None  # beside so many running rows there was no memory for others

    @property
    def work(self) -> BatchWork:
        """All that was computed so far."""
        return sum_of(self._past, *(batch.work for batch in (self._running, self._joining) if batch is not None))

    @property
    def can_join(self) -> bool:
        """Whether those who came now would be read at once."""
        return not self._waiting and self._joining is None and self._is_time_to_read

    def join(self, rows: Sequence[Row]) -> None:
        """Let these in as soon as there is memory for them."""
        self._waiting += rows

    def turns(self) -> Iterator[Batch]:
        """Who is to make a step: those who join, in parts that the running ones can wait for, and then all."""
        self._drop_ended()
        is_first = self._running is None
        if self._is_time_to_read:
            self.only_joining = not is_first
            self._begin_to_read()
            if self._joining is not None:
                yield self._joining
                self._steps_since_read = 0
                self.only_joining = False
                self._merge()
            self.only_joining = False
        if self._running is not None and not is_first:
            yield self._running
            self._steps_since_read += 1

    def put_back(self, failure: Failure) -> list[Row]:
        """Those who join failed: let them begin once more; returns them."""
        if failure.is_out_of_memory and self._running is not None:
            self._too_many = len(self._running.rows)
        if self._joining is not None:
            self._waiting = list(self._joining.rows)
            self._past, self._joining = sum_of(self._past, self._joining.work), None
        return [row for row in self._waiting if not row.is_done]

    @property
    def _is_time_to_read(self) -> bool:
        is_idle = self._running is None or all(row.is_done for row in self._running.rows)
        return is_idle or self._steps_since_read >= STEPS_BETWEEN_READINGS

    def _begin_to_read(self) -> None:
        running = 0 if self._running is None else len(self._running.rows)
        self._waiting = [row for row in self._waiting if not row.is_done]
        is_too_many = self._too_many is not None and running >= self._too_many > 0
        if self._joining is None and self._waiting and not is_too_many:
            self._joining = Batch(self._forward, self._waiting, is_open=True)
            self._waiting = []
        if self._joining is not None:
            self._joining.prefill_tokens = self._forward.joining_tokens if running else self._forward.prefill_tokens

    def _merge(self) -> None:
        self._drop_ended()
        if self._joining is None or not self._joining.has_read:
            return
        if self._running is None:
            self._running = self._joining
        else:
            self._running.absorb(self._joining)
        self._joining = None

    def _drop_ended(self) -> None:
        if self._running is not None and all(row.is_done for row in self._running.rows):
            self._past, self._running = sum_of(self._past, self._running.work), None
        if self._joining is not None and all(row.is_done for row in self._joining.rows):
            self._past, self._joining = sum_of(self._past, self._joining.work), None


def sum_of(*works: BatchWork) -> BatchWork:
    return BatchWork(**{name: sum(getattr(work, name) for work in works) for name in BatchWork.__struct_fields__})
