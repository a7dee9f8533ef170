"""Waiting for processes that are not our children."""

from __future__ import annotations

import asyncio
import os
from typing import Final

import psutil

POLL_S: Final = 0.2


async def ended(pid: int) -> None:
    """Return when process `pid` has ended, even if nobody has asked for its exit code yet."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux, or a kernel that forbids it
        await _ended_polled(pid)
        return
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    loop.add_reader(descriptor, signalled.set)
    try:
        await signalled.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def parent_ended(parent_pid: int | None) -> None:
    """Return when the process `parent_pid`, or ``None`` for the one that started this one, has ended."""
    starter = os.getppid()
    if parent_pid is not None:
        await ended(parent_pid)
        return
    if starter == 0:  # it lies outside of our container
        await asyncio.Event().wait()
    watcher = asyncio.ensure_future(ended(starter))
    await asyncio.sleep(0)
    if os.getppid() == starter:  # else it ended before we watched it, and its number may be another's by now
        await watcher
    watcher.cancel()


async def _ended_polled(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110 (no event tells it)
            await asyncio.sleep(POLL_S)
    except psutil.NoSuchProcess:
        return
