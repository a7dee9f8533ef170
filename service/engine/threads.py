"""The threads a model computes with: as many as there are cores, and after everything else in line."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from pathlib import Path

import psutil
import torch

logger = logging.getLogger(__name__)

NICENESS = 10
LOWEST_PRIORITY = 19
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def prepare_engine_thread(device: torch.device | str, replicas: int = 1) -> None:
    """Set the calling thread up to compute on `device`; call it first thing in the thread that will.

    On the CPU torch gets the cores there are, shared among `replicas`, whatever ``OMP_NUM_THREADS`` says: Ray sets it
    to 1 in an actor. The thread is made nice, and torch's threads, which it spawns at its first computation, inherit
    that, so that the event loop, the proxy and the window are served before the model.
    """
    if torch.device(device).type != "cpu":
        return
    _be_nice()
    torch.set_num_threads(max(1, usable_cores() // replicas))


def usable_cores() -> int:
    """Physical cores that this process may use at once, by its affinity and its control group."""
    if not hasattr(os, "sched_getaffinity"):
        return psutil.cpu_count(logical=False) or 1
    logical = len(os.sched_getaffinity(0))
    share = (psutil.cpu_count(logical=False) or logical) / (psutil.cpu_count() or logical)
    return max(1, min(round(logical * share), _quota_cores() or logical))


def _quota_cores() -> int | None:
    """Cores that the control group grants, rounded up; ``None`` if it sets no limit."""
    with contextlib.suppress(OSError, ValueError):
        quota_us, period_us = _CGROUP_QUOTA.read_text().split()
        return -(-int(quota_us) // int(period_us))
    return None


def _be_nice() -> None:
    """Lower the priority of this thread below its process's; only Linux has one for each thread."""
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    niceness = os.getpriority(os.PRIO_PROCESS, os.getpid()) + NICENESS
    try:
        os.setpriority(os.PRIO_PROCESS, thread, min(niceness, LOWEST_PRIORITY))
    except OSError as error:
        logger.warning("The engine's thread keeps its priority: %s", error)
