"""Texts of the status bar. No Qt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psutil

from service.analysis.observed.history import History
from service.analysis.observed.one_batch import last_batch

GIGABYTE: Final = 1e9
NVIDIA_GPUS: Final = Path("/proc/driver/nvidia/gpus")


def activity(history: History) -> str:
    """The last batch; under continuous formation the places that are taken."""
    batch = last_batch(history)
    if batch is None or batch.ran_s is None:
        return "No batch yet"
    if batch.formation == "continuous":
        running, waiting = (sum(getattr(each, stage) for each in history.replicas) for stage in ("running", "waiting"))
        places = batch.cap * max(len(history.replicas), 1)
        return f"{running} of {places} places taken" + (f", {waiting} waiting" if waiting else "")
    requests = "1 request" if batch.size == 1 else f"{batch.size} requests"
    return f"replica {batch.replica.removeprefix('r')}: batch {batch.number}, {requests}, {batch.ran_s:.2f} s"


def facts_at_rest() -> list[str]:
    """Cores, GPUs and free memory of the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = psutil.virtual_memory().available / GIGABYTE
    gpus = len(os.listdir(NVIDIA_GPUS)) if NVIDIA_GPUS.is_dir() else 0
    facts_known = [f"{cores} core{'s' if cores != 1 else ''}"]
    if gpus:
        facts_known.append(f"{gpus} GPU{'s' if gpus != 1 else ''}")
    return [*facts_known, f"{free:.1f} GB memory free"]


def facts(history: History, telemetry_per_s: float | None, frame_p99_ms: float | None) -> list[str]:
    """Facts about the running service, the least important first."""
    facts_known: list[str] = []
    if history.in_force is not None:
        facts_known.append(f"settings v{history.in_force.version}")
    if telemetry_per_s is not None:
        behind = "" if history.behind_s is None else f", {history.behind_s * 1e3:.0f} ms behind"
        facts_known.append(f"telemetry {telemetry_per_s:.0f}/s{behind}")
    if history.replicas:
        facts_known += _load(history)
    if frame_p99_ms is not None:
        facts_known.append(f"frame p99 {frame_p99_ms:.0f} ms")
    return facts_known


def _load(history: History) -> list[str]:
    replicas = history.replicas
    facts_known = [
        f"CPU {sum(r.cpu_percent for r in replicas):.0f} %",
        f"memory {sum(r.memory_bytes for r in replicas) / GIGABYTE:.1f} GB",
    ]
    gpus = [r.gpu_percent for r in replicas if r.gpu_percent is not None]
    memories = [r.gpu_memory_bytes for r in replicas if r.gpu_memory_bytes is not None]
    if gpus:
        facts_known.append(f"GPU {max(gpus):.0f} %")
    if memories:
        facts_known.append(f"GPU memory {sum(memories) / GIGABYTE:.1f} GB")
    return facts_known
