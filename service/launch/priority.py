"""Lets the window and the load generator have the processor before the model, also where niceness alone does not."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

AUTOGROUP: Final = Path("/proc/self/autogroup")
NICENESS: Final = 10


def yield_to_other_sessions(autogroup: Path = AUTOGROUP) -> None:
    """Make this process's whole session nice.

    Linux with `sched_autogroup_enabled` first shares the processor out among sessions and heeds a thread's niceness
    only within one. The driver and all of Ray are a session of their own, so however nice the engine's threads are,
    they would take as much as the window does. At 5 one frame in a hundred takes 39 ms on two cores, at 10 it takes 23.
    """
    with contextlib.suppress(OSError):  # another system, or no such setting
        if autogroup.exists():
            autogroup.write_text(str(NICENESS))
