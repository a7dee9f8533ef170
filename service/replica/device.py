"""Load and memory of a replica's process and of its GPU, and the processor time of its engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil
import pynvml

from service.engine.compute_thread import ENGINE_THREAD
from service.messages.telemetry import ProcessorUse

logger = logging.getLogger(__name__)

T = TypeVar("T")

MIN_INTERVAL_S = 0.5
"""Shorter intervals make the processor's load jump between 0 and full."""

TASKS = Path("/proc/self/task")
NANOSECOND_S = 1e-9


class DeviceLoad(NamedTuple):
    """`cpu_percent` is 100 a core; a figure of the GPU is ``None`` where nothing reports it.

    `gpu_memory_bytes` is what torch holds of it in this process; load, power and clock are those of the whole GPU.
    """

    cpu_percent: float
    memory_bytes: int
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_power_w: float | None = None
    gpu_clock_mhz: int | None = None
    engine_processor: ProcessorUse | None = None


class DeviceMeter:
    """Measures when asked, at most every `MIN_INTERVAL_S`."""

    def __init__(self, device: str) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._gpu = _Gpu(device) if device.startswith("cuda") else None
        self._engine = EngineProcessor()
        self._measured_s = 0.0
        self._load = DeviceLoad(0.0, 0)

    def load(self) -> DeviceLoad:
        now_s = time.monotonic()
        if now_s - self._measured_s >= MIN_INTERVAL_S:
            self._measured_s = now_s
            of_gpu = self._gpu.load() if self._gpu else {}
            cpu_percent, memory_bytes = self._process.cpu_percent(), self._process.memory_info().rss
            self._load = DeviceLoad(cpu_percent, memory_bytes, engine_processor=self._engine.use(), **of_gpu)
        return self._load


class EngineProcessor:
    """The processor time of the engine's threads, those named `ENGINE_THREAD`, by Linux's statistics of its scheduler.

    A thread is counted from the first time that it is seen. One that has ended has taken its numbers with it, so what
    each adds is summed up here. See https://docs.kernel.org/scheduler/sched-stats.html, "/proc/<pid>/schedstat".
    """

    def __init__(self, tasks: Path = TASKS) -> None:
        self._tasks = tasks
        self._last: dict[str, tuple[int, int]] = {}
        self._got_ns = self._waited_ns = 0

    def use(self) -> ProcessorUse | None:
        """The sums by now; ``None`` where the system reports none."""
        seen = dict(self._seen())
        for thread, (ran_ns, waited_ns) in seen.items():
            ran_before_ns, waited_before_ns = self._last.get(thread, (ran_ns, waited_ns))
            self._got_ns += max(ran_ns - ran_before_ns, 0)  # less where the number was given to a new thread
            self._waited_ns += max(waited_ns - waited_before_ns, 0)
        self._last = seen
        if not seen:
            return None
        return ProcessorUse(got_s=self._got_ns * NANOSECOND_S, waited_s=self._waited_ns * NANOSECOND_S)

    def share(self) -> float | None:
        """Of the processor time asked for so far, what the threads got; ``None`` where none is reported."""
        use = self.use()
        asked_s = use.got_s + use.waited_s if use is not None else 0.0
        return use.got_s / asked_s if use is not None and asked_s else None

    def _seen(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """What each of the engine's threads has run and waited, in nanoseconds."""
        with suppress(OSError):
            for task in self._tasks.iterdir():
                with suppress(OSError, ValueError):  # the thread may end meanwhile
                    if (task / "comm").read_text().strip() == ENGINE_THREAD:
                        ran, waited, _slices = (task / "schedstat").read_text().split()
                        yield task.name, (int(ran), int(waited))


class _Gpu:
    """One NVIDIA GPU, named by its UUID since NVML numbers devices without regard to CUDA_VISIBLE_DEVICES.

    Any call of NVML may be refused: in a container without its library, of a MIG slice, of a GPU that was lost. Then
    that figure is missing, and nothing else.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._is_refusal_logged = False
        self._handle = self._answer(lambda: _handle(device))

    def load(self) -> dict[str, Any]:
        """The figures of `DeviceLoad` that are the GPU's; ``None`` for what is refused."""
        import torch

        held: dict[str, Any] = {"gpu_memory_bytes": torch.cuda.memory_reserved(self._device)}
        handle = self._handle
        if handle is None:
            return held
        return held | {
            "gpu_percent": self._answer(lambda: float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
            "gpu_power_w": self._answer(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
            "gpu_clock_mhz": self._answer(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
        }

    def _answer(self, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except pynvml.NVMLError as error:
            if not self._is_refusal_logged:
                self._is_refusal_logged = True
                logger.warning("NVML does not report all figures of the GPU: %s", error)
            return None


def _handle(device: str) -> Any:
    """NVML's handle of a GPU, or of the slice of one (MIG) that torch takes for a GPU."""
    import torch

    pynvml.nvmlInit()
    uuid = getattr(torch.cuda.get_device_properties(torch.device(device)), "uuid", "none")
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode())
    except pynvml.NVMLError:
        return pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}".encode())
