"""Who computes on a GPU, and how many there are."""

from __future__ import annotations

import ray

from service.messages.options import ServiceOptions
from service.messages.workload import TEXT
from service.workloads.catalog import find


def takes_gpu(options: ServiceOptions) -> bool:
    """Whether each copy of the engine is to have a GPU of its own."""
    computes_on_device = options.workload == TEXT.name or find(options.workload).computes_on_device
    has_gpu = options.device.startswith("cuda") or (options.device == "auto" and gpu_count() >= 1)
    return computes_on_device and has_gpu


def gpu_count() -> float:
    """GPUs of the cluster, or of this machine where Ray has not started yet."""
    if ray.is_initialized():
        return float(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    return float(pynvml.nvmlDeviceGetCount())
