"""The one thread in which a model computes, whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class Home:
    """Steps of batches that run side by side in several threads, computed in one of these, in turns.

    Not each in its own: OpenMP keeps a team of threads for everyone that computes, and as soon as all teams together
    have more threads than there are cores, they sleep at each barrier instead of waiting for it. On two cores that
    takes more than half of the speed, and the team of a thread that is idle counts.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        """To be called in the only thread of `executor`; without one every thread computes for itself."""
        self._executor = executor
        self._thread = threading.get_ident()
        self._guests: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()

    def compute(self, step: Callable[[], Result]) -> Result:
        """What `step` returns or raises; those who have asked before it come first."""
        if self._executor is None:
            return step()
        if threading.get_ident() == self._thread:
            self._compute_for_guests()
            return step()
        result: Future[Result] = Future()
        self._guests.put((step, result))
        self._executor.submit(self._compute_for_guests)  # in case no batch of its own runs there, which would do it
        return result.result()

    def _compute_for_guests(self) -> None:
        for _ in range(self._guests.qsize()):
            step, result = self._guests.get_nowait()
            try:
                result.set_result(step())
            except BaseException as error:
                result.set_exception(error)
