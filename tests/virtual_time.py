"""An event loop whose clock stands still while anybody works, and leaps to the next timer when all wait."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _LeapingSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None:
            self.now_s += timeout
        elif not ready:
            raise RuntimeError("everybody waits and no timer is set: a deadlock")
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._leaping = _LeapingSelector()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.now_s


def run_in_virtual_time(main: Coroutine[Any, Any, Result]) -> Result:
    """Run `main` to its end without waiting for anything."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def now_s() -> float:
    return asyncio.get_running_loop().time()
