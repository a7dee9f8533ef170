"""Child processes of this program: how they find our packages, and what their exit codes mean."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Final

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
