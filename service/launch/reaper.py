"""Ends every process that descends from the driver: terminate, wait, kill.

Neither names nor parents tell them: both change. What they inherit does: a mark in the environment, drawn at each
start, and the driver's session. A process can leave the one or lose the other, but none of Ray's does both.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import psutil

MARK: Final = "BATCHSCOPE_INSTANCE"
POLL_S: Final = 0.05
KILL_LIMIT_S: Final = 5.0


class Lineage(msgspec.Struct, frozen=True):
    """What the descendants of one start inherit.

    Attributes:
        instance: the value of `MARK` in their environment.
        session: the process number of their session's leader, the driver.
    """

    instance: str
    session: int

    def members(self) -> list[psutil.Process]:
        """Those alive, without this process itself. One that has ended but was not yet asked for is not alive."""
        return [process for process in psutil.process_iter() if process.pid != os.getpid() and self._has(process)]

    def _has(self, process: psutil.Process) -> bool:
        try:
            is_member = self._is_in_session(process.pid) or self._has_mark(process)
            return is_member and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):  # gone, or somebody else's
            return False

    def _is_in_session(self, pid: int) -> bool:
        return hasattr(os, "getsid") and os.getsid(pid) == self.session

    def _has_mark(self, process: psutil.Process) -> bool:
        environment = Path(f"/proc/{process.pid}/environ")
        if environment.parent.exists():
            # Read as it is: a process that gives itself a title may blank the first entries, which psutil takes for
            # the end.
            return f"\0{MARK}={self.instance}\0".encode() in b"\0" + environment.read_bytes()
        return process.environ().get(MARK) == self.instance


def sweep(lineage: Lineage, *, patience_s: float, grace_s: float) -> list[psutil.Process]:
    """End all members of `lineage`; returns those that even the signal to kill did not end.

    Args:
        patience_s: how long they may take to end by themselves.
        grace_s: how long after they were asked to.
    """
    asked: set[int] = set()

    def ask(process: psutil.Process) -> None:
        if process.pid not in asked:
            asked.add(process.pid)
            process.terminate()

    steps = ((_leave_alone, patience_s), (ask, grace_s), (psutil.Process.kill, KILL_LIMIT_S))
    for end, limit_s in steps:
        survivors = _until_none(lineage, end, limit_s)
        if not survivors:
            break
    return survivors


def describe_exit(exit_code: int) -> str:
    """How a process ended, in words: "exit code 1", "signal SIGKILL"."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"


def _until_none(lineage: Lineage, end: Callable[[psutil.Process], None], limit_s: float) -> list[psutil.Process]:
    """Apply `end` to the members, also to those that come late, until there are none or the time is up."""
    deadline = time.monotonic() + limit_s
    while (members := lineage.members()) and time.monotonic() < deadline:
        for process in members:
            try:
                end(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        time.sleep(POLL_S)
    return members


def _leave_alone(process: psutil.Process) -> None:
    pass
