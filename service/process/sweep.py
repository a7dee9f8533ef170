"""Ends every process that carries a mark in its environment: terminate, wait, kill.

The mark is drawn at each start and inherited by all that the service starts, whatever they are called and whoever their
parent is by now.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Final

import psutil

MARK: Final = "BATCHSCOPE_INSTANCE"
POLL_S: Final = 0.05
KILL_LIMIT_S: Final = 5.0


def marked(instance: str) -> list[psutil.Process]:
    """Our own user's processes that carry the mark of `instance`; the dead and this one itself are left out."""
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _has_mark(process, instance)]


def sweep(instance: str, *, patience_s: float, grace_s: float) -> list[psutil.Process]:
    """End all marked processes; returns those that even the signal to kill did not end.

    Args:
        patience_s: how long they may take to end by themselves.
        grace_s: how long after they were asked to.
    """
    if _wait_until_none(instance, patience_s):
        return []
    asked: set[int] = set()

    def ask(process: psutil.Process) -> None:
        if process.pid not in asked:
            asked.add(process.pid)
            process.terminate()

    if not _wait_until_none(instance, grace_s, ask):
        _wait_until_none(instance, KILL_LIMIT_S, psutil.Process.kill)
    return marked(instance)


def describe_exit(exit_code: int) -> str:
    """How a process ended, in words: "exit code 1", "signal SIGKILL"."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"


def _wait_until_none(
    instance: str, limit_s: float, end: Callable[[psutil.Process], None] = lambda process: None
) -> bool:
    """Apply `end` to the marked processes, also to those that come late, until there are none or the time is up."""
    deadline = time.monotonic() + limit_s
    while survivors := marked(instance):
        if time.monotonic() >= deadline:
            return False
        for process in survivors:
            _without_race(end, process)
        time.sleep(POLL_S)
    return True


def _without_race(end: Callable[[psutil.Process], None], process: psutil.Process) -> None:
    try:
        end(process)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        pass


def _has_mark(process: psutil.Process, instance: str) -> bool:
    try:
        # A process that has ended but that nobody has asked for yet has no environment any more.
        return process.environ().get(MARK) == instance
    except (psutil.Error, OSError):  # gone, or somebody else's
        return False
