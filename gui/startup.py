"""How long this process has been there, counted from its very beginning: the interpreter and all imports included."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil


def process_age_s() -> float:
    """Seconds since this process was created."""
    if sys.platform.startswith("linux"):
        # psutil adds the time of boot, which Linux tells in whole seconds only.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - psutil.Process().create_time()  # type: ignore[unreachable]  # mypy reads this file for Linux only
