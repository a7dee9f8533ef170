"""A thread for each batch that runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from heapq import heappop, heappush


class EngineThreads:
    """Lends threads to one event loop: the first whenever it is there, because the engine computes in it."""

    def __init__(self, first: ThreadPoolExecutor) -> None:
        self._numbers = itertools.count(1)
        self._idle = [(0, first)]  # a heap

    @contextmanager
    def one(self) -> Iterator[ThreadPoolExecutor]:
        """A thread that nobody else has meanwhile."""
        number, thread = heappop(self._idle) if self._idle else self._another()
        try:
            yield thread
        finally:
            heappush(self._idle, (number, thread))

    def _another(self) -> tuple[int, ThreadPoolExecutor]:
        return next(self._numbers), ThreadPoolExecutor(1, thread_name_prefix="engine")
