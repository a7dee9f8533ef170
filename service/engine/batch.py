"""Rows of like length that are decoded together: one forward pass a step over the rows that are not done yet.

Rows are padded on the left, so that all of them end in the same column:

    column   0  1  2  3  4 | 5  6
    row 0    O  n  c  e  _ | u  p      pad 0, positions 0 … 6
    row 1    ·  ·  ·  H  i | !  _      pad 3, positions 0 … 3
             prompts       | one column a step

The longest row comes first. Prompts are read some columns at a time, and only by the rows that have begun, so that a
long prompt costs its short mates nothing, needs no memory for their padding, and can be cancelled half-way.

A batch whose prompts are read can take over the rows of another: these get the padding that lets all end together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Final

import torch
from torch import Tensor

from service.engine.model.batch_cache import BatchCache, OwnColumns
from service.engine.model.passes import ForwardPass, Part, Span
from service.engine.prefixes import Prefixes
from service.engine.row import Row
from service.engine.sampling import on_device
from service.messages.settings import Settings
from service.messages.telemetry import BatchWork

MOST_ROOM: Final = 256
"""Columns for tokens to come that are made room for at once; most completions end before."""

READ_COLUMNS: Final = 64
"""Columns of a prompt that are read at a time where a row's results must not depend on the others."""

ATTENDED_COLUMNS: Final = 128
"""There each row attends to the next multiple of these that holds its own columns, with a mask."""


class Forward:
    """A model's forward pass, and how the batches of one engine use it.

    Attributes:
        is_deterministic: a row's results do not depend on the rows beside it.
        is_ahead: a step is launched before the tokens of the one before are read.
        prefixes: beginnings of prompts that are known; ``None`` where each is read anew.
    """

    def __init__(
        self, compute: ForwardPass, device: torch.device, layers: int = 1, is_deterministic: bool = False
    ) -> None:
        self.device = device
        self.is_deterministic = is_deterministic
        self.layers = layers
        self.is_ahead = device.type == "cuda"
        # The columns of the longest prompt that a graph reads: quicker than to read on from a known beginning.
        self.graphed_columns: int = getattr(compute, "prompt_columns", 0)
        self.prefixes = None if is_deterministic else Prefixes()  # their sums are of passes of another shape
        # In one forward pass: about a quarter of a second on two cores.
        self.prefill_tokens = 512 if device.type == "cpu" else 8192
        # The same while other rows are decoded, which wait meanwhile.
        self.joining_tokens = Settings().chunk_tokens(device.type)
        # Columns of padding that a group of rows may have before it is divided. A further group costs operations in
        # each layer: on two cores as much time as 512 columns, on a GPU far more, since its graphs hold one group.
        self.free_padding = 512 if device.type == "cpu" else 65_536
        self.compute = compute


class Batch:
    """Rows, their cache and the tokens that are not in it yet; it `has_read` once all prompts are in the cache."""

    def __init__(
        self, forward: Forward, rows: Sequence[Row], *, is_open: bool = False, is_deterministic: bool = False
    ) -> None:
        """Begin with these rows.

        Args:
            is_open: others may take the places of rows that have ended: none is vacant.
            is_deterministic: a row's results do not depend on the rows beside it; all are of the same length now.
        """
        self.prefill_tokens = forward.prefill_tokens
        self.rows = sorted(rows, key=lambda row: row.length, reverse=True)
        self._forward = forward
        self._columns = 0  # in the cache
        self.has_read = False
        self.places = 0 if is_open else len(self.rows)
        self.work = BatchWork()
        width = self.rows[0].length
        assert not is_deterministic or self.rows[-1].length == width, "prompts are read without padding"
        self._is_deterministic = is_deterministic
        room = width + min(self._longest_left, MOST_ROOM)
        self._cache = BatchCache(len(self.rows), forward.layers, room, left_aligned=is_deterministic)
        self._set_pads([width - row.length for row in self.rows])
        padded = [[0] * pad + row.token_ids for pad, row in zip(self._pads, self.rows, strict=True)]
        self._unread = on_device(padded, forward.device)
        if forward.prefixes is not None:
            self._take_known(forward.prefixes)

    @torch.inference_mode()
    def _take_known(self, prefixes: Prefixes) -> None:
        """Begin behind the columns of which every row that has begun there has a known beginning."""
        found = [prefixes.find(row.token_ids) for row in self.rows]
        for row in self.rows:
            prefixes.note(row.prompt_ids)
        start = min(pad + (each.tokens if each else 0) for pad, each in zip(self._pads, found, strict=True))
        counts = [max(start - pad, 0) for pad in self._pads]
        if not sum(counts) or self._unread.shape[1] <= self._forward.graphed_columns:
            return
        self._cache.begin_with([each and (each.cache, n) for each, n in zip(found, counts, strict=True)], start)
        self._columns, self._unread = start, self._unread[:, start:]
        self.work = BatchWork(saved=sum(counts))

    def _keep_shared(self, prefixes: Prefixes) -> None:
        """The prompts are read: keep the beginnings that others have as well."""
        for number, row in enumerate(self.rows):
            if count := prefixes.wanted(row.prompt_ids):
                copy = self._cache.copy_of(number, self._pads[number], count)
                prefixes.keep(row.prompt_ids[:count], copy)

    def next_part(self) -> Part:
        """The columns to be put through the model next, of those rows that have begun before their end."""
        self._drop_done()
        end = self._next_end()
        active = self._active(end)
        ids, pads = self._unread[:active, : end - self._columns], self._pad_column[:active]
        assert ids.numel() <= max(self.prefill_tokens, active), "more than one column is read only where it is allowed"
        if self._is_deterministic:
            return self._deterministic_part(ids, pads, end)
        columns = torch.arange(end, device=ids.device)
        mask = columns >= pads if any(self._pads[:active]) else None
        positions = (columns[self._columns :] - pads).clamp_(min=0)
        return Part(ids, positions, mask, self._cache)

    def _deterministic_part(self, ids: Tensor, pads: Tensor, end: int) -> Part:
        positions = torch.arange(self._columns, end, device=ids.device) - pads
        if not self.has_read:
            self._cache.own_columns = None
            return Part(ids, positions, None, self._cache)
        spans = _spans([end - pad for pad in self._pads[: len(ids)]])
        read = max(span.columns for span in spans)
        rows = torch.arange(len(ids), device=ids.device)
        self._cache.own_columns = OwnColumns(rows, positions[:, 0], read)
        mask = torch.arange(read, device=ids.device) <= positions
        return Part(ids, positions, mask, self._cache, spans)

    def receiving(self, part: Part) -> Sequence[Row]:
        """The rows that get a token after `part`: all of them, or none while prompts are read."""
        return self.rows if self._is_last(part) else ()

    def advance(self, part: Part, tokens: Tensor, *, is_counted: bool) -> None:
        """`part` is in the cache now, and `tokens` come next if it was the last.

        The step `is_counted` in one of the batches that made it.
        """
        computed, columns = part.ids.numel(), part.ids.shape[1]
        is_last = self._is_last(part)
        done = BatchWork(
            steps=int(is_last and is_counted),
            computed=computed,
            padding=sum(min(max(pad - self._columns, 0), columns) for pad in self._pads[: len(part.ids)]),
            vacant=max(self.places - len(self.rows), 0) if is_last else 0,
            prompts=0 if self.has_read else computed,
        )
        self.work = sum_of(self.work, done)
        self._columns += columns
        self._unread = tokens[:, None] if is_last else self._unread[:, columns:]
        if is_last and not self.has_read and self._forward.prefixes is not None:
            self._keep_shared(self._forward.prefixes)
        self.has_read |= is_last
        if is_last:
            for row in self.rows:
                row.in_flight += 1

    def padding_with(self, other: Batch) -> int:
        """Columns of padding that both would have as one."""
        shorter = min(self, other, key=lambda batch: batch._columns)
        apart = abs(self._columns - other._columns)
        return sum(self._pads) + sum(other._pads) + apart * len(shorter.rows)

    @torch.inference_mode()
    def clear(self, rows: Collection[Row]) -> None:
        """Leave nothing of rows that hold NaN, which a graph would multiply with the zeros of a mask in later rows."""
        self._cache.clear([number for number, row in enumerate(self.rows) if row in rows])

    def rewind(self) -> None:
        """Forget what a pass that failed has left in the cache."""
        self._cache.rewind(self._columns)

    @torch.inference_mode()
    def absorb(self, other: Batch) -> None:
        """Go on with the rows of another batch as well; the prompts of both are read."""
        for batch in (self, other):
            batch._drop_done()
        columns = max(self._columns, other._columns)
        self._cache.append(other._cache)
        self._set_pads([pad + columns - batch._columns for batch in (self, other) for pad in batch._pads])
        self._columns = columns
        self._unread = torch.cat((self._unread, other._unread))
        self.rows = [*self.rows, *other.rows]
        self.work = sum_of(self.work, other.work)
        self.places += other.places

    def _drop_done(self) -> None:
        """Take the rows that are done out of the computation; the last rows move to their places."""
        rows = self.rows
        kept = [i for i, row in enumerate(rows) if not row.is_done]
        if len(kept) == len(rows):
            return
        moving = [i for i in kept if i >= len(kept)]
        order = [moving.pop() if rows[i].is_done else i for i in range(len(kept))]
        self.rows = [rows[i] for i in order]
        if moves := [(source, target) for target, source in enumerate(order) if source != target]:
            sources, targets = on_device(moves, self._forward.device).unbind(1)
            self._cache.move(sources, targets)
            self._unread = self._unread.index_copy(0, targets, self._unread.index_select(0, sources))
        self._cache.rows = len(kept)
        self._unread = self._unread[: len(kept)]
        self._set_pads([self._pads[i] for i in order])
        self._trim()

    def _is_last(self, part: Part) -> bool:
        return part.ids.shape[1] == self._unread.shape[1]

    def _next_end(self) -> int:
        """Up to which column to read next: at least one, and no more tokens at a time than are allowed."""
        start, stop = self._columns, self._columns + self._unread.shape[1]
        if self._is_deterministic:
            return min(stop, start + READ_COLUMNS)
        ends = range(start + 1, stop + 1)
        fitting = bisect_right(ends, self.prefill_tokens, key=lambda end: (end - start) * self._active(end))
        return ends[max(fitting, 1) - 1]

    @property
    def _longest_left(self) -> int:
        """Tokens that come at most."""
        return max(row.tokens_left for row in self.rows)

    def _active(self, end: int) -> int:
        """How many of the first rows hold all that have a token before column `end`."""
        return next(i for i in range(len(self._pads), 0, -1) if self._pads[i - 1] < end)

    def _set_pads(self, pads: list[int]) -> None:
        self._pads = pads
        self._pad_column = on_device(pads, self._forward.device)[:, None]

    def _trim(self) -> None:
        """Drop leading columns that are padding in every row, once they are a quarter of all."""
        spare = min(self._pads, default=0)
        if not spare or (4 * spare <= self._columns and not self._is_deterministic):
            return
        self._cache.trim(min(spare, self._columns))
        self._unread = self._unread[:, max(spare - self._columns, 0) :]
        self._columns = max(self._columns - spare, 0)
        self._set_pads([pad - spare for pad in self._pads])


def _spans(lengths: Sequence[int]) -> list[Span]:
    """Neighbouring rows of these lengths that attend to equally many columns, which depends on their lengths alone."""
    attended = [-(-length // ATTENDED_COLUMNS) * ATTENDED_COLUMNS for length in lengths]
    ends = list(accumulate(len(list(same)) for _, same in groupby(attended)))
    return [Span(first, end, attended[first]) for first, end in pairwise([0, *ends])]


def sum_of(*works: BatchWork) -> BatchWork:
    return BatchWork(**{name: sum(getattr(work, name) for work in works) for name in BatchWork.__struct_fields__})
