"""Measures what this machine's memory and its matrix products do at best. Imports torch: for worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import torch

from service.commands.bench.floors import Rates
from service.commands.bench.processor import processor_name

BLOCK_BYTES: Final[dict[str, int]] = {"cpu": 1 << 29}  # more than any cache holds
BLOCK_BYTES_ELSEWHERE: Final = 1 << 31
MATRIX_SIDE: Final[dict[str, int]] = {"cpu": 2048}
MATRIX_SIDE_ELSEWHERE: Final = 8192
TRIES: Final = 5


def measured_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """The best of a few tries each, with as many threads as the model has."""
    return Rates(bytes_per_s=_bytes_per_s(device), operations_per_s=_operations_per_s(device, dtype))


def hardware(device: torch.device) -> str:
    """What computes, in words."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{processor_name()}, {torch.get_num_threads()} threads"


def _bytes_per_s(device: torch.device) -> float:
    size = BLOCK_BYTES.get(device.type, BLOCK_BYTES_ELSEWHERE)
    block = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(block)
    reading_s, copying_s = _best_s(block.sum, device), _best_s(lambda: target.copy_(block), device)
    return max(size / reading_s, 2 * size / copying_s)


def _operations_per_s(device: torch.device, dtype: torch.dtype) -> float:
    side = MATRIX_SIDE.get(device.type, MATRIX_SIDE_ELSEWHERE)
    rows, weights = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / _best_s(lambda: torch.nn.functional.linear(rows, weights), device)


@torch.inference_mode()
def _best_s(compute: Callable[[], object], device: torch.device) -> float:
    compute()
    return min(_timed_s(compute, device) for _ in range(TRIES))


def _timed_s(compute: Callable[[], object], device: torch.device) -> float:
    _finish(device)
    begun_s = time.perf_counter()
    compute()
    _finish(device)
    return time.perf_counter() - begun_s


def _finish(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
