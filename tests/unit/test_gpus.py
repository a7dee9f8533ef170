"""Which replicas take a GPU, what is refused where there is none, and how one GPU of a machine is named."""

from __future__ import annotations

import pytest

from service.messages.life import StartError
from service.messages.options import ServiceOptions
from service.ray_serve import gpus
from service.ray_serve.gpus import VISIBLE_VARIABLE, check_count, check_index, gpu_count, pin_gpu, takes_gpu
from tests.unit.fake_nvml import Nvml


def with_gpus(count: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "gpu_count", lambda: count)


@pytest.mark.parametrize(("refused", "count"), [("", 3), ("nvmlInit", 0), ("nvmlDeviceGetCount", 0)])
def test_that_gpus_that_nvml_does_not_report_are_none(
    refused: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "pynvml", Nvml(3, refused))
    assert gpu_count() == count


@pytest.mark.parametrize(
    ("device", "workload", "count", "expected"),
    [
        ("auto", "text", 1, True),
        ("auto", "text", 0, False),
        ("auto", "adder", 1, False),
        ("cpu", "text", 1, False),
        ("mps", "text", 1, False),
        ("cuda", "text", 0, True),
        ("cuda:1", "house-price", 0, True),
        ("cuda", "adder", 1, False),
        ("cudax", "text", 1, False),
    ],
)
def test_which_replicas_take_a_gpu(
    device: str, workload: str, count: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(count, monkeypatch)
    assert takes_gpu(ServiceOptions(device=device, workload=workload)) is expected


@pytest.mark.parametrize(
    ("device", "replicas", "count", "reason"),
    [
        ("cuda", 1, 0, "Ray finds no GPU for the device cuda. Choose the device cpu, or "),
        ("cuda", 2, 1, "Each of 2 replicas takes a GPU and Ray finds 1. Choose fewer replicas, or the device cpu."),
        ("auto", 4, 3, "Each of 4 replicas takes a GPU and Ray finds 3. Choose fewer replicas, or the device cpu."),
    ],
)
def test_that_replicas_for_which_gpus_are_lacking_are_refused_in_words(
    device: str, replicas: int, count: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(count, monkeypatch)
    with pytest.raises(StartError) as refusal:
        check_count(ServiceOptions(device=device, replicas=replicas))
    assert str(refusal.value).startswith(reason)


@pytest.mark.parametrize(("device", "replicas", "count"), [("cuda", 2, 2), ("auto", 3, 0), ("cpu", 4, 1)])
def test_that_replicas_that_can_be_placed_are_not_refused(
    device: str, replicas: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(count, monkeypatch)
    check_count(ServiceOptions(device=device, replicas=replicas))


def test_that_a_gpu_is_not_named_by_number_where_ray_chooses_it() -> None:
    with pytest.raises(StartError, match=r"the device cuda:1 cannot be had here\. Choose the device cuda;"):
        check_index(ServiceOptions(device="cuda:1"))


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cpu", "auto"])
def test_that_the_number_that_each_replica_sees_may_be_named(device: str) -> None:
    check_index(ServiceOptions(device=device))


@pytest.mark.parametrize(
    ("device", "visible", "expected"),
    [
        ("cuda:0", None, "0"),
        ("cuda:1", None, "1"),
        ("cuda:1", "2,3", "3"),
        ("cuda:0", "GPU-47,GPU-11", "GPU-47"),
    ],
)
def test_that_ray_is_shown_the_one_gpu_that_is_named(device: str, visible: str | None, expected: str) -> None:
    environment = {} if visible is None else {VISIBLE_VARIABLE: visible}
    options = pin_gpu(ServiceOptions(device=device), environment)
    assert (options.device, environment) == ("cuda", {VISIBLE_VARIABLE: expected})


@pytest.mark.parametrize("device", ["cuda", "auto", "cpu", "mps"])
def test_that_no_gpu_is_hidden_where_none_is_named(device: str) -> None:
    environment = {VISIBLE_VARIABLE: "2,3"}
    options = pin_gpu(ServiceOptions(device=device), environment)
    assert (options.device, environment) == (device, {VISIBLE_VARIABLE: "2,3"})
