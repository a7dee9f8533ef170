"""Threads of the engine: one for each batch that runs, and one of them in which every step is computed.

Importing this module imports no torch, because `service.engine.cores` has to be heeded before torch is imported.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from heapq import heappop, heappush
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from service.engine.cores import FreeCores

Result = TypeVar("Result")

ENGINE_THREAD: Final = "engine"
"""The system's name for every thread that computes for the engine, also those that torch starts."""


class ComputeThread:
    """The one thread in which the steps of all batches are computed, in turns.

    Each batch runs in a thread of its own, but its steps do not: OpenMP keeps a team of threads for every thread that
    computes. As soon as all teams together have more threads than there are cores, they sleep at each barrier instead
    of waiting for it. On two cores that takes more than half of the speed, and the team of an idle thread counts.
    """

    def __init__(self, executor: Executor | None = None, cores: FreeCores | None = None) -> None:
        """Is called in the only thread of `executor`; without an executor each thread computes its own steps.

        Before each step that this thread computes, torch gets as many cores as `cores` counts as free.
        """
        self._executor = executor
        self._cores = cores
        self._used_cores = cores and cores.count()
        self._places = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        self._thread = threading.get_ident()
        self._submitted: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()

    def compute(self, step: Callable[[], Result]) -> Result:
        """Returns or raises what `step` does, after the steps that were submitted before it."""
        if self._executor is None:
            return step()
        if threading.get_ident() == self._thread:
            self._compute_submitted()
            return self._computed(step)
        result: Future[Result] = Future()
        self._submitted.put((step, result))
        self._executor.submit(self._compute_submitted)  # in case no batch of its own runs there, which would do it
        return result.result()

    def _place(self, free_cores: int) -> None:
        """Bind the thread to its core where others compute beside it; where no core is free it goes to any.

        On its core it gets the share that one busy program leaves: on two cores beside two of them 16 users got 73
        tokens a second so, and 190 this way.
        """
        if free_cores == 1 or not hasattr(os, "sched_setaffinity"):
            return
        os.sched_setaffinity(0, self._places if free_cores else os.sched_getaffinity(os.getpid()))

    def _compute_submitted(self) -> None:
        for _ in range(self._submitted.qsize()):
            step, result = self._submitted.get_nowait()
            try:
                result.set_result(self._computed(step))
            except BaseException as error:
                result.set_exception(error)

    def _computed(self, step: Callable[[], Result]) -> Result:
        if self._cores is not None and (count := self._cores.count()) != self._used_cores:
            self._used_cores = count
            _use_cores(max(count, 1))
            self._place(count)
        return step()


def engine_executor() -> ThreadPoolExecutor:
    """An executor with one thread, which bears the name `ENGINE_THREAD`."""
    return ThreadPoolExecutor(1, thread_name_prefix=ENGINE_THREAD, initializer=_name_thread)


def _name_thread() -> None:
    """Name this thread for the system; the threads that torch starts from it inherit the name."""
    with contextlib.suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(ENGINE_THREAD)


class EngineThreads:
    """Lends threads to one event loop: the first one whenever it is idle, because the engine computes in it."""

    def __init__(self, first: ThreadPoolExecutor) -> None:
        self._numbers = itertools.count(1)
        self._idle = [(0, first)]  # a heap

    @contextmanager
    def one(self) -> Iterator[ThreadPoolExecutor]:
        """Lends a thread that no other batch has meanwhile."""
        if not self._idle:
            self._idle.append((next(self._numbers), engine_executor()))
        number, thread = heappop(self._idle)
        try:
            yield thread
        finally:
            heappush(self._idle, (number, thread))


logger = logging.getLogger(__name__)

NICENESS = 10


def prepare_engine_thread(device: str, cores: int) -> None:
    """Set the calling thread up to compute on `device`; call it first thing in the thread that will.

    On the CPU torch gets `cores` threads, whatever ``OMP_NUM_THREADS`` says: Ray sets it to 1 in an actor. The thread
    is made nice, and torch's threads, which it spawns at its first computation, inherit that, so that the event loop,
    the proxy and the window are served before the model. A process that is as nice itself, as the workers of a Ray
    that is not ours are, stays as it is: nicer still, its engine would starve beside any other program.
    """
    if device != "cpu":
        return
    _be_nice()
    _use_cores(cores)


def _use_cores(count: int) -> None:
    import torch

    torch.set_num_threads(count)


def _be_nice() -> None:
    """Give this thread a niceness of at least `NICENESS`; only Linux has one for each thread."""
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    niceness = max(os.getpriority(os.PRIO_PROCESS, os.getpid()), NICENESS)
    try:
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
    except OSError as error:
        logger.warning("The engine's thread keeps its priority: %s", error)
