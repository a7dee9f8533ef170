"""Work done in a child process that ends when we are done with it, whatever the reason."""

from __future__ import annotations

import os
import subprocess
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
TAIL_LINES = 40


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
    with _started(_command(module, arguments), environment) as (child, lines):
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


def _command(module: str, arguments: tuple[str | Path, ...]) -> list[str]:
    return [*our_python("service.engine.model.bound", str(os.getpid())), module, *map(str, arguments)]


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
