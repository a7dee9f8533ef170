"""The Serve application: `serve run service.app:generator --name Text-Completion-App`."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import ray
from ray.serve import Application, Deployment

from service.deployment import BatchTextGenerator
from service.hub import Hub
from service.messages.workload import TEXT
from service.options import ServiceOptions
from service.workloads.catalog import find

APP_NAME = "Text-Completion-App"


def build(options: ServiceOptions | dict[str, Any]) -> Application:
    """The application for these options: replicas that generate, and the hub that they share.

    As a builder that a Serve config file or `serve run service.app:build device=cpu` names, it is given a dict.
    """
    if isinstance(options, dict):
        options = msgspec.convert(options, ServiceOptions, strict=False)  # a command line's values are texts
    computes_on_device = options.workload == TEXT.name or find(options.workload).computes_on_device
    has_gpu = options.device.startswith("cuda") or (options.device == "auto" and gpu_count() >= 1)
    replicas = cast(Deployment, BatchTextGenerator).options(
        num_replicas=options.replicas,
        max_ongoing_requests=options.max_ongoing_requests,
        ray_actor_options={"num_cpus": 1, "num_gpus": int(computes_on_device and has_gpu)},
    )
    return replicas.bind(options, cast(Deployment, Hub).bind(options.settings))


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


generator = build(ServiceOptions())
