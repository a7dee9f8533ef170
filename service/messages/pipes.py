"""Child processes of this program: how they find our packages, what their exit codes mean, and lines through pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Final

import msgspec

SOURCE_ROOT: Final = Path(__file__).resolve().parents[2]
"""The folder that holds our packages, `service` and `gui`."""


class ExitCode(IntEnum):
    """What the exit code of a command means."""

    DONE = 0
    INCOMPLETE = 1  # carried out, with failures
    CANNOT = 2  # a mistake of the user, or nothing could be done
    INTERRUPTED = 130  # as a shell reports Ctrl-C


def our_python(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module of ours. With -P a package of the same name in the current folder is not found."""
    return (sys.executable, "-P", "-m", module, *arguments)


def python_path(inherited: Mapping[str, str] = os.environ) -> str:
    """`PYTHONPATH` for such a command: the folder of our packages before what was inherited."""
    folders = [str(SOURCE_ROOT), *filter(None, inherited.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(folders))


def write_event(event: msgspec.Struct) -> None:
    """Write an event as a line of JSON to standard output."""
    with suppress(BrokenPipeError):  # the window is gone: the end of standard input says so, too
        sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
        sys.stdout.buffer.flush()


class LineCutter:
    """Takes bytes as they come, returns the lines that they complete; ``None`` stands for a line that was too long.

    >>> cutter = LineCutter(most_bytes=4)
    >>> cutter.feed(b"on"), cutter.feed(b"e\\r\\ntoo long\\nla"), cutter.flush()
    ([], [b'one', None], [b'la'])
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._rest = bytearray()
        self._is_too_long = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """The lines that `chunk` completes, without their ends."""
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes | None] = []
        for end in ends:
            self._add(end)
            lines += self.flush() if self._rest or self._is_too_long else [b""]
        self._add(rest)
        return lines

    def flush(self) -> list[bytes | None]:
        """The bytes that have no end of line yet, if there are any."""
        line = None if self._is_too_long else bytes(self._rest).removesuffix(b"\r")
        lines = [line] if self._is_too_long or self._rest else []
        self._rest.clear()
        self._is_too_long = False
        return lines

    def _add(self, part: bytes) -> None:
        if len(self._rest) + len(part) > self._most_bytes:
            self._is_too_long = True
            self._rest.clear()
        elif not self._is_too_long:
            self._rest += part


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of `content`, however little the reader takes at a time; raises `OSError` when the reader is gone."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
