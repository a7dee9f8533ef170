"""Processes, threads and time of a simulation: one callback at a time, in an order that a seed decides.

A process is an event loop of its own, whose callbacks keep their order, as asyncio promises; which process or thread
comes next is drawn. So a process can be killed or stopped between any two callbacks, and nothing of it runs afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any
from weakref import WeakSet

from greenlet import greenlet

BEGIN_S = 1000.0
TAKES_S = (0.0, 0.0, 1e-5, 1e-4, 1e-3)
"""What a callback takes, with equal chances."""


class World:
    """The clock, the timers, and all that can run at the moment.

    Attributes:
        ran: the process of which something ran last.
        worked_s: what all callbacks have taken, one after the other.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_s = BEGIN_S
        self.worked_s = 0.0
        self.faults: list[str] = []
        self.processes: list[Process] = []
        self.ran: Process | None = None
        self._runnable: list[Runner] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def clock(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], None]) -> None:
        heappush(self._timers, (at_s, next(self._numbers), call))

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.call_at(self.now_s + delay_s, call)

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Run until `until` holds, or the clock reaches `limit_s`; returns whether it holds."""
        while not (is_so := until()) and self.now_s < limit_s and not self.faults:
            self._step()
        return is_so

    def close(self) -> None:
        """End every process; a thread in the middle of its work could not be collected."""
        for process in self.processes:
            process.kill()
            process.end_threads()

    def _step(self) -> None:
        if not self._runnable:
            assert self._timers, "everything waits and no timer is set: a deadlock"
            self.now_s = max(self.now_s, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self.now_s:
            heappop(self._timers)[2]()
        if self._runnable:
            runner = self._runnable[int(self.random.random() * len(self._runnable))]
            runner.step()
            self.ran = runner.process
            takes_s = TAKES_S[int(self.random.random() * len(TAKES_S))]
            self.worked_s += takes_s
            self.now_s += takes_s

    def add(self, runner: Runner) -> None:
        if runner.place < 0:
            runner.place = len(self._runnable)
            self._runnable.append(runner)

    def remove(self, runner: Runner) -> None:
        if runner.place >= 0:
            last = self._runnable.pop()
            if last is not runner:
                self._runnable[runner.place] = last
                last.place = runner.place
            runner.place = -1


class Runner:
    """What the world can give a turn; `place` is its own in the world's list, -1 while it cannot run."""

    place = -1
    process: Process

    def step(self) -> None:
        raise NotImplementedError


class Thread(Runner):
    """A thread of a process; it goes on until it sleeps or passes its turn."""

    current: Thread | None = None

    def __init__(self, process: Process, work: Callable[[], Any], on_end: Callable[[Any, BaseException | None], None]):
        self.process = process
        self._greenlet = greenlet(self._run)
        self._work, self._on_end = work, on_end

    def _run(self) -> None:
        try:
            result, error = self._work(), None
        except Exception as raised:
            result, error = None, raised
        self.process.leave(self)
        self._on_end(result, error)

    def step(self) -> None:
        Thread.current = self
        self._greenlet.switch()
        Thread.current = None

    def end(self) -> None:
        self._greenlet.throw()

    def sleep(self, seconds: float) -> None:
        self.process.world.remove(self)
        self.process.world.call_later(seconds, lambda: self.process.wake(self))
        self.pass_turn()

    def wait_for_ever(self) -> None:
        self.process.world.remove(self)
        self.pass_turn()

    def pass_turn(self) -> None:
        self._greenlet.parent.switch()


def running_thread() -> Thread:
    """The thread that calls this."""
    assert Thread.current is not None, "this is called in an event loop, which it would block"
    return Thread.current


class Process(asyncio.AbstractEventLoop, Runner):
    """A process is its event loop, and the threads that it starts.

    Attributes:
        awake_since_s: the end of its latest stop, which may be still to come.
        is_catching_up: it has been stopped, and has not run all callbacks since that have come meanwhile.
    """

    def __init__(self, world: World, name: str) -> None:
        self.process = self
        world.processes.append(self)
        self.world = world
        self.name = name
        self.is_alive = True
        self.on_death: list[Callable[[], None]] = []
        self.awake_since_s = 0.0
        self.is_catching_up = False
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._threads: dict[Thread, bool] = {}  # each with whether it is due

    # Life and death --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End it now, as SIGKILL does."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._ready.clear()
        for runner in (self, *self._threads):
            self.world.remove(runner)
        for call in self.on_death:
            call()

    def end_threads(self) -> None:
        for thread in list(self._threads):
            thread.end()

    def stop_for(self, seconds: float) -> None:
        """Stand still, as after SIGSTOP, until SIGCONT."""
        self.awake_since_s = max(self.awake_since_s, self.world.now_s + seconds)
        self.is_catching_up = True
        for runner in (self, *self._threads):
            self.world.remove(runner)
        self.world.call_at(self.awake_since_s, self._go_on)

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Those that have not ended; asyncio's own question looks through the tasks of all simulations."""
        return [task for task in self._tasks if not task.done()]

    @property
    def is_stopped(self) -> bool:
        return self.world.now_s < self.awake_since_s

    @property
    def is_awake(self) -> bool:
        return self.is_alive and not self.is_stopped

    def _go_on(self) -> None:
        if not self.is_alive or self.is_stopped:
            return
        if self._ready:
            self.world.add(self)
        for thread, is_due in self._threads.items():
            if is_due:
                self.world.add(thread)

    # Its turns -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        handle = self._ready.popleft()
        if not self._ready:
            self.world.remove(self)
            self.is_catching_up = False
        if not handle.cancelled():
            asyncio._set_running_loop(self)
            handle._run()  # as every event loop of asyncio does
            asyncio._set_running_loop(None)

    def wake(self, thread: Thread) -> None:
        if thread in self._threads:
            self._threads[thread] = True
            if self.is_alive and not self.is_stopped:
                self.world.add(thread)

    def leave(self, thread: Thread) -> None:
        del self._threads[thread]
        self.world.remove(thread)

    def _append(self, handle: asyncio.Handle) -> None:
        if self.is_alive:
            self._ready.append(handle)
            if not self.is_stopped:
                self.world.add(self)

    # An event loop, as asyncio wants it ------------------------------------------------------------------------------

    def time(self) -> float:
        return self.world.now_s

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)

        def fire() -> None:
            if not handle.cancelled():
                self._append(handle)

        self.world.call_at(when, fire)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.add(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """In a thread of its own, whatever the executor."""
        future = self.create_future()

        def end(result: Any, error: BaseException | None) -> None:
            self.call_soon(_settle, future, result, error)

        self._threads[thread := Thread(self, lambda: func(*args), end)] = False
        self.wake(thread)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.is_alive:
            self.world.faults.append(f"{self.name}: {context['message']}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: the timer finds out when it is due."""


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
