"""Work that a process does as long as it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)


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
