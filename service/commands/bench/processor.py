"""The processor's name."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path
from typing import Final

CPUINFO: Final = Path("/proc/cpuinfo")


def processor_name(cpuinfo: Path = CPUINFO) -> str:
    """As Linux lists it, or else what the system calls its architecture."""
    with suppress(OSError):
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
