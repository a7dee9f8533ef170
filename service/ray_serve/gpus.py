"""Which replicas take a GPU, how many GPUs there are, and which one of them is shown to Ray."""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from typing import Final

import msgspec
import pynvml
import ray

from service.messages.life import StartError
from service.messages.options import ServiceOptions
from service.workloads.catalog import computes_on_device

VISIBLE_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"

_CUDA: Final = re.compile(r"cuda(?::(\d{1,3}))?")


def takes_gpu(options: ServiceOptions) -> bool:
    """Whether each copy of the engine is to have a GPU of its own."""
    if not computes_on_device(options.workload):
        return False
    return _CUDA.fullmatch(options.device) is not None or (options.device == "auto" and gpu_count() >= 1)


def gpu_count() -> float:
    """GPUs of the cluster, or of this machine where Ray has not started yet."""
    if ray.is_initialized():
        return float(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]
    try:
        pynvml.nvmlInit()
        return float(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0


def pin_gpu(options: ServiceOptions, environment: MutableMapping[str, str] = os.environ) -> ServiceOptions:
    """Hide all GPUs of this machine but the one that `cuda:N` names; the options returned name it `cuda`.

    To be called before Ray starts here, which inherits the environment and gives each replica one GPU, as number 0.
    """
    index = _cuda_index(options.device)
    if index is None:
        return options
    visible = environment.get(VISIBLE_VARIABLE)
    environment[VISIBLE_VARIABLE] = visible.split(",")[index] if visible else str(index)
    return msgspec.structs.replace(options, device="cuda")


def check_index(options: ServiceOptions) -> None:
    """Raise `StartError` for a GPU that no replica can have: Ray gives each one GPU, as number 0."""
    if takes_gpu(options) and _cuda_index(options.device):
        raise StartError(
            f"Ray chooses the GPU of each replica, so that the device {options.device} cannot be had here. Choose the "
            f"device cuda; with {VISIBLE_VARIABLE} a machine shows Ray only some of its GPUs."
        )


def check_count(options: ServiceOptions) -> None:
    """Raise `StartError` where Ray has fewer GPUs than the replicas take: it would wait for more for ever."""
    if not takes_gpu(options):
        return
    require_gpu(options.device)
    if options.replicas > gpu_count():
        raise StartError(
            f"Each of {options.replicas} replicas takes a GPU and Ray finds {gpu_count():g}. Choose fewer replicas, or "
            "the device cpu."
        )


def require_gpu(device: str) -> None:
    """Raise `StartError` where Ray has no GPU at all."""
    if not gpu_count():
        raise StartError(
            f"Ray finds no GPU for the device {device}. Choose the device cpu, or see that nvidia-smi finds one there."
        )


def _cuda_index(device: str) -> int | None:
    match = _CUDA.fullmatch(device)
    return int(match[1]) if match and match[1] else None
