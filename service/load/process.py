"""What a process that generates load arranges for itself, so that it is not what is measured."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from service.load.generator import MOST_CONNECTIONS

OTHER_FILES: Final = 64


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes event loops: uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def spare_collector() -> None:
    """What is loaded by now stays: no need to look through it again and again while requests are timed."""
    gc.collect()
    gc.freeze()


def allow_connections() -> int:
    """Raise the limit of open files as far as it goes; the connections that it leaves room for."""
    try:
        import resource
    except ImportError:
        return MOST_CONNECTIONS
    wanted = MOST_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, soft - OTHER_FILES)


def on_signals(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """Call `end` in the loop when the program is asked to end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, end)
