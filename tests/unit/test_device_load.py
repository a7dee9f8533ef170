"""What a replica reports of its process and of its GPU, also where NVML reports little or nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from service.replica.device import DeviceMeter

UUID = "5f6d1b7a-0000-4711-8000-000000000001"
USED_BYTES = 3_000_000_000
FUNCTIONS = [
    "nvmlInit",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo",
]


class Nvml:
    """`pynvml` on a machine with one GPU, which answers until a function is in `refused`."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.refused: set[str] = set()

    def nvmlInit(self) -> None:
        self._answer("nvmlInit")

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        self._answer("nvmlDeviceGetHandleByUUID")
        if uuid != f"GPU-{UUID}".encode():
            raise self.NVMLError("Not Found")
        return "handle"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        self._answer("nvmlDeviceGetUtilizationRates")
        assert handle == "handle"
        return SimpleNamespace(gpu=37)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        self._answer("nvmlDeviceGetMemoryInfo")
        assert handle == "handle"
        return SimpleNamespace(used=USED_BYTES)

    def _answer(self, function: str) -> None:
        if function in self.refused:
            raise self.NVMLError(f"{function}: Insufficient Permissions")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    nvml = Nvml()
    monkeypatch.setattr("service.replica.device.pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=UUID))
    return nvml


def test_that_a_gpu_is_measured(nvml: Nvml) -> None:
    load = DeviceMeter("cuda").load()
    assert (load.gpu_percent, load.gpu_memory_bytes) == (37.0, USED_BYTES)
    assert load.memory_bytes > 0


def test_that_a_processor_asks_nvml_nothing(nvml: Nvml) -> None:
    nvml.refused = set(FUNCTIONS)
    load = DeviceMeter("cpu").load()
    assert (load.gpu_percent, load.gpu_memory_bytes) == (None, None)


@pytest.mark.parametrize(
    ("refused", "percent", "memory_bytes"),
    [
        ("nvmlInit", None, None),
        ("nvmlDeviceGetHandleByUUID", None, None),
        ("nvmlDeviceGetUtilizationRates", None, USED_BYTES),
        ("nvmlDeviceGetMemoryInfo", 37.0, None),
    ],
)
def test_that_what_nvml_refuses_costs_that_figure_alone(
    nvml: Nvml, refused: str, percent: float | None, memory_bytes: int | None
) -> None:
    nvml.refused = {refused}
    load = DeviceMeter("cuda").load()
    assert (load.gpu_percent, load.gpu_memory_bytes) == (percent, memory_bytes)
    assert load.memory_bytes > 0


def test_that_a_gpu_that_is_lost_while_it_is_measured_costs_its_figures_alone(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.replica.device.MIN_INTERVAL_S", 0.0)
    meter = DeviceMeter("cuda")
    assert meter.load().gpu_percent == 37.0
    nvml.refused = set(FUNCTIONS)
    load = meter.load()
    assert (load.gpu_percent, load.gpu_memory_bytes) == (None, None)
    assert load.memory_bytes > 0


def test_that_a_gpu_without_a_uuid_is_not_measured(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
    load = DeviceMeter("cuda").load()
    assert (load.gpu_percent, load.gpu_memory_bytes) == (None, None)


def test_that_a_refusal_is_logged_once(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("service.replica.device.MIN_INTERVAL_S", 0.0)
    nvml.refused = {"nvmlDeviceGetUtilizationRates"}
    meter = DeviceMeter("cuda")
    for _ in range(3):
        meter.load()
    assert len(caplog.messages) == 1
    assert "Insufficient Permissions" in caplog.messages[0]
