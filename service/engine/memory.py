"""How much memory is free to this process. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

RESERVE: Final = 0.05
"""Of all memory: where less is left, Ray ends processes, those that run Serve among them.

See https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html, `RAY_memory_usage_threshold`.
"""

OWN_GROUPS: Final = Path("/proc/self/cgroup")
GROUPS_ROOT: Final = Path("/sys/fs/cgroup")


class ControlGroup(NamedTuple):
    """The files in which Linux reports the memory of a control group, and its limit.

    See https://docs.kernel.org/admin-guide/cgroup-v2.html and ../cgroup-v1/memory.html.
    """

    name: str  # of the controller in /proc/self/cgroup
    folder: str
    most: str
    used: str
    cached: tuple[str, str]  # in memory.stat: files that are kept as long as nothing else needs the memory


CONTROL_GROUPS: Final = (
    ControlGroup("", "", "memory.max", "memory.current", ("inactive_file", "active_file")),
    ControlGroup(
        "memory",
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)


def free_memory_bytes(own: Path = OWN_GROUPS, root: Path = GROUPS_ROOT) -> int:
    """What this process can still take before Ray intervenes, by the machine and, on Linux, by its control group."""
    machine = psutil.virtual_memory()
    free_bytes = int(machine.available - RESERVE * machine.total)
    try:
        paths = {
            name: path.lstrip("/") for _, name, path in (line.split(":", 2) for line in own.read_text().splitlines())
        }
    except (OSError, ValueError):
        return max(free_bytes, 0)
    return int(max(min([free_bytes, *(_left_bytes(kind, paths, root) for kind in CONTROL_GROUPS)]), 0))


def _left_bytes(kind: ControlGroup, paths: Mapping[str, str], root: Path) -> float:
    """Infinite where nothing limits it; within a container a group's files lie at the root."""
    for folder in (root / kind.folder / paths.get(kind.name, ""), root / kind.folder):
        with suppress(OSError, ValueError, KeyError):
            most = (folder / kind.most).read_text().strip()
            stat = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines())
            used = int((folder / kind.used).read_text()) - sum(int(stat[name]) for name in kind.cached)
            return math.inf if most == "max" else (1 - RESERVE) * int(most) - used
    return math.inf
