"""The progress of loading a model, from the thread that loads it to the hub."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from service.messages.life import LoadProgress

logger = logging.getLogger(__name__)

SEND_S: Final = 0.1


class LoadingNews:
    """`note` is a `LoadReport`, called in the loading thread; `send` gets what is new, at most every `SEND_S`."""

    def __init__(self, send: Callable[[LoadProgress], Awaitable[Any]]) -> None:
        self._send = send
        self._latest: LoadProgress | None = None

    def note(self, progress: LoadProgress) -> None:
        self._latest = progress

    async def send_on(self) -> None:
        """Send until cancelled. What cannot be sent is lost, since it is only progress."""
        sent = None
        while True:
            await asyncio.sleep(SEND_S)
            latest = self._latest
            if latest is not None and latest != sent:
                try:
                    await self._send(latest)
                except Exception as error:
                    logger.warning("The progress of loading could not be sent: %s", error)
                sent = latest
