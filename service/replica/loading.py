"""How far a replica is with loading its model: from the thread that loads to whoever waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from service.engine.model.report import LoadProgress
from service.messages.life import Unit

logger = logging.getLogger(__name__)

TELL_S: Final = 0.1
_IN_ORDER: Final[tuple[Unit, ...]] = ("layers", "graphs")


class LoadingNews:
    """`note` is a `LoadReport`, called in the loading thread; `tell` gets what is new, at most every `TELL_S`."""

    def __init__(self, tell: Callable[[LoadProgress], Awaitable[Any]]) -> None:
        self._tell = tell
        self._latest: LoadProgress | None = None

    def note(self, progress: LoadProgress) -> None:
        self._latest = progress

    async def tell_on(self) -> None:
        """Until cancelled. Whoever cannot be told misses it: loading matters, telling does not."""
        told = None
        while True:
            await asyncio.sleep(TELL_S)
            latest = self._latest
            if latest is not None and latest != told:
                try:
                    await self._tell(latest)
                except Exception as error:
                    logger.warning("The progress of loading could not be told: %s", error)
                told = latest


def furthest_behind(loads: Iterable[LoadProgress]) -> LoadProgress | None:
    """The load for which all wait; ``None`` where there is none.

    >>> furthest_behind([LoadProgress("graphs", 3, 32), LoadProgress("layers", 20, 30)])
    LoadProgress(unit='layers', done=20, total=30)
    """
    return min(loads, key=lambda each: (_IN_ORDER.index(each.unit), each.done), default=None)
