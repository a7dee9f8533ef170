"""How many rows memory holds, as far as it was found out the hard way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

REMEMBERED_S: Final = 60.0  # what a row needs depends on its length: after so long more are tried again

T = TypeVar("T")


class MemoryLimit:
    """Remembers the size that is left when a batch did not fit."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rows: int | None = None
        self._until_s = 0.0

    @property
    def rows(self) -> int | None:
        """So many at most; ``None`` where nothing is known."""
        return self._rows if self._clock() < self._until_s else None

    def lower(self, rows: int) -> None:
        """More than so many did not fit."""
        self._rows, self._until_s = max(rows, 1), self._clock() + REMEMBERED_S

    def parts(self, rows: Sequence[T]) -> list[list[T]]:
        """As few parts as fit, of about the same size."""
        most = self.rows
        if not rows or most is None:
            return [list(rows)]
        count = -(-len(rows) // most)
        return [list(rows[i * len(rows) // count : (i + 1) * len(rows) // count]) for i in range(count)]
