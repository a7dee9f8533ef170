"""Load and memory of a replica's process, and of its GPU where it has one."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

MIN_INTERVAL_S = 0.5
"""Shorter intervals make the processor's load jump between 0 and full."""


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """`cpu_percent` is 100 a core; memory in bytes; the GPU's figures are ``None`` without one."""

    cpu_percent: float
    memory_bytes: int
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None


class DeviceMeter:
    """Measures when asked, at most every `MIN_INTERVAL_S`."""

    def __init__(self, device: str) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._gpu = _Gpu(device) if device.startswith("cuda") else None
        self._measured_s = 0.0
        self._load = DeviceLoad(0.0, 0)

    def load(self) -> DeviceLoad:
        now_s = time.monotonic()
        if now_s - self._measured_s >= MIN_INTERVAL_S:
            self._measured_s = now_s
            gpu_percent, gpu_memory_bytes = self._gpu.load() if self._gpu else (None, None)
            self._load = DeviceLoad(
                self._process.cpu_percent(), self._process.memory_info().rss, gpu_percent, gpu_memory_bytes
            )
        return self._load


class _Gpu:
    """One NVIDIA GPU, named by its UUID since NVML numbers devices without regard to CUDA_VISIBLE_DEVICES."""

    def __init__(self, device: str) -> None:
        import pynvml
        import torch

        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(torch.device(device)).uuid
        self._nvml = pynvml
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode())

    def load(self) -> tuple[float, int]:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        return float(rates.gpu), int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
