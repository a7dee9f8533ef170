"""Lines in, lines out: standard input and output without ever blocking the event loop.

Both have a thread of their own on the bare file descriptor: this serves pipes, files and terminals on every system, and
a thread that hangs in it holds no lock that the end of the interpreter would wait for.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

import msgspec

from service.messages.load import LoadCommand
from service.messages.pipes import LineCutter, write_all

READ_BYTES = 64 * 1024
MOST_LINE_BYTES = 16 * 1024 * 1024

_decode = msgspec.json.Decoder(LoadCommand).decode


class BadCommandError(ValueError):
    """A line that is no command; the text is a sentence that says why."""


def parse_command(line: bytes) -> LoadCommand:
    """The command that a line of JSON holds; raises `BadCommandError`."""
    try:
        command: LoadCommand = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BadCommandError(f"The load process did not understand a command: {e}.") from e
    return command


class CommandReader:
    """Calls back in the event loop with each line of `fd`, and once at its end.

    The thread waits until what it has read is dealt with before it reads on, so commands cannot pile up.
    """

    def __init__(self, fd: int, on_line: Callable[[bytes | None], None], on_end: Callable[[], None]) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._on_line = on_line
        self._on_end = on_end
        self._dealt_with = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def _read(self) -> None:
        cutter = LineCutter(MOST_LINE_BYTES)
        with suppress(OSError):
            while chunk := os.read(self._fd, READ_BYTES):
                lines = cutter.feed(chunk)
                if lines and not self._hand_over(lines):
                    return
        with suppress(RuntimeError):  # the loop has closed meanwhile
            self._loop.call_soon_threadsafe(self._on_end)

    def _hand_over(self, lines: list[bytes | None]) -> bool:
        self._dealt_with.clear()
        try:
            self._loop.call_soon_threadsafe(self._deal_with, lines)
        except RuntimeError:
            return False
        self._dealt_with.wait()
        return True

    def _deal_with(self, lines: list[bytes | None]) -> None:
        try:
            for line in lines:
                self._on_line(line)
        finally:
            self._dealt_with.set()


class LineWriter:
    """Writes to `fd` from a thread; it says when it is free, as what it is given before would pile up."""

    def __init__(self, fd: int, on_free: Callable[[], None], on_broken: Callable[[], None]) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._on_free = on_free
        self._on_broken = on_broken
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        self._free = asyncio.Event()
        self._free.set()

    def start(self) -> None:
        threading.Thread(target=self._work, name="reports", daemon=True).start()

    @property
    def is_free(self) -> bool:
        return self._free.is_set()

    async def wait_until_free(self) -> None:
        await self._free.wait()

    def write(self, lines: bytes) -> None:
        self._free.clear()
        self._queue.put(lines)

    def _work(self) -> None:
        while True:
            lines = self._queue.get()
            try:
                write_all(self._fd, lines)
            except OSError:
                self._tell(self._on_broken)
                return
            self._tell(self._on_written)

    def _on_written(self) -> None:
        self._free.set()
        self._on_free()

    def _tell(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has closed meanwhile
            self._loop.call_soon_threadsafe(callback)
