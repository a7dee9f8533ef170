"""Writes a file whole or not at all: what stood there before stays until the new one is safely on the disk.

A file that this program writes may hold prompts, so its owner alone may read it, whatever the umask.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from service.messages.text import UserError

OWNER_ONLY: Final = 0o600


class NotWrittenError(UserError):
    """A file could not be written; the one that was there before is untouched. Reads as a sentence for the user."""


def write_whole(path: Path, content: bytes, *, overwrite: bool = True) -> None:
    """Replace `path` by `content`, through a temporary file beside it that is synced and renamed.

    A pipe or a device cannot be replaced, and is written to.

    Raises:
        NotWrittenError: disk full, no right to write, no such folder, a file is there that is not to be overwritten, …
    """
    _write(path, (content,), lambda: f"{len(content):,} bytes", overwrite=overwrite)


def write_pieces(path: Path, pieces: Iterable[bytes]) -> int:
    """As `write_whole`, with content of which one piece is held at a time; returns how many bytes it has."""
    count = 0

    def counted() -> Iterable[bytes]:
        nonlocal count
        for piece in pieces:
            count += len(piece)
            yield piece

    _write(path, counted(), lambda: f"more than {count:,} bytes", overwrite=True)
    return count


def _write(path: Path, pieces: Iterable[bytes], size: Callable[[], str], *, overwrite: bool) -> None:
    try:
        if not overwrite:
            _write_new(path, pieces)
        elif is_special(path):
            with open(path, "wb") as file:
                file.writelines(pieces)
        else:
            _replace(path.resolve(), pieces)  # a link goes on to point to its file
    except OSError as error:
        raise NotWrittenError(_sentence(path, size(), error)) from error


def is_special(path: Path) -> bool:
    """Whether a pipe, a device or the like is there, which is neither a file nor a folder."""
    return path.exists() and not (path.is_file() or path.is_dir())


def _write_new(path: Path, pieces: Iterable[bytes]) -> None:
    """Take the name with an empty file, which no other program can do at the same time, and replace that."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    try:
        _replace(path, pieces)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def _replace(path: Path, pieces: Iterable[bytes]) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".batchscope.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, OWNER_ONLY)  # the umask may have taken even the owner's rights
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def _sentence(path: Path, size: str, error: OSError) -> str:
    do = "Choose another place."
    match error.errno:
        case errno.EEXIST:
            return f"{path} is there already. Choose another name, or say that it may be overwritten."
        case errno.ENOSPC | errno.EDQUOT:
            why = f"the disk is full; {size} are needed"
            do = "Free some space or choose another place."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            why = "there is no permission to write in that folder"
        case errno.ENOENT | errno.ENOTDIR:
            why = "that folder does not exist"
        case errno.EISDIR:
            why = "there is a folder of that name"
        case errno.EFBIG:
            why = f"a file of {size} is more than is allowed there"
        case _:
            why = error.strerror or str(error)
    return f"Could not write {path}: {why}. Nothing was overwritten. {do}"


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last; not every system can (Windows cannot open a folder)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
