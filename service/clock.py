"""Which monotonic clock the times in messages are read from."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import psutil

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def monotonic_clock_id() -> str:
    """A text equal in all programs whose `time.monotonic` is the same clock: those of one machine since its boot."""
    if BOOT_ID.exists():
        return BOOT_ID.read_text().strip()
    return f"{platform.node()}-{psutil.boot_time():.0f}"
