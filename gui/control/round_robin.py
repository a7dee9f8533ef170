"""Work that need not be done in every frame takes turns: one piece after each, so that no frame has to bear two."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Piece:
    """Work that is due again `every_s` after it was begun."""

    work: Callable[[], None]
    every_s: float
    due_s: float = 0.0


class Turns:
    """
    >>> done = []
    >>> turns = Turns(clock=lambda: 1.0)
    >>> turns.add(lambda: done.append("numbers"), every_s=0.25)
    >>> turns.add(lambda: done.append("rows"), every_s=0.1)
    >>> for _ in range(3):
    ...     turns.take()
    >>> done
    ['numbers', 'rows']
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pieces: list[_Piece] = []

    def add(self, work: Callable[[], None], every_s: float) -> None:
        """Let `work` have a turn so often, or as soon after as its turn comes."""
        self._pieces.append(_Piece(work, every_s))

    def take(self) -> None:
        """Do the piece that has been due longest, if any is due."""
        now_s = self._clock()
        piece = min(self._pieces, key=lambda each: each.due_s)
        if piece.due_s <= now_s:
            piece.due_s = now_s + piece.every_s
            piece.work()
