"""Writes a recording so that all but its last second survives whatever ends the program.

An older file of the same name stays until the new one has begun; both are readable by their owner alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from service.analysis.recording.format import RecordedEvent, RecordingEnded, RecordingError, RecordingHeader
from service.analysis.recording.packer import Packer, packed_header
from service.messages.files import NotWrittenError, is_special, write_whole


class RecordingWriter:
    """Appends events; each second of them is compressed and handed to the system as one gzip member.

    Every method raises `RecordingError` where the disk refuses; what was written before can be read.

    Attributes:
        path: where to.
        bytes_written: so far.
    """

    def __init__(self, path: Path, header: RecordingHeader, *, overwrite: bool = False) -> None:
        """Begin the file; one that is there already is left alone unless `overwrite` says otherwise."""
        self.path = path
        self.bytes_written = 0
        self._packer = Packer()
        self._last_s = header.at_s
        head = packed_header(header)
        if overwrite and is_special(path):  # such as a pipe, whose reader would take a second opening for the end
            self._file = _opened(path, "wb")
            self.append(head)
        else:
            self._file = _begun(path, head, overwrite)
            self.bytes_written = len(head)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, at_s: float, event: RecordedEvent) -> None:
        """Record what was heard at `at_s` on the recorder's clock."""
        self._last_s = at_s
        self.append(self._packer.add(at_s, event))

    def flush(self) -> None:
        """Hand everything to the system."""
        self.append(self._packer.take())

    def close(self, at_s: float | None = None) -> None:
        """Write what is left and end the file in order, at `at_s` or with the last event; also where that fails."""
        if self._file.closed:
            return
        try:
            self.add(self._last_s if at_s is None else at_s, RecordingEnded())
            self.flush()
            self._sync()
        finally:
            self._file.close()

    def append(self, member: bytes | None) -> None:
        """Write a member that was packed elsewhere, if there is one."""
        if member is None:
            return
        rest = memoryview(member)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self.bytes_written)  # half a member is no use to anybody
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


def _begun(path: Path, head: bytes, overwrite: bool) -> FileIO:
    try:
        write_whole(path, head, overwrite=overwrite)
    except NotWrittenError as error:
        raise RecordingError(str(error)) from error
    return _opened(path, "ab")


def _opened(path: Path, mode: Literal["ab", "wb"]) -> FileIO:
    try:
        return open(path, mode, buffering=0)
    except OSError as error:
        raise RecordingError(f"Could not record to {path}: {error.strerror}.") from error
