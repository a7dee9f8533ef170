"""The keys and values of a batch in buffers with room to grow, so that a step writes one column and copies nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

_ROOM_COLUMNS = 64

Buffers: TypeAlias = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of each layer, [rows, heads, columns, size]."""


class BatchCache(Cache):  # type: ignore[misc]  # transformers is untyped
    """The cache of a batch, of which a forward pass may cover the first few rows only.

    The columns that such a pass writes stay zero in the other rows; to them they are padding.
    """

    def __init__(self, rows: int) -> None:
        super().__init__(layers=[])
        self.rows = rows

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        while len(self.layers) <= layer_idx:
            self.layers.append(_Layer(self.rows))
        keys, values = self.layers[layer_idx].update(key_states, value_states)
        return keys, values

    def append(self, other: BatchCache) -> None:
        """Take over the rows of `other`, behind one's own; all end in the same column."""
        self.rows += other.rows
        for layer, others in zip(self.layers, other.layers, strict=True):
            layer.append(others)

    def keep(self, rows: Sequence[int]) -> None:
        """Let row `rows[i]` be row i from now on; rows that are not named are dropped.

        A row that moves must come from beyond the new number of rows.
        """
        self.rows = len(rows)
        moves = [(source, target) for target, source in enumerate(rows) if source != target]
        for layer in self.layers:
            layer.keep(len(rows), moves)

    def rewind(self, columns: int) -> None:
        """Let the rows end after `columns` columns again."""
        for layer in self.layers:
            layer.length = columns

    def trim(self, columns: int) -> None:
        """Drop the first `columns` columns of all rows."""
        for layer in self.layers:
            layer.trim(columns)

    def is_in(self, buffers: Buffers) -> bool:
        return bool(self.layers) and self.layers[0].keys is buffers[0][0]

    def move_to(self, buffers: Buffers) -> None:
        """Copy what is held to the beginning of these, and go on there for as long as their room lasts."""
        for layer, (keys, values) in zip(self.layers, buffers, strict=True):
            layer.move_to(keys, values)

    def move_out(self) -> None:
        """Go on in buffers of one's own."""
        for layer in self.layers:
            layer.trim(0)

    def count_column(self) -> None:
        """The next column of all rows has been written."""
        for layer in self.layers:
            layer.length += 1


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values: buffers of [at least rows, heads, capacity, size] that are filled up to `length`."""

    keys: Tensor
    values: Tensor

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = self._buffer(key_states, 0)
        self.values = self._buffer(value_states, 0)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the columns of the first rows; returns all columns of these rows."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, start, end = key_states.shape[0], self.length, self.length + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            self._move(start=0, columns=start + max(end - start, start // 2) + _ROOM_COLUMNS)
        self.keys[:rows, :, start:end] = key_states
        self.values[:rows, :, start:end] = value_states
        self.length = end
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def append(self, other: _Layer) -> None:
        rows, end = self._rows + other._rows, max(self.length, other.length)
        if rows > self.keys.shape[0] or end > self.keys.shape[-2] or end > self.length:
            self._move(self.length - end, end + _ROOM_COLUMNS, rows=max(rows, min(self.keys.shape[0], 2 * rows)))
        begin = end - other.length
        for name in ("keys", "values"):
            own, new = getattr(self, name)[self._rows : rows], getattr(other, name)[: other._rows]
            own[:, :, :begin] = 0  # what another row has left there is padding now
            own[:, :, begin:end] = new[:, :, : other.length]
        self._rows = rows

    def keep(self, rows: int, moves: Sequence[tuple[int, int]]) -> None:
        self._rows = rows
        if moves:
            sources, targets = (list(side) for side in zip(*moves, strict=True))
            self.keys[targets, :, : self.length] = self.keys[sources, :, : self.length]
            self.values[targets, :, : self.length] = self.values[sources, :, : self.length]

    def trim(self, columns: int) -> None:
        columns = min(columns, self.length)
        self._move(columns, self.length - columns + _ROOM_COLUMNS)

    def move_to(self, keys: Tensor, values: Tensor) -> None:
        for name, new in (("keys", keys), ("values", values)):
            new[: self._rows, :, : self.length] = getattr(self, name)[: self._rows, :, : self.length]
            setattr(self, name, new)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def _move(self, start: int, columns: int, rows: int | None = None) -> None:
        """Move to buffers of `columns` and `rows` that begin with column `start`; a negative one stands for padding."""
        begin, end = max(-start, 0), self.length - start
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = self._buffer(old, columns, self._rows if rows is None else rows)
            new[: self._rows, :, begin:end] = old[: self._rows, :, max(start, 0) : self.length]
            setattr(self, name, new)
        self.length = end

    def _buffer(self, like: Tensor, columns: int, rows: int | None = None) -> Tensor:
        # Zeros, because what stands under padding is multiplied by a weight of zero, and zero times NaN is NaN.
        return like.new_zeros((self._rows if rows is None else rows, like.shape[1], columns, like.shape[3]))
