"""Writes recordings: to a file while it records, or the last minutes from memory.

A recording survives whatever ends the program, except for its last second. An older file of the same name stays until
the new one has begun; both are readable by their owner alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import Final, Literal

import msgspec

from service.analysis.recording.format import (
    MAGIC,
    Packer,
    RecordedEvent,
    RecordingEnded,
    RecordingError,
    RecordingHeader,
    packed_header,
)
from service.messages.files import NotWrittenError, is_special, write_whole

KEPT_S: Final = 600.0
MOST_BYTES: Final = 64 * 2**20  # packed


class RecordingWriter:
    """Appends events to a file; each second of them is compressed and handed to the system as one gzip member.

    Every method raises `RecordingError` where the disk refuses; earlier members stay readable.
    """

    def __init__(self, path: Path, header: RecordingHeader, *, overwrite: bool = False) -> None:
        """Begin the file; an existing one is left alone unless `overwrite` is set."""
        self.path = path
        self.bytes_written = 0
        self._packer = Packer()
        self._last_s = header.at_s
        head = packed_header(header)
        if overwrite and is_special(path):  # such as a pipe, whose reader would take a second opening for the end
            self._file = _opened(path, "wb")
            self.append(head)
        else:
            try:
                write_whole(path, head, overwrite=overwrite)
            except NotWrittenError as error:
                raise RecordingError(str(error)) from error
            self._file = _opened(path, "ab")
            self.bytes_written = len(head)

    def add(self, at_s: float, event: RecordedEvent) -> None:
        """Record an event that was heard at `at_s` on the recorder's clock."""
        self._last_s = at_s
        self.append(self._packer.add(at_s, event))

    def flush(self) -> None:
        """Hand everything to the system."""
        self.append(self._packer.take())

    def close(self, at_s: float | None = None) -> None:
        """Write the rest and end the file in order, at `at_s` or with the last event; closes it even if that fails."""
        if self._file.closed:
            return
        try:
            self.add(self._last_s if at_s is None else at_s, RecordingEnded())
            self.flush()
            self._sync()
        finally:
            self._file.close()

    def append(self, member: bytes | None) -> None:
        """Write a packed member, if there is one."""
        if member is None:
            return
        rest = memoryview(member)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self.bytes_written)  # half a member cannot be read
            self._file.close()
            raise RecordingError(self._full_sentence(len(member), error)) from error
        self.bytes_written += len(member)

    def _sync(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # pipes and the like cannot be synced
                raise RecordingError(f"The end of the recording {self.path} may be lost: {error.strerror}.") from error

    def _full_sentence(self, needed: int, error: OSError) -> str:
        why = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            why = f"the disk is full and {needed:,} bytes more are needed"
        elif error.errno == errno.EFBIG:
            why = f"the file may not grow by {needed:,} bytes"
        return (
            f"The recording {self.path} ended early: {why}. Its first {self.bytes_written:,} bytes can be opened. "
            "To go on recording, free some space or choose another place."
        )


def add_to(path: Path, at_s: float, event: RecordedEvent, *, is_ended: bool) -> None:
    """Add an event to a recording that is not written any more, after all others; one that `is_ended` stays so.

    `at_s` is the time of its last event. Raises `RecordingError`, and then the file is as it was.
    """
    packer = Packer()
    events = (event, RecordingEnded()) if is_ended else (event,)
    members = [packer.add(at_s, each) or b"" for each in events]
    added = b"".join([*members, packer.take() or b""])
    try:
        whole = path.stat().st_size
        with open(path, "rb") as file:
            if not file.read(len(MAGIC)).startswith(MAGIC):
                raise RecordingError(f"{path} is another program's result, to which no note is added.")
        with _opened(path, "ab") as file:
            if file.write(added) != len(added):
                file.truncate(whole)
                raise RecordingError(f"The note could not be written to {path}: its disk is full.")
    except OSError as error:
        raise RecordingError(f"The note could not be written to {path}: {error.strerror}.") from error


def _opened(path: Path, mode: Literal["ab", "wb"]) -> FileIO:
    try:
        return open(path, mode, buffering=0)
    except OSError as error:
        raise RecordingError(f"Could not record to {path}: {error.strerror}.") from error


class RecordingBuffer:
    """The last `kept_s` of packed events in memory, fewer where they take more than `most_bytes`."""

    def __init__(self, kept_s: float = KEPT_S, most_bytes: int = MOST_BYTES) -> None:
        self._kept_s = kept_s
        self._most_bytes = most_bytes
        self._packer = Packer()
        self._members: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._since_s: float | None = None
        self._last_s = 0.0

    @property
    def began_s(self) -> float | None:
        """The time of the oldest event that is held; ``None`` if there is none."""
        return self._members[0][0] if self._members else self._since_s

    def add(self, at_s: float, event: RecordedEvent) -> bytes | None:
        """Add an event; returns the member that it completes, which may also be written to a file."""
        self._since_s = at_s if self._since_s is None else self._since_s
        self._last_s = at_s
        return self._keep(self._packer.add(at_s, event))

    def flush(self) -> bytes | None:
        """Complete the present member and return it; ``None`` if it is empty."""
        return self._keep(self._packer.take())

    def save(self, path: Path, header: RecordingHeader, known: Iterable[RecordedEvent] = ()) -> None:
        """Write the events as a recording, whole or not at all; `header` may be of any moment.

        What was `known` at its beginning comes first. Raises `NotWrittenError`.
        """
        self.flush()
        began_s = header.at_s if self.began_s is None else self.began_s
        recorded_at = header.recorded_at - (header.at_s - began_s)
        header = msgspec.structs.replace(header, at_s=began_s, recorded_at=recorded_at)
        begin, end = Packer(), Packer()
        first = [begin.add(began_s, event) or b"" for event in known]
        end.add(max(self._last_s, began_s), RecordingEnded())
        held = (member for _, member in self._members)
        write_whole(path, b"".join([packed_header(header), *first, begin.take() or b"", *held, end.take() or b""]))

    def _keep(self, member: bytes | None) -> bytes | None:
        if member is not None and self._since_s is not None:
            self._members.append((self._since_s, member))
            self._bytes += len(member)
            self._since_s = None
            while len(self._members) > 1 and (
                self._bytes > self._most_bytes or self._members[1][0] < self._last_s - self._kept_s
            ):
                self._bytes -= len(self._members.popleft()[1])
        return member
