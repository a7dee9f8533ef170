"""Tables of numbers in contiguous numpy columns: rows join at one end and leave at the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.signedinteger[Any]]
Bools = NDArray[np.bool_]

FIRST_CAPACITY: Final = 1024


class Columns:
    """Rows numbered from 0 for ever, of which at most `max_rows` are kept; the oldest leave first.

    A column is read as a view (`table["name"]`), which is valid until the next row is added. An unknown value is
    blank: infinity in columns of floats (a time that has not come), -1 in columns of integers.

    >>> table = Columns(floats=(), integers=("size",), max_rows=2)
    >>> [table.append({"size": n}) for n in (4, 5, 6)]
    [0, 1, 2]
    >>> table.first, table["size"].tolist()
    (1, [5, 6])
    """

    def __init__(self, floats: Iterable[str], integers: Iterable[str], max_rows: int) -> None:
        self._max_rows = max_rows
        self._blank: dict[str, float] = {**dict.fromkeys(floats, math.inf), **dict.fromkeys(integers, -1)}
        self._columns: dict[str, NDArray[Any]] = {
            name: np.empty(FIRST_CAPACITY, np.float64 if math.isinf(blank) else np.int64)
            for name, blank in self._blank.items()
        }
        self._capacity = FIRST_CAPACITY
        self._start = 0
        self._stop = 0
        self.first = 0

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def next(self) -> int:
        """The number that the next row will get."""
        return self.first + len(self)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name][self._start : self._stop]

    def numbers(self) -> range:
        """The numbers of the rows that are kept, oldest first."""
        return range(self.first, self.next)

    def append(self, values: Mapping[str, float]) -> int:
        """Add a row, blank where `values` has no entry, and return its number."""
        if len(self) == self._max_rows:
            self.drop_before(self.first + 1)
        if self._stop == self._capacity:
            self._make_room()
        position = self._stop
        for name, column in self._columns.items():
            column[position] = values.get(name, self._blank[name])
        self._stop += 1
        return self.first + len(self) - 1

    def has(self, row: int) -> bool:
        return self.first <= row < self.next

    def get(self, row: int, name: str) -> float:
        value: float = self._columns[name][self._position(row)].item()
        return value

    def set(self, row: int, name: str, value: float) -> None:
        self._columns[name][self._position(row)] = value

    def put(self, rows: Sequence[int], name: str, values: Iterable[float | None]) -> None:
        """Set a column at many rows at once; ``None`` becomes the column's blank."""
        blank = self._blank[name]
        positions = np.fromiter(rows, np.int64, len(rows)) + (self._start - self.first)
        self._columns[name][positions] = [blank if value is None else value for value in values]

    def drop_before(self, row: int) -> None:
        """Forget the rows before `row`."""
        dropped = min(max(row - self.first, 0), len(self))
        self._start += dropped
        self.first += dropped

    def _position(self, row: int) -> int:
        if not self.has(row):
            raise IndexError(f"row {row} is not kept")
        return self._start + row - self.first

    def _make_room(self) -> None:
        """Move the rows to the front where a quarter of all places is free there, else into twice as many."""
        count = len(self)
        capacity = self._capacity if self._start >= self._capacity // 4 else 2 * self._capacity
        for name, column in self._columns.items():
            roomier = column if capacity == self._capacity else np.empty(capacity, column.dtype)
            roomier[:count] = column[self._start : self._stop].copy()
            self._columns[name] = roomier
        self._capacity, self._start, self._stop = capacity, 0, count
