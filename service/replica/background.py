"""What a process does beside its requests: tasks and a watch for as long as it lives, and the progress of loading."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from service.messages.life import LoadProgress

logger = logging.getLogger(__name__)

SEND_S: Final = 0.1
LOOK_S: Final = 0.2
LOOP_LIMIT_S: Final = 5.0  # for one turn of an event loop, which usually takes milliseconds
FRAMES_SHOWN: Final = 8  # the innermost ones, of a loop that is stuck


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


def watch_turns(
    loop: asyncio.AbstractEventLoop,
    end: Callable[[float], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """From a thread of its own, watch `loop`, which runs in the calling thread, until it is closed or stuck.

    A health check is answered in that loop, so without this only time-outs of Serve's would end a process that is
    stuck. Time in which the whole process stood still does not count.

    Args:
        loop: that is asked for a turn every `LOOK_S`.
        end: called once with the seconds that a turn has taken, if these are more than `LOOP_LIMIT_S`; by default it
            ends this process.
        clock: gives seconds.
    """
    ended = end or partial(_end_process, threading.get_ident())
    threading.Thread(target=_look_at_turns, args=(loop, ended, clock), name="loop watch", daemon=True).start()


def _look_at_turns(loop: asyncio.AbstractEventLoop, end: Callable[[float], None], clock: Callable[[], float]) -> None:
    turned = threading.Event()
    while not loop.is_closed():
        with suppress(RuntimeError):  # it has been closed meanwhile
            loop.call_soon_threadsafe(turned.set)
        turning_s, looked_s = 0.0, clock()
        while not turned.wait(LOOK_S) and not loop.is_closed():
            looked_s, before_s = clock(), looked_s
            turning_s += min(looked_s - before_s, 2 * LOOK_S)
            if turning_s > LOOP_LIMIT_S:
                end(turning_s)
                return
        turned.clear()
        time.sleep(LOOK_S)


def _end_process(loop_thread: int, turning_s: float) -> None:
    logger.error(
        "The event loop has been at one thing for %.1f s, so this process ends, and Serve starts another. A check() or "
        "weight() that does not return does that. It stands here:\n%s",
        turning_s,
        "".join(traceback.format_stack(sys._current_frames().get(loop_thread), limit=FRAMES_SHOWN)),
    )
    os._exit(1)


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
