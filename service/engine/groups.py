"""The rows that are decoded together, in groups of like length: each is a batch, and all make each step together.

A batch reads as many columns of keys and values for each of its rows as the longest has. Beside one row of 1,400 tokens
seven short ones would read twenty times their own. A further group costs some operations a layer; so rows share one as
long as that costs less than the padding:

    lengths    1400 │ 60 55 41 20 │
    columns    1400 │ 60 60 60 60 │      1 + 4 rows in two groups, 64 columns of padding

Rows that join wait until their prompts are read, one group at a time, a part a step beside the rows that run. Where a
row's results must not depend on the others, a group that joins is of rows of the same length, and as many groups are
read at a time as a step may read parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, groupby

from service.engine.batch import READ_COLUMNS, Batch, Forward, sum_of
from service.engine.out_of_memory import Failure, MemoryLimit
from service.engine.row import Row
from service.messages.telemetry import BatchWork


class Groups:
    """The groups of one call of the engine, which rows may join."""

    def __init__(
        self,
        forward: Forward,
        rows: Sequence[Row],
        memory: MemoryLimit | None = None,
        *,
        is_open: bool = False,
        is_whole: bool = False,
    ) -> None:
        """Begin with these; nothing is computed before the first step.

        Args:
            memory: what limits the number of rows that run; without it all have room.
            is_open: others join, so that the place of a row that has ended is not vacant.
            is_whole: all rows are one group, whatever their lengths, and get each token in the same step.
        """
        self._forward = forward
        self._memory = memory
        self._is_open = is_open
        self._free_padding = None if is_whole else forward.free_padding
        self._is_deterministic = forward.is_deterministic and not is_whole
        # The shortest begin first, which wait least for the others so.
        self._waiting = list(rows) if is_open else sorted(rows, key=lambda row: row.length)
        self._joining: list[Batch] = []
        self._running: list[Batch] = []
        self._is_merging = False
        self._chunk_tokens = forward.joining_tokens  # of the rows that join now, from the first part to the last
        self._past = BatchWork()  # of batches that have ended

    @property
    def work(self) -> BatchWork:
        """All that was computed so far."""
        return sum_of(self._past, *(batch.work for batch in self._batches))

    @property
    def can_join(self) -> bool:
        """Whether a prompt that joins now would be read at once."""
        return not self._waiting and all(batch.has_read for batch in self._joining)

    @property
    def has_read(self) -> bool:
        """Whether the next step gives each row a token."""
        return self.can_join and all(batch.has_read for batch in self._batches)

    @property
    def goes_on(self) -> bool:
        """Whether rows that run need a further step than those that are launched, if none ends before `max_tokens`."""
        return any(not batch.has_read or any(row.tokens_left for row in batch.rows) for batch in self._batches)

    def clear(self, rows: Sequence[Row]) -> None:
        """Leave nothing in memory of these, which hold NaN."""
        for batch in self._batches if rows else ():
            batch.clear(rows)

    def join(self, rows: Sequence[Row]) -> None:
        """Let these in as soon as there is memory for them."""
        self._waiting += rows
        if rows and len(self._waiting) > self._free_rows():
            self._past = sum_of(self._past, BatchWork(splits=1))

    def for_step(self) -> list[Batch]:
        """The rows of the next step."""
        self._drop_ended()
        self._running += [batch for batch in self._joining if batch.has_read]
        self._joining = [batch for batch in self._joining if not batch.has_read]
        self._merge()
        self._begin_to_read()
        return self._batches

    def put_back(self, failure: Failure) -> list[Row] | None:
        """A step failed: returns the joining rows, which begin once more; ``None`` if all rows have to.

        They have to if no row joins, or if groups were being made one.
        """
        if self._is_merging or not self._running:
            return None
        if self._joining:
            self._waiting = [*(row for batch in self._joining for row in batch.rows), *self._waiting]
            self._past, self._joining = sum_of(self._past, *(batch.work for batch in self._joining)), []
        elif not self._free_rows():
            return None
        if not self._waiting:
            return None
        if failure.is_out_of_memory and self._memory is not None:
            self._memory.lower(sum(len(batch.rows) for batch in self._running))
            self._past = sum_of(self._past, BatchWork(splits=1))
        for batch in self._running:
            batch.rewind()
        return [row for row in self._waiting if not row.is_done]

    def _free_rows(self) -> int:
        """The number of further rows for which there may be memory."""
        most = None if self._memory is None else self._memory.rows
        if most is None:
            return len(self._waiting)
        return max(most - self._count_running(), 0)

    def _count_running(self) -> int:
        return sum(not row.is_done for batch in self._running for row in batch.rows)

    @property
    def _batches(self) -> list[Batch]:
        return [*self._running, *self._joining]

    def _merge(self) -> None:
        """Make one group of two, as long as that costs little padding; the older takes over the other."""
        self._is_merging = True
        while pair := next((pair for pair in combinations(self._running, 2) if self._belong(*pair)), None):
            pair[0].absorb(pair[1])
            self._running.remove(pair[1])
        self._is_merging = False

    def _belong(self, one: Batch, other: Batch) -> bool:
        return self._free_padding is None or one.padding_with(other) <= self._free_padding

    def _begin_to_read(self) -> None:
        self._waiting = [row for row in self._waiting if not row.is_done]
        is_beside = self._is_open and self._count_running() > 0
        if not self._joining and self._waiting and (free := self._free_rows()):
            self._chunk_tokens = self._forward.joining_tokens
            most = min(free, self._chunk_tokens) if is_beside else free  # each has at least a token in a part
            if self._is_deterministic:  # each has all columns of a part
                most = min(most, self._most_tokens(is_beside) // READ_COLUMNS)
            self._begin_with(self._waiting[:most])
        for batch in self._joining:
            batch.prefill_tokens = self._most_tokens(is_beside)
        is_within = not is_beside or sum(len(batch.rows) for batch in self._joining) <= self._chunk_tokens
        assert is_within, "a step reads no more of the prompts that join than is allowed"

    def _begin_with(self, rows: Sequence[Row]) -> None:
        """Let the group of the first of these rows join, or all of them in groups of the same length."""
        if self._is_deterministic:
            by_length = sorted(rows, key=lambda row: row.length)
            groups = [list(same) for _, same in groupby(by_length, key=lambda row: row.length)]
        else:
            groups = [like_the_first(rows, self._free_padding)]
        self._joining = [
            Batch(self._forward, group, is_open=self._is_open, is_deterministic=self._is_deterministic)
            for group in groups
        ]
        begun = [row for group in groups for row in group]
        self._waiting = [row for row in self._waiting if row not in begun]

    def _most_tokens(self, is_beside: bool) -> int:
        """Of prompts, in one pass."""
        return self._chunk_tokens if is_beside else self._forward.prefill_tokens

    def _drop_ended(self) -> None:
        """Leave out the groups of which every row has ended; the places of theirs are vacant in another."""
        ended = [batch for batch in self._batches if all(row.is_done for row in batch.rows)]
        self._past = sum_of(self._past, *(batch.work for batch in ended))
        self._running = [batch for batch in self._running if batch not in ended]
        self._joining = [batch for batch in self._joining if batch not in ended]
        for heir in self._batches[:1]:
            heir.places += sum(batch.places for batch in ended)


def like_the_first(rows: Sequence[Row], free_padding: int | None) -> list[Row]:
    """Of the rows those that belong to a group with the first one; all where padding costs nothing.

    The rows next to it in length come to it one by one, for as long as all together need no more padding.
    """
    if free_padding is None:
        return list(rows)
    ordered = sorted(rows, key=lambda row: row.length)
    low = high = ordered.index(rows[0])
    while low > 0 or high < len(ordered) - 1:
        wider = [(low - 1, high)] * (low > 0) + [(low, high + 1)] * (high < len(ordered) - 1)
        low_wider, high_wider = min(wider, key=lambda ends: _padding(ordered[ends[0] : ends[1] + 1]))
        if _padding(ordered[low_wider : high_wider + 1]) > free_padding:
            break
        low, high = low_wider, high_wider
    group = ordered[low : high + 1]
    return [row for row in rows if row in group]


def _padding(rows: Iterable[Row]) -> int:
    lengths = [row.length for row in rows]
    return len(lengths) * max(lengths) - sum(lengths)
