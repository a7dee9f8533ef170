"""What a replica reports of its process, its engine and its GPU, also where a system reports little or nothing."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from service.engine.compute_thread import engine_executor
from service.messages.telemetry import ProcessorUse
from service.replica.device import DeviceLoad, DeviceMeter, EngineProcessor

UUID = "5f6d1b7a-0000-4711-8000-000000000001"
HELD_BYTES = 3_000_000_000
FUNCTIONS = [
    "nvmlInit",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetClockInfo",
]


class Nvml:
    """`pynvml` on a machine with one GPU, which answers until a function is in `refused`."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.prefix = "GPU"

    def nvmlInit(self) -> None:
        self._answer("nvmlInit")

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        self._answer("nvmlDeviceGetHandleByUUID")
        if uuid != f"{self.prefix}-{UUID}".encode():
            raise self.NVMLError("Not Found")
        return "handle"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        self._answer("nvmlDeviceGetUtilizationRates")
        assert handle == "handle"
        return SimpleNamespace(gpu=37)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        self._answer("nvmlDeviceGetPowerUsage")
        assert handle == "handle"
        return 112_500  # mW

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        self._answer("nvmlDeviceGetClockInfo")
        assert (handle, clock) == ("handle", self.NVML_CLOCK_SM)
        return 1410

    def _answer(self, function: str) -> None:
        if function in self.refused:
            raise self.NVMLError(f"{function}: Insufficient Permissions")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    nvml = Nvml()
    monkeypatch.setattr("service.replica.device.pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=UUID))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: HELD_BYTES)
    return nvml


def of_gpu(load: DeviceLoad) -> tuple[float | None, float | None, int | None, int | None]:
    return load.gpu_percent, load.gpu_power_w, load.gpu_clock_mhz, load.gpu_memory_bytes


@pytest.mark.parametrize("prefix", ["GPU", "MIG"])
def test_that_a_gpu_or_a_slice_of_one_is_measured(nvml: Nvml, prefix: str) -> None:
    nvml.prefix = prefix
    load = DeviceMeter("cuda").load()
    assert of_gpu(load) == (37.0, 112.5, 1410, HELD_BYTES)
    assert load.memory_bytes > 0


def test_that_a_processor_asks_nvml_nothing(nvml: Nvml) -> None:
    nvml.refused = set(FUNCTIONS)
    assert of_gpu(DeviceMeter("cpu").load()) == (None, None, None, None)


@pytest.mark.parametrize(
    ("refused", "figures"),
    [
        ("nvmlInit", (None, None, None)),
        ("nvmlDeviceGetHandleByUUID", (None, None, None)),
        ("nvmlDeviceGetUtilizationRates", (None, 112.5, 1410)),
        ("nvmlDeviceGetPowerUsage", (37.0, None, 1410)),
        ("nvmlDeviceGetClockInfo", (37.0, 112.5, None)),
    ],
)
def test_that_what_nvml_refuses_costs_that_figure_alone(
    nvml: Nvml, refused: str, figures: tuple[float | None, ...]
) -> None:
    nvml.refused = {refused}
    load = DeviceMeter("cuda").load()
    assert of_gpu(load) == (*figures, HELD_BYTES)
    assert load.memory_bytes > 0


def test_that_a_gpu_that_is_lost_while_it_is_measured_costs_its_figures_alone(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.replica.device.MIN_INTERVAL_S", 0.0)
    meter = DeviceMeter("cuda")
    assert meter.load().gpu_percent == 37.0
    nvml.refused = set(FUNCTIONS)
    load = meter.load()
    assert of_gpu(load) == (None, None, None, HELD_BYTES)
    assert load.memory_bytes > 0


def test_that_a_gpu_without_a_uuid_is_not_measured(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
    assert of_gpu(DeviceMeter("cuda").load()) == (None, None, None, HELD_BYTES)


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


def write_thread(tasks: Path, number: int, name: str, ran_s: float, waited_s: float) -> None:
    """A thread as Linux shows it below /proc/<pid>/task."""
    folder = tasks / str(number)
    folder.mkdir(exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "schedstat").write_text(f"{int(ran_s * 1e9)} {int(waited_s * 1e9)} 7\n")


def seconds(use: ProcessorUse | None) -> tuple[float, float]:
    assert use is not None
    return round(use.got_s, 3), round(use.waited_s, 3)


def test_that_the_engine_s_threads_are_summed_up_and_no_others(tmp_path: Path) -> None:
    write_thread(tmp_path, 11, "engine", ran_s=5.0, waited_s=1.0)
    write_thread(tmp_path, 12, "engine", ran_s=4.0, waited_s=0.0)
    write_thread(tmp_path, 13, "python", ran_s=9.0, waited_s=9.0)
    processor = EngineProcessor(tmp_path)
    assert seconds(processor.use()) == (0.0, 0.0)
    write_thread(tmp_path, 11, "engine", ran_s=6.0, waited_s=1.5)
    write_thread(tmp_path, 12, "engine", ran_s=4.5, waited_s=0.25)
    write_thread(tmp_path, 13, "python", ran_s=19.0, waited_s=19.0)
    assert seconds(processor.use()) == (1.5, 0.75)
    assert processor.share() == pytest.approx(2 / 3)


def test_that_the_sums_never_fall_where_a_thread_ends_or_its_number_is_given_anew(tmp_path: Path) -> None:
    write_thread(tmp_path, 11, "engine", ran_s=1.0, waited_s=0.0)
    write_thread(tmp_path, 12, "engine", ran_s=8.0, waited_s=8.0)
    processor = EngineProcessor(tmp_path)
    processor.use()
    write_thread(tmp_path, 11, "engine", ran_s=3.0, waited_s=1.0)
    write_thread(tmp_path, 12, "engine", ran_s=0.1, waited_s=0.1)
    assert seconds(processor.use()) == (2.0, 1.0)


@pytest.mark.parametrize("text", ["", "nonsense\n", "1 2\n"])
def test_that_the_processor_time_is_unknown_where_the_system_does_not_report_it(tmp_path: Path, text: str) -> None:
    write_thread(tmp_path, 11, "engine", ran_s=1.0, waited_s=0.0)
    (tmp_path / "11" / "schedstat").write_text(text)
    assert EngineProcessor(tmp_path).use() is None
    assert EngineProcessor(tmp_path / "none").use() is None
    assert EngineProcessor(tmp_path).share() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names threads and reports what they waited for")
def test_that_a_thread_that_the_engine_s_thread_starts_counts_as_the_engine_s() -> None:
    held = threading.Event()
    with engine_executor() as executor:
        before = {task.name for task in Path("/proc/self/task").iterdir()}

        def start() -> threading.Thread:
            worker = threading.Thread(target=held.wait)
            worker.start()
            return worker

        worker = executor.submit(start).result()
        begun = {task.name for task in Path("/proc/self/task").iterdir()} - before
        names = {(Path("/proc/self/task") / number / "comm").read_text().strip() for number in begun}
        held.set()
        worker.join()
    assert names == {"engine"}
