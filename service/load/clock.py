"""Time as the load process knows it, so that tests can hold it in their hands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

TIMER_GRAIN_S = 0.0005  # uvloop rounds delays to whole milliseconds: half of one more keeps timers from ringing early


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """The monotonic time, and calls at a time to come."""

    def now(self) -> float: ...
    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer: ...


class LoopClock:
    """`time.monotonic` and the timers of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return time.monotonic()

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        delay_s = when_s - time.monotonic()
        if delay_s <= 0:
            return self._loop.call_soon(callback)
        return self._loop.call_later(delay_s + TIMER_GRAIN_S, callback)
