"""What `python -m service` runs: it starts the driver, passes its states on, and leaves nothing behind.

    supervisor ─┬─▶ driver ──▶ Ray's processes        all of them carry the mark of this start
                └─▶ reaper                           waits for the supervisor's end

The supervisor imports no Ray, so that it can be relied upon: Ray's driver exits from under its caller, or hangs, when
one of Ray's processes dies. Each end takes the same way: the driver's input is closed, every process of the lineage is
terminated, and what stays is killed. When the supervisor itself is killed, the reaper does it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import re
import secrets
import signal
import sys
import tempfile
import threading
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
import psutil

from service.launch.reaper import MARK, Lineage, ReapPlan, describe_exit, ended, parent_ended
from service.messages.life import Failed, ProcessLost, Ready, ServiceState, Stopped, Stopping
from service.messages.options import RunOptions
from service.messages.pipes import our_python, python_path, write_all
from service.ray_serve.environment import driver_environment

GRACE_S: Final = 1.0
RELEASE_S: Final = 8.0  # for removing the application from an external cluster
REAPER_LIMIT_S: Final = 2.0
CAUSE_LIMIT_S: Final = 0.3
CLOSE_LIMIT_S: Final = 1.0
REPLACED_POLL_S: Final = 0.5
REPLACED: Final = {
    r"ray::ProxyActor\b": "Ray Serve's proxy",
    r"ray::ServeReplica:.*:Hub\b": "The hub, which reports what runs,",
    r"ray::ServeReplica:(?!.*:Hold\b)": "The last replica",
}
"""Kinds of processes that Ray Serve starts anew: their names for the user, by the titles that Ray gives them.

A method may be the end of a title. The first that matches counts.
"""

TRY_AGAIN: Final = "Start the service again; its log says more."


class DriverPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The start that the driver carries out, as JSON on its command line.

    Attributes:
        instance: the number drawn at this start.
        directory: ours alone, for temporary files; removed at the end.
        started_s: when the supervisor started, on the monotonic clock.
    """

    options: RunOptions
    instance: str
    directory: str
    started_s: float


class VitalProcesses(msgspec.Struct, frozen=True, tag_field="state", tag="vital"):
    """Processes that the service cannot do without and that nothing restarts: numbers by the names for the user."""

    pids: dict[str, int]


DriverMessage: TypeAlias = ServiceState | VitalProcesses


ASKED: Final = None
"""Stands for an end that was asked for, where another end is a `Failed`."""


def run_service(options: RunOptions, started_s: float) -> int:
    """Run the service until it ends; returns 0 after an orderly end, 1 after `Failed`."""
    lines = StateLines(sys.stdout.fileno())
    try:
        return asyncio.run(Supervisor(options, lines, started_s).run())
    finally:
        lines.close()


class Supervisor:
    """One run of the service."""

    def __init__(self, options: RunOptions, lines: StateLines, started_s: float) -> None:
        self._options = options
        self._lines = lines
        self._started_s = started_s
        self._instance = secrets.token_hex(8)
        self._decoder = msgspec.json.Decoder(DriverMessage)
        self._watchers: list[asyncio.Task[None]] = []

    async def run(self) -> int:
        self._end: asyncio.Future[Failed | None] = asyncio.get_running_loop().create_future()
        self._heed_signals()
        self._watch(self._end_with_parent())
        directory = private_directory()
        reaper = await _spawn("service.launch.reaper", environment=dict(os.environ))
        driver = await self._start_driver(directory)
        reap_plan = ReapPlan(
            lineage=Lineage(self._instance, driver.pid),
            directory=directory,
            drain_timeout_s=RELEASE_S if self._options.address is not None else 0.0,
            grace_s=GRACE_S,
        )
        _stdin(reaper).write(msgspec.json.encode(reap_plan))
        self._watch(self._relay(driver))
        end = await self._end
        exit_code = await self._finish(end, driver, reap_plan)
        for watcher in self._watchers:
            watcher.cancel()
        await self._dismiss(reaper)
        return exit_code

    # -- starting -----------------------------------------------------------------------------------------------------

    async def _start_driver(self, directory: str) -> Process:
        plan = DriverPlan(
            options=self._options, instance=self._instance, directory=directory, started_s=self._started_s
        )
        return await _spawn(
            "service.launch.driver",
            msgspec.json.encode(plan).decode(),
            environment={**driver_environment(self._options, self._instance), MARK: self._instance},
            stdout=PIPE,
        )

    # -- what ends it -------------------------------------------------------------------------------------------------

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGTTOU"):  # inherited: a terminal with `stty tostop` would stop children that log to it
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        for name in ("SIGTERM", "SIGINT", "SIGHUP"):
            if not hasattr(signal, name):
                continue
            number = getattr(signal, name)
            try:
                # Not `signal.signal`: one that comes just before the loop waits is heeded only after the next event.
                loop.add_signal_handler(number, self._end_because, ASKED)
            except NotImplementedError:  # on Windows the loop wakes up by itself
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self._end_because, ASKED))

    async def _end_with_parent(self) -> None:
        await parent_ended(self._options.parent_pid)
        self._end_because(ASKED)

    async def _end_with_vital(self, name: str, pid: int, driver: Process) -> None:
        await ended(pid)
        # Ray's processes end with the driver, and may be seen to first: then the driver's end is the reason.
        try:
            await asyncio.wait_for(driver.wait(), CAUSE_LIMIT_S)
        except TimeoutError:
            reason = f"Ray's {name} ended unexpectedly, and nothing works without it. {TRY_AGAIN}"
            self._end_because(Failed(reason=reason))

    async def _relay(self, driver: Process) -> None:
        """Pass on the driver's states until it ends."""
        assert driver.stdout is not None
        async for line in driver.stdout:
            self._on_driver_line(line, driver)
        exit_code = await driver.wait()
        reason = f"The service's main process ended unexpectedly ({describe_exit(exit_code)}). {TRY_AGAIN}"
        self._end_because(Failed(reason=reason, exit_code=exit_code))

    def _on_driver_line(self, line: bytes, driver: Process) -> None:
        try:
            message = self._decoder.decode(line)
        except msgspec.MsgspecError:
            print(line.decode(errors="replace"), end="", file=sys.stderr)
            return
        match message:
            case VitalProcesses(pids):
                for name, pid in pids.items():
                    self._watch(self._end_with_vital(name, pid, driver))
            case Failed():
                self._end_because(message)
            case _ if not self._end.done():
                self._lines.put(message)
                if isinstance(message, Ready) and self._options.address is None:
                    self._watch(self._report_lost(driver.pid))

    async def _report_lost(self, driver: int) -> None:
        """Report when of a kind of processes that Ray Serve replaces the last one has ended."""
        before: set[str] = set()
        driver_end = asyncio.create_task(ended(driver))
        while not driver_end.done():
            kinds = replaced_processes(driver)
            lost, before = before.difference(kinds.values()), set(kinds.values())
            if lost:
                await asyncio.sleep(2 * CAUSE_LIMIT_S)  # they end with a vital process, too
            if self._end.done():
                return
            for name in lost:
                self._lines.put(ProcessLost(name=name))
            ends = [asyncio.create_task(ended(pid)) for pid in kinds]
            look_again_s = REPLACED_POLL_S if len(before) < len(REPLACED) else None
            await asyncio.wait([driver_end, *ends], timeout=look_again_s, return_when=asyncio.FIRST_COMPLETED)
            for each in ends:
                each.cancel()

    def _end_because(self, end: Failed | None) -> None:
        """The first reason is the one that counts."""
        if not self._end.done():
            self._end.set_result(end)

    def _watch(self, work: Coroutine[Any, Any, None]) -> None:
        self._watchers.append(asyncio.create_task(work))

    # -- ending -------------------------------------------------------------------------------------------------------

    async def _finish(self, end: Failed | None, driver: Process, plan: ReapPlan) -> int:
        """Report why, end everything, report that it is done."""
        self._lines.put(end or Stopping())
        _stdin(driver).close()
        survivors = await asyncio.to_thread(plan.carry_out)
        await driver.wait()
        if survivors:
            reason = f"Some processes could not be ended: {', '.join(survivors)}. End them by hand."
            self._lines.put(Failed(reason=reason))
        elif end is ASKED:
            self._lines.put(Stopped())
        return 1 if survivors or end is not ASKED else 0

    async def _dismiss(self, reaper: Process) -> None:
        _stdin(reaper).close()
        try:
            await asyncio.wait_for(reaper.wait(), REAPER_LIMIT_S)
        except TimeoutError:
            reaper.kill()
            await reaper.wait()


class StateLines:
    """Writes states as JSON lines in a thread: a reader that does not read cannot keep the service from ending."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._states: queue.SimpleQueue[ServiceState | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True, name="state-lines")
        self._writer.start()

    def put(self, state: ServiceState) -> None:
        self._states.put(state)

    def close(self) -> None:
        """Wait until everything is written, as long as the reader reads."""
        self._states.put(None)
        self._writer.join(CLOSE_LIMIT_S)

    def _write(self) -> None:
        while (state := self._states.get()) is not None:
            try:
                write_all(self._descriptor, msgspec.json.encode(state) + b"\n")
            except OSError:  # the reader has gone
                return


def replaced_processes(driver: int) -> dict[int, str]:
    """The names of `REPLACED` by the numbers of the driver's processes that have one."""
    found = {}
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(driver).children(recursive=True):
            with suppress(psutil.Error):  # it has ended meanwhile
                title = " ".join(process.cmdline())
                if name := replaced_kind(title):
                    found[process.pid] = name
    return found


def replaced_kind(title: str) -> str:
    """The name of `REPLACED` for a process of this title; empty where it has none.

    >>> replaced_kind("ray::ServeReplica:Text-Completion-App:BatchTextGenerator.handle_request")
    'The last replica'
    >>> replaced_kind("ray::ServeReplica:Text-Completion-App:Hold")
    ''
    """
    return next((name for kind, name in REPLACED.items() if re.match(kind, title)), "")


def private_directory() -> str:
    """A new directory that only we can enter. Under /tmp where there is one: the paths of sockets must be short."""
    parent = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else None
    return tempfile.mkdtemp(prefix="batchscope-", dir=parent)


async def _spawn(module: str, *arguments: str, environment: Mapping[str, str], stdout: int = DEVNULL) -> Process:
    """A child in a process group of its own: Ctrl-C in the terminal reaches the supervisor alone.

    Its session stays that of the window, or of the terminal. Linux shares the processor out among sessions first
    (`sched_autogroup_enabled`), so window and service together get as much as any other program, and the niceness of
    the engine's threads counts between the two. A session of its own for the service makes frames wait: on two cores
    for up to 1.9 s, while that session has an ordinary share of the processor.
    """
    return await asyncio.create_subprocess_exec(
        *our_python(module, *arguments),
        stdin=PIPE,
        stdout=stdout,
        env={**environment, "PYTHONPATH": python_path(environment)},
        process_group=0,
    )


def _stdin(process: Process) -> asyncio.StreamWriter:
    assert process.stdin is not None
    return process.stdin
