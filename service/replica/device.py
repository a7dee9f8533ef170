"""Load and memory of a replica's process, and of its GPU where it has one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import psutil
import pynvml

logger = logging.getLogger(__name__)

T = TypeVar("T")

MIN_INTERVAL_S = 0.5
"""Shorter intervals make the processor's load jump between 0 and full."""


class DeviceLoad(NamedTuple):
    """`cpu_percent` is 100 a core; memory in bytes; a figure of the GPU is ``None`` where nothing reports it."""

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
    """One NVIDIA GPU, named by its UUID since NVML numbers devices without regard to CUDA_VISIBLE_DEVICES.

    Any call of NVML may be refused: in a container without its library, of a MIG slice, of a GPU that was lost. Then
    that figure is missing, and nothing else.
    """

    def __init__(self, device: str) -> None:
        self._is_refusal_logged = False
        self._handle = self._answer(lambda: _handle(device))

    def load(self) -> tuple[float | None, int | None]:
        """Percent of the time in which it computed, and bytes of its memory in use; ``None`` for what is refused."""
        if self._handle is None:
            return None, None
        percent = self._answer(lambda: float(pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu))
        return percent, self._answer(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used))

    def _answer(self, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except pynvml.NVMLError as error:
            if not self._is_refusal_logged:
                self._is_refusal_logged = True
                logger.warning("NVML does not report all figures of the GPU: %s", error)
            return None


def _handle(device: str) -> Any:
    import torch

    pynvml.nvmlInit()
    uuid = getattr(torch.cuda.get_device_properties(torch.device(device)), "uuid", "none")
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode())
