"""Work done in a child process that ends when we are done with it, whatever the reason.

    python -P -m service.engine.model.child PARENT_PID MODULE [ARGUMENT …]

runs a module as `python -m` does. On Linux the kernel kills that process as soon as the thread that started it ends,
however that came about; elsewhere a parent that is killed leaves it to finish by itself.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from service.messages.pipes import our_python, python_path

TICK_S = 0.25
GRACE_S = 2.0
REFUSED = 3  # the exit code of a child whose last line is a sentence for the user
TAIL_LINES = 40
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Outcome:
    """How a child ended: its exit code (negative: the signal), its last lines, and whether we ended it for its time."""

    code: int
    tail: tuple[str, ...]
    timed_out: bool = False

    @property
    def is_success(self) -> bool:
        return self.code == 0 and not self.timed_out

    @property
    def last_line(self) -> str:
        return next((line for line in reversed(self.tail) if line.strip()), "").strip()


def run_module(
    module: str,
    *arguments: str | Path,
    on_line: Callable[[str], None] = lambda line: None,
    on_tick: Callable[[], None] = lambda: None,
    limit_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `python -m module` to its end, give its lines to `on_line`, and call `on_tick` several times a second.

    An exception in this thread, also `KeyboardInterrupt` and `SystemExit`, ends the child before it goes on.
    """
    deadline_s = None if limit_s is None else time.monotonic() + limit_s
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    command = [*our_python("service.engine.model.child", str(os.getpid())), module, *map(str, arguments)]
    with _started(command, environment) as (child, lines):
        while True:
            if deadline_s is not None and time.monotonic() > deadline_s:
                return Outcome(-1, tuple(tail), timed_out=True)
            on_tick()
            try:
                line = lines.get(timeout=TICK_S)
            except Empty:
                continue
            if line is None:
                on_tick()
                return Outcome(child.wait(), tuple(tail))
            tail.append(line)
            on_line(line)


@contextmanager
def _started(
    command: list[str], environment: Mapping[str, str] | None
) -> Iterator[tuple[subprocess.Popen[str], SimpleQueue[str | None]]]:
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **(environment or {}), "PYTHONPATH": python_path()},
    )
    lines: SimpleQueue[str | None] = SimpleQueue()
    reader = threading.Thread(target=_read, args=(child, lines), name="child-output", daemon=True)
    reader.start()
    try:
        yield child, lines
    finally:
        _end(child)
        reader.join(GRACE_S)


def _read(child: subprocess.Popen[str], lines: SimpleQueue[str | None]) -> None:
    """Put the child's lines into `lines`, then `None`: so that waiting for the next one can have a timeout."""
    assert child.stdout is not None
    with child.stdout as output:
        for line in output:
            lines.put(line.rstrip("\n"))
    lines.put(None)


def _end(child: subprocess.Popen[str]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def die_with_parent(parent_pid: int) -> None:
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the request reached the kernel
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
