"""Writes a file whole or not at all: what stood there before stays until the new one is safely on the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path


class NotWrittenError(Exception):
    """A file could not be written; the one that was there before is untouched. Reads as a sentence for the user."""


def write_whole(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, through a temporary file beside it that is synced and renamed.

    Raises:
        NotWrittenError: disk full, no right to write, no such folder, …
    """
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise NotWrittenError(_sentence(path, content, error)) from error
    _sync_folder(path.parent)


def _sentence(path: Path, content: bytes, error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            why = f"the disk is full; {len(content):,} bytes are needed"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            why = "there is no permission to write in that folder"
        case errno.ENOENT | errno.ENOTDIR:
            why = "that folder does not exist"
        case errno.EISDIR:
            why = "there is a folder of that name"
        case errno.EFBIG:
            why = f"a file of {len(content):,} bytes is more than is allowed there"
        case _:
            why = error.strerror or str(error)
    return f"Could not write {path}: {why}. Nothing was overwritten."


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last; not every system can (Windows cannot open a folder)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
