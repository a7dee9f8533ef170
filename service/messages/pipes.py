"""Child processes of this program: how they find our packages, what their exit codes mean, lines out of their bytes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the exit code of a command means."""

    DONE = 0
    INCOMPLETE = 1  # carried out, with failures
    CANNOT = 2  # a mistake of the user, or nothing could be done
    INTERRUPTED = 130  # as a shell reports Ctrl-C
