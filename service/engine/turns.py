"""Turns at a device that several threads compute on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A lock that is had in the order in which it was asked for.

    `threading.Lock` goes to whoever comes first: a thread that wants it again at once keeps all others waiting.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._line: deque[threading.Lock] = deque()

    @contextmanager
    def next(self) -> Iterator[None]:
        """Wait for one's turn, and have it."""
        mine = threading.Lock()
        with self._mutex:
            self._line.append(mine)
            if len(self._line) > 1:
                mine.acquire()  # held for us by whoever is before us
        with mine:
            try:
                yield
            finally:
                with self._mutex:
                    self._line.popleft()
                    if self._line:
                        self._line[0].release()
