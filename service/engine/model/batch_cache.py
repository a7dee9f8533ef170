"""The keys and values of a batch in buffers with room to grow, so that a step writes one column and copies nothing.

Those of all layers lie in one tensor, so that a row that moves, joins or ends is one copy and not one a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

ROOM_COLUMNS: Final = 64

Buffers: TypeAlias = Sequence[Tensor]
"""Each [keys and values of some layers, rows, heads, columns, size]."""


class OwnColumns(NamedTuple):
    """Where the next pass writes, which adds one column to each row, and how many columns it reads."""

    rows: Tensor  # 0, 1, …
    columns: Tensor  # of each row
    read: int


class NextColumns(NamedTuple):
    """Room for columns more behind what the first rows hold, in some layers.

    Attributes:
        keys, values: addresses of each layer's.
        strides: from one row, and from one head, to the next.
        read: the columns that are read, these included.
        ends: the column of each row that is the next; ``None`` if these are the last.
    """

    keys: NDArray[np.int64]
    values: NDArray[np.int64]
    strides: tuple[int, int]
    read: int
    ends: Tensor | None


class BatchCache(Cache):  # type: ignore[misc]  # transformers is untyped
    """The cache of a batch, of which a forward pass may cover the first few rows only.

    All rows end in the same column, unless they are `left_aligned`: then all begin in column 0, and what stands behind
    the end of a row is left from others or zero. The columns that a pass over some of the rows writes stay zero in the
    other rows; to them they are padding.
    """

    def __init__(self, rows: int, layers: int = 1, room: int = 0, *, left_aligned: bool = False) -> None:
        """Hold `rows` rows; memory is allocated when the first column comes.

        Args:
            layers: of the model; where they are more, or of different shapes, some have a tensor of their own.
            room: the columns that are expected; more are held as well, after a copy.
        """
        super().__init__(layers=[])
        self.left_aligned = left_aligned
        self.own_columns: OwnColumns | None = None
        self.rows = rows
        self._expected = layers
        self._room = room
        self._buffers: list[Tensor] = []
        self._addresses: NDArray[np.int64] | None = None  # of each layer's keys and values, once they were asked for

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        while len(self.layers) <= layer_idx:
            self.layers.append(_Layer())
        layer = self.layers[layer_idx]
        if not layer.is_initialized:
            layer.lie_in(*self._places(key_states, value_states, layer_idx))
            self._see()
        end = layer.length + key_states.shape[-2] if self.own_columns is None else self.own_columns.read
        if end > layer.keys.shape[-2]:
            self._make_room(end)
        return layer.update(key_states, value_states, self.own_columns)  # type: ignore[no-any-return]

    def next_columns(self, like: Tensor, layers: range) -> NextColumns:
        """Room in these layers, which are of one shape, for what the caller fills.

        `like`: keys or values of a layer, [rows, heads, columns, size].
        """
        while len(self.layers) < layers.stop:
            self.layers.append(_Layer())
        for index in layers:
            if not self.layers[index].is_initialized:
                self.layers[index].lie_in(*self._places(like, like, index))
                self._see()
        first, own, width = self.layers[layers.start], self.own_columns, like.shape[2]
        read = first.length + width if own is None or width > 1 else own.read
        if read > first.keys.shape[-2]:
            self._make_room(read)
        for index in layers:
            self.layers[index].length += width
        if self._addresses is None:
            places = [(each.keys.data_ptr(), each.values.data_ptr()) for each in self._begun]
            self._addresses = np.array(places)
        keys, values = self._addresses[layers.start : layers.stop].T
        ends = None if own is None or width > 1 else own.columns
        return NextColumns(keys, values, first.keys.stride()[:2], read, ends)

    @property
    def length(self) -> int:
        """Columns that are held, between two passes."""
        return self.layers[0].length if self.layers else 0

    def copy_of(self, row: int, first: int, columns: int) -> BatchCache:
        """A cache of `columns` columns of one row, from column `first` on."""
        copy = BatchCache(1, self._expected)
        copy._buffers = [buffer[:, row : row + 1, :, first : first + columns].clone() for buffer in self._buffers]
        copy._hold(columns, self)
        return copy

    def begin_with(self, beginnings: Sequence[tuple[BatchCache, int] | None], columns: int) -> None:
        """Hold `columns` columns before the first pass: those that are computed already.

        Each row ends with the first columns of a cache of one row: how many stands beside it. Before these, and in a
        row without such a cache, there is padding.
        """
        known = [(row, *each) for row, each in enumerate(beginnings) if each is not None]
        _, like, _ = known[0]
        self._buffers = [_zeros(each, self.rows, max(columns + ROOM_COLUMNS, self._room)) for each in like._buffers]
        for row, cache, count in known:
            for own, others in zip(self._buffers, cache._buffers, strict=True):
                own[:, row, :, columns - count : columns] = others[:, 0, :, :count]
        self._hold(columns, like)

    def begin_as(self, like: BatchCache, held: Buffers) -> None:
        """Hold the rows and columns of these before the first pass; `like` is a cache of the same model."""
        _, rows, _, columns, _ = held[0].shape
        self._buffers = [_zeros(each, self.rows, max(columns + ROOM_COLUMNS, self._room)) for each in like._buffers]
        for own, others in zip(self._buffers, held, strict=True):
            own[:, :rows, :, :columns] = others
        self._hold(columns, like)

    def _hold(self, columns: int, like: BatchCache) -> None:
        """Take what the buffers hold as the first `columns` columns; layers lie in them as in those of `like`."""
        self.layers.clear()  # of a first pass that failed
        for layer in like.layers:
            own = _Layer()
            if layer.is_initialized:
                own.lie_in(*layer.places)
                own.length = columns
            self.layers.append(own)
        self._see()

    def append(self, other: BatchCache) -> None:
        """Take over the rows of `other`, behind one's own."""
        before, rows, end = self.rows, self.rows + other.rows, max(self.length, other.length)
        held = self._buffers[0]
        shift = 0 if self.left_aligned else end - self.length
        if rows > held.shape[1] or end > held.shape[3] or shift:
            self._move(-shift, end + ROOM_COLUMNS, max(rows, min(held.shape[1], 2 * rows)))
        begin = 0 if self.left_aligned else end - other.length
        for own, others in zip(self._buffers, other._buffers, strict=True):
            own[:, before:rows, :, :begin] = 0  # what another row has left there is padding now
            own[:, before:rows, :, begin : begin + other.length] = others[:, : other.rows, :, : other.length]
        self.rows = rows
        self.rewind(end)

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Let row `sources[i]` be row `targets[i]` from now on; none of them is both."""
        for buffer in self._buffers:
            held = buffer[:, :, :, : self.length]
            held.index_copy_(1, targets, held.index_select(1, sources))

    def clear(self, rows: Sequence[int]) -> None:
        """Let nothing of these remain, not even for those that come to their places."""
        for buffer in self._buffers:
            for row in rows:
                buffer[:, row] = 0

    def rewind(self, columns: int) -> None:
        """Let the rows end after `columns` columns again."""
        for layer in self.layers:
            layer.length = columns

    def trim(self, columns: int) -> None:
        """Drop the columns of all rows that hold padding alone: the first `columns`, or the last if `left_aligned`."""
        columns = min(columns, self.length)
        if self.left_aligned:
            self.rewind(self.length - columns)
            return
        self._move(columns, self.length - columns + ROOM_COLUMNS, self.rows)

    def is_in(self, buffers: Buffers) -> bool:
        return bool(self._buffers) and self._buffers[0] is buffers[0]

    def move_to(self, buffers: Buffers) -> None:
        """Copy what is held to the beginning of these, and go on there for as long as their room lasts."""
        for new, old in zip(buffers, self._buffers, strict=True):
            new[:, : self.rows, :, : self.length] = old[:, : self.rows, :, : self.length]
        self._buffers = list(buffers)
        self._see()

    def move_out(self) -> None:
        """Go on in buffers of one's own."""
        self.trim(0)

    def count_column(self) -> None:
        """The next column of all rows has been written."""
        for layer in self.layers:
            layer.length += 1

    def like(self, rows: int, columns: int) -> list[Tensor]:
        """Empty buffers of this size for the same model."""
        return [_zeros(buffer, rows, columns) for buffer in self._buffers]

    def by_layer(self, buffers: Buffers) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer in them, [rows, heads, columns, size]."""
        return [(buffers[a][n], buffers[b][m]) for (a, n), (b, m) in (layer.places for layer in self._begun)]

    def _places(self, keys: Tensor, values: Tensor, layer: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where a layer's keys and values are: in which buffer, and at which place there."""
        is_uniform = layer < self._expected and keys.shape == values.shape
        if is_uniform and not self._buffers:
            every = keys.expand(2 * self._expected, *keys.shape)
            self._buffers.append(_zeros(every, self.rows, max(keys.shape[2] + ROOM_COLUMNS, self._room)))
        if is_uniform and keys.shape[1::2] == self._buffers[0].shape[2::2] and len(self._buffers[0]) > 1:
            return (0, 2 * layer), (0, 2 * layer + 1)
        columns = self._buffers[0].shape[3] if self._buffers else max(keys.shape[2] + ROOM_COLUMNS, self._room)
        first = len(self._buffers)
        self._buffers += [_zeros(each[None], self.rows, columns) for each in (keys, values)]
        return (first, 0), (first + 1, 0)

    def _make_room(self, columns: int) -> None:
        held = max(layer.length for layer in self.layers)
        self._move(0, max(columns, held + held // 2) + ROOM_COLUMNS, self.rows, held)

    def _move(self, start: int, columns: int, rows: int, held: int | None = None) -> None:
        """Move to buffers of `columns` and `rows` that begin with column `start`; a negative one stands for padding."""
        length = self.length if held is None else held
        begin, end = max(-start, 0), length - start
        moved = self.like(rows, columns)
        for new, old in zip(moved, self._buffers, strict=True):
            new[:, : self.rows, :, begin:end] = old[:, : self.rows, :, max(start, 0) : length]
        self._buffers = moved
        for layer in self.layers:
            layer.length -= start
        self._see()

    def _see(self) -> None:
        """Let the layers see where their keys and values are now."""
        self._addresses = None
        for layer, (keys, values) in zip(self._begun, self.by_layer(self._buffers), strict=True):
            layer.keys, layer.values = keys, values

    @property
    def _begun(self) -> list[Any]:
        return [layer for layer in self.layers if layer.is_initialized]


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values: [at least rows, heads, capacity, size], filled up to `length`."""

    keys: Tensor
    values: Tensor
    places: tuple[tuple[int, int], tuple[int, int]]

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def lie_in(self, keys: tuple[int, int], values: tuple[int, int]) -> None:
        self.places, self.is_initialized = (keys, values), True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The batch's cache has made room before."""

    def update(
        self, key_states: Tensor, value_states: Tensor, own: OwnColumns | None = None, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append the columns of the first rows; returns all columns of these rows that are read."""
        rows, start, end = key_states.shape[0], self.length, self.length + key_states.shape[-2]
        if own is not None:
            self.keys[own.rows, :, own.columns] = key_states[:, :, 0]
            self.values[own.rows, :, own.columns] = value_states[:, :, 0]
            self.length = end
            return self.keys[:rows, :, : own.read], self.values[:rows, :, : own.read]
        self.keys[:rows, :, start:end] = key_states
        self.values[:rows, :, start:end] = value_states
        self.length = end
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1


def _zeros(like: Tensor, rows: int, columns: int) -> Tensor:
    """Zeros, because what stands under padding is multiplied by a weight of zero, and zero times NaN is NaN."""
    return torch.zeros(len(like), rows, like.shape[2], columns, like.shape[4], dtype=like.dtype, device=like.device)
