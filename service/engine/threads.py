"""The threads a model computes with: one a core, and after everything else in line."""

from __future__ import annotations

import logging
import os
import sys
import threading

import torch

logger = logging.getLogger(__name__)

NICENESS = 10
LOWEST_PRIORITY = 19


def prepare_engine_thread(device: torch.device | str, cores: int) -> None:
    """Set the calling thread up to compute on `device`; call it first thing in the thread that will.

    On the CPU torch gets so many `cores`, whatever ``OMP_NUM_THREADS`` says: Ray sets it to 1 in an actor. The thread
    is made nice, and torch's threads, which it spawns at its first computation, inherit that, so that the event loop,
    the proxy and the window are served before the model.
    """
    if torch.device(device).type != "cpu":
        return
    _be_nice()
    torch.set_num_threads(cores)


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
