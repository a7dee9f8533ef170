"""How far a replica is with loading its model: from the thread that loads to whoever waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from service.messages.life import LoadProgress

logger = logging.getLogger(__name__)

TELL_S: Final = 0.1


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
