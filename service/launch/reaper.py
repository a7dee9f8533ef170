"""Ends every process that descends from the driver, also when the supervisor itself is killed.

Neither names nor parents identify these processes, since both change. Two things that they inherit do: a mark in the
environment, drawn at each start, and the driver's process group. A process can leave the group or lose the mark, but
no process of Ray's does both.

`python -m service.launch.reaper` outlives the supervisor. Its standard input holds a `ReapPlan` and ends when the
supervisor ends. This module imports no Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import psutil

from service.messages.pipes import our_python

MARK: Final = "BATCHSCOPE_INSTANCE"
POLL_S: Final = 0.05
KILL_LIMIT_S: Final = 5.0
RELEASE_LIMIT_S: Final = 20.0
ENDED_POLL_S: Final = 0.2


class Lineage(msgspec.Struct, frozen=True):
    """What the descendants of one start inherit.

    Attributes:
        instance: the value of `MARK` in their environment.
        group: their process group, which has the number of its leader, the driver.
    """

    instance: str
    group: int

    def members(self) -> list[psutil.Process]:
        """The processes that have not ended, without this one.

        A process that is exiting counts whosever it was: without memory it has no mark any more, but still has its
        files and ports, for a moment.
        """
        return [process for process in psutil.process_iter() if process.pid != os.getpid() and self._has(process)]

    def _has(self, process: psutil.Process) -> bool:
        try:
            thread = _living_thread(process)
            if thread is None:
                return False
            is_in_group = hasattr(os, "getpgid") and os.getpgid(process.pid) == self.group
            return is_in_group or _is_exiting(process.pid, thread) or self._has_mark(process, thread)
        except (psutil.Error, OSError):  # gone, or of another user
            return False

    def _has_mark(self, process: psutil.Process, thread: Path) -> bool:
        environment = thread / "environ"
        if thread.exists():
            # Read as it is: a process that gives itself a title may blank the first entries, which psutil takes for
            # the end.
            return f"\0{MARK}={self.instance}\0".encode() in b"\0" + environment.read_bytes()
        return process.environ().get(MARK) == self.instance


def _living_thread(process: psutil.Process) -> Path | None:
    """Where Linux describes a thread of a process: the first one, or one that is left; ``None`` if it has ended.

    A process is called a zombie when its first thread has ended. Its files and ports are open until the last one has.
    """
    about = Path(f"/proc/{process.pid}")
    if process.status() != psutil.STATUS_ZOMBIE:
        return about
    return next((thread for thread in about.glob("task/*") if thread.name != about.name), None)


def _is_exiting(pid: int, thread: Path) -> bool:
    """Whether the process has given its memory back; so looks a kernel thread too, whose process group is 0."""
    with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
        try:
            (thread / "exe").readlink()
        except FileNotFoundError:
            return Path("/proc/self").exists() and os.getpgid(pid) != 0
    return False


def reap(lineage: Lineage, *, drain_timeout_s: float, grace_s: float) -> list[psutil.Process]:
    """End all members of `lineage`; returns the ones that even the signal to kill did not end.

    Args:
        drain_timeout_s: how long they may take to end by themselves.
        grace_s: how long after they were asked to.
    """
    asked: set[int] = set()

    def ask(process: psutil.Process) -> None:
        if process.pid not in asked:
            asked.add(process.pid)
            process.terminate()

    steps = ((lambda _: None, drain_timeout_s), (ask, grace_s), (psutil.Process.kill, KILL_LIMIT_S))
    for end, limit_s in steps:
        survivors = _until_none(lineage, end, limit_s)
        if not survivors:
            break
    return [process for process in survivors if not _has_heeded(process)]


def _has_heeded(process: psutil.Process) -> bool:
    """Whether it has ended, or is about to and takes long."""
    try:
        thread = _living_thread(process)
    except psutil.NoSuchProcess:
        return True
    return thread is None or _is_exiting(process.pid, thread)


def describe_exit(exit_code: int) -> str:
    """How a process ended, in words: "exit code 1", "signal SIGKILL"."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"


def _until_none(lineage: Lineage, end: Callable[[psutil.Process], None], limit_s: float) -> list[psutil.Process]:
    """Apply `end` to the members, late ones included, until there are none or the time is up."""
    deadline = time.monotonic() + limit_s
    while (members := lineage.members()) and time.monotonic() < deadline:
        for process in members:
            try:
                end(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        time.sleep(POLL_S)
    return members


def deployed_file(directory: str) -> Path:
    """The note that our application runs on an external cluster: the cluster's address, and the application's name.

    The driver writes the note before it deploys and removes it with the application. A note that is still there says
    that the driver was killed between the two.
    """
    return Path(directory) / "deployed"


def release_forgotten(directory: str) -> None:
    """Delete the application on the external cluster if its note is still there."""
    note = deployed_file(directory)
    if not note.exists():
        return
    address, name = note.read_text().splitlines()
    command = our_python("service.ray_serve.clusters", address, name)
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, timeout=RELEASE_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"The application {name} on {address} could not be deleted in time.", file=sys.stderr)


class ReapPlan(msgspec.Struct, frozen=True):
    """What is ended and removed after the driver.

    Attributes:
        lineage: the processes to end.
        directory: the service's temporary files, removed when these processes have ended.
        drain_timeout_s, grace_s: as in `reap`.
    """

    lineage: Lineage
    directory: str
    drain_timeout_s: float
    grace_s: float

    def carry_out(self) -> list[str]:
        """End the processes and remove the files; returns what could not be ended, in words."""
        survivors = reap(self.lineage, drain_timeout_s=self.drain_timeout_s, grace_s=self.grace_s)
        release_forgotten(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        return [str(process) for process in survivors]


async def ended(pid: int) -> None:
    """Return when process `pid` has ended, even if its exit code has not been read yet."""
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
            await asyncio.sleep(ENDED_POLL_S)
    except psutil.NoSuchProcess:
        return


def main() -> None:
    for name in ("SIGINT", "SIGHUP", "SIGTERM"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    plan = sys.stdin.buffer.read()
    if plan:
        msgspec.json.decode(plan, type=ReapPlan).carry_out()


if __name__ == "__main__":
    main()
