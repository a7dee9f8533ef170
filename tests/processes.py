"""What tests ask of the processes of this machine."""

from __future__ import annotations

import psutil


def is_exiting(process: psutil.Process) -> bool:
    """Whether it has no command line any more. The reaper counts such a process as a member whosever it is."""
    try:
        return not process.cmdline()
    except psutil.NoSuchProcess:
        return True
