"""What a process does beside its requests: tasks for as long as it lives, and the progress of loading a model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from service.messages.life import LoadProgress

logger = logging.getLogger(__name__)

SEND_S: Final = 0.1


def start_for_life(work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
    """Start `work`, which never ends by itself; if it does, the log says so, with the traceback.

    Nothing else would: no code awaits such a task, and a health check that finds it ended sees an exception only.
    """
    task = asyncio.get_running_loop().create_task(work, name=what)
    task.add_done_callback(_log_end)
    return task


def _log_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        logger.error(
            "%s has ended unexpectedly; Serve replaces this process. This is a fault of the service.",
            task.get_name(),
            exc_info=task.exception(),
        )


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
