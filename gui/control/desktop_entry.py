"""`batchscope desktop`: Batchscope among the user's applications, as freedesktop.org's specifications have it.

Three files under XDG_DATA_HOME: the icon, the entry in the menu, and the type of recordings, which the entry opens.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import platformdirs

from service.messages.files import NotWrittenError, write_whole
from service.messages.pipes import SOURCE_ROOT, ExitCode
from service.messages.text import UserError

NAME: Final = "batchscope"
"""The name of the entry, by which a desktop knows whose window it shows."""

SOURCES: Final = SOURCE_ROOT / "assets" / "desktop"
ENTRY: Final = f"applications/{NAME}.desktop"
PLACES: Final = (f"icons/hicolor/scalable/apps/{NAME}.svg", f"mime/packages/{NAME}.xml", ENTRY)
EXEC: Final = f"Exec={NAME} "  # of the entry as it is shipped, for an installation on the PATH
INDEXERS: Final = {"update-mime-database": "mime", "update-desktop-database": "applications"}


def main(words: Sequence[str]) -> int:
    """Install the files or remove them, and say so; the exit code of the program."""
    parser = argparse.ArgumentParser(
        prog=f"{NAME} desktop",
        description="Put Batchscope into the menu of applications, with its icon, and let it open recordings (.bsr).",
    )
    parser.add_argument("action", nargs="?", choices=("install", "remove"), default="install")
    action = parser.parse_args(words).action
    folder = Path(platformdirs.user_data_path())
    try:
        print(install(Path(sys.argv[0]), folder) if action == "install" else remove(folder))
    except UserError as error:
        print(error, file=sys.stderr)
        return ExitCode.CANNOT
    return ExitCode.DONE


def install(program: Path, folder: Path) -> str:
    """Write the files below `folder`, for an entry that starts `program`; returns a sentence about it.

    Raises:
        UserError: this system has no such menu, `program` is none, or a file cannot be written.
    """
    if not sys.platform.startswith("linux"):
        raise UserError("Only desktops of Linux have such a menu. Make a shortcut to the command batchscope instead.")
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise UserError(f"A menu cannot start {program}. Call the command as: batchscope desktop")
    for place in PLACES:
        source = (SOURCES / Path(place).name).read_text(encoding="utf-8")
        path = folder / place
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotWrittenError(f"The folder {path.parent} could not be made: {error.strerror}.") from error
        write_whole(path, source.replace(EXEC, f"Exec={quoted(str(program.absolute()))} ").encode())
    _index(folder)
    return f"Batchscope is in the menu of applications and opens recordings (.bsr). The files for that are in {folder}."


def remove(folder: Path) -> str:
    """Remove what `install` wrote; returns a sentence about it."""
    removed = list(_removed(folder))
    if not removed:
        return f"There is nothing of Batchscope in {folder}."
    _index(folder)
    return f"Removed from {folder}: {', '.join(removed)}."


def quoted(argument: str) -> str:
    r"""An argument as the key Exec has it, by the rules for quotes, for field codes and for strings.

    >>> print(quoted("/opt/a b/$x"), quoted("100 %"))
    "/opt/a b/\\$x" "100 %%"
    """
    for sign in '\\"`$':
        argument = argument.replace(sign, f"\\{sign}")
    return f'"{argument}"'.replace("%", "%%").replace("\\", "\\\\")


def _removed(folder: Path) -> Iterator[str]:
    for place in PLACES:
        try:
            (folder / place).unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UserError(f"{folder / place} could not be removed: {error.strerror}.") from error
        yield place


def _index(folder: Path) -> None:
    """Let the desktop's tools note what has changed; a desktop without them reads the files themselves."""
    for tool, below in INDEXERS.items():
        if shutil.which(tool) is not None and (folder / below).is_dir():
            subprocess.run([tool, str(folder / below)], check=False, capture_output=True)
