"""The user's cache folder: locked while it is written, and never showing anything half written."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
from filelock import FileLock, Timeout

from service.messages.installation import cache_folder

MANIFEST: Final = "manifest.json"
LOCK_POLL_S: Final = 0.25
PART: Final = ".part"  # the ending of whatever is not finished yet


class FileEntry(msgspec.Struct, frozen=True):
    size: int
    sha256: str


class Source(msgspec.Struct, frozen=True):
    """The file that a folder was made from, and what it looked like then."""

    path: str
    size: int
    modified_ns: int
    sha256: str

    @classmethod
    def of(cls, path: Path, sha256: str) -> Source:
        status = path.stat()
        return cls(str(path), status.st_size, status.st_mtime_ns, sha256)

    def is_still(self, path: Path) -> bool:
        """Whether `path` is that file, and looks as it did then."""
        return self == Source.of(path, self.sha256)


class Manifest(msgspec.Struct, frozen=True):
    """Written last into a folder: what it was made from, and each of its files as it must be."""

    source: Source
    files: dict[str, FileEntry]


@contextmanager
def locked(name: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock called `name` against other processes and threads; `on_wait` is called while another has it."""
    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{name}.lock", thread_local=False)
    while True:
        try:
            lock.acquire(timeout=LOCK_POLL_S, poll_interval=LOCK_POLL_S / 5)
            break
        except Timeout:
            on_wait()
    try:
        yield
    finally:
        lock.release()


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def part_of(target: Path) -> Path:
    """Where `target` is put together; what an interrupted start left there is removed. Call it with the lock held."""
    part = target.with_name(target.name + PART)
    remove(part)
    part.parent.mkdir(parents=True, exist_ok=True)
    return part


def remove(path: Path) -> None:
    """Remove a file or a folder that may be there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def publish_file(part: Path, target: Path) -> None:
    """Put a finished file in its place, in one step and for good."""
    _sync(part)
    part.replace(target)
    _sync(target.parent)


def publish_folder(part: Path, target: Path, source: Source) -> None:
    """Put a finished folder in its place, in one step and for good, with its manifest."""
    files = {file.name: FileEntry(file.stat().st_size, sha256_of(file)) for file in sorted(part.iterdir())}
    (part / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(Manifest(source, files))))
    for file in part.iterdir():
        _sync(file)
    _sync(part)
    remove(target)
    part.rename(target)
    _sync(target.parent)


def read_manifest(folder: Path) -> Manifest | None:
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return None


def is_intact(folder: Path) -> bool:
    """Whether `folder` was published and every file is still, byte for byte, what it was then."""
    manifest = read_manifest(folder)
    return manifest is not None and all(_is_as_listed(folder / name, entry) for name, entry in manifest.files.items())


def _is_as_listed(path: Path, entry: FileEntry) -> bool:
    try:
        status = path.stat()
        # The size first: it needs no reading.
        return status.st_size == entry.size and _digest(path, status.st_mtime_ns, entry.size) == entry.sha256
    except OSError:
        return False


@lru_cache(maxsize=256)
def _digest(path: Path, modified_ns: int, size: int) -> str:
    """The file's digest, remembered for as long as the file looks unchanged."""
    return sha256_of(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
