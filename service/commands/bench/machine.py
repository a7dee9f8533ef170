"""What this machine does at best, and a stopwatch for its steps. Imports torch: for worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, Final

import psutil
import torch
from torch import nn

from service.commands.bench.report import BenchRun, Rates, Subject
from service.engine.model.linear import has_kernels
from service.engine.model.load import takes_int8
from service.messages.installation import processor_name

BLOCK_BYTES: Final[dict[str, int]] = {"cpu": 1 << 29}  # more than any cache holds
BLOCK_BYTES_ELSEWHERE: Final = 1 << 31
MATRIX_SIDE: Final[dict[str, int]] = {"cpu": 2048}
MATRIX_SIDE_ELSEWHERE: Final = 8192
TRIES: Final = 5


def measured_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """The best of a few tries each, with as many threads as the model has, of torch's products and of our kernels'."""
    return Rates(bytes_per_s=_bytes_per_s(device), operations_per_s=_operations_per_s(device, dtype))


def kept_bytes(model: Any, dtype: str) -> int | None:
    """How large the weights of a model's linear layers are as kernels of our own have them; ``None`` if these do not.

    `dtype`: of the service's options.
    """
    if dtype not in ("bfloat16", "int8") or not takes_int8():
        return None
    from service.engine.model.tiled import BlockWeights, as_published

    weigh = as_published if dtype == "bfloat16" else BlockWeights.of
    layers = (each for each in model.modules() if isinstance(each, nn.Linear))
    return sum(weigh(each.weight.detach()).packed.nbytes for each in layers)


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
    ways: list[Callable[[], object]] = [lambda: torch.nn.functional.linear(rows, weights)]
    if device.type == "cpu" and dtype == torch.bfloat16 and has_kernels():
        from service.engine.model.tiled import BlockWeights, HalfWeights, PairWeights, Weights, product
        from service.engine.model.vectors import HAS_BYTES, HAS_PAIRS

        kinds: dict[type[Weights], bool] = {HalfWeights: True, PairWeights: HAS_PAIRS, BlockWeights: HAS_BYTES}
        ways += [partial(product, kind.of(weights), rows.float()) for kind, is_there in kinds.items() if is_there]
    return 2 * side**3 / min(_best_s(way, device) for way in ways)


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


class Stopwatch:
    """Times the batches of one run; called at each batch's beginning and end and after each of its steps.

    Attributes:
        ran_s: of all batches so far.
    """

    def __init__(self, device: torch.device) -> None:
        self._gpu = device if device.type == "cuda" else None
        if self._gpu is not None:
            torch.cuda.reset_peak_memory_stats(self._gpu)
        self._process = psutil.Process()
        self._resident_bytes = 0
        self._batches_s: list[list[float]] = []
        self.ran_s = 0.0

    def begin_batch(self) -> None:
        self._batches_s.append([time.perf_counter()])

    def end_step(self, *, is_last: bool) -> None:
        """Every row has got a token."""
        self._batches_s[-1].append(time.perf_counter())
        if is_last:
            self._resident_bytes = max(self._resident_bytes, self._process.memory_info().rss)

    def end_batch(self) -> None:
        self.ran_s += time.perf_counter() - self._batches_s[-1][0]

    def run(self, subject: Subject, size: int, tokens: int) -> BenchRun:
        """What was measured; `tokens` were generated for each row of each batch."""
        steps_s = [b - a for times_s in self._batches_s for a, b in pairwise(times_s[1:])]
        return BenchRun(
            subject=subject,
            size=size,
            tokens=size * tokens * len(self._batches_s),
            ran_s=self.ran_s,
            step_s=median(steps_s) if steps_s else None,
            first_token_s=median(times_s[1] - times_s[0] for times_s in self._batches_s),
            memory_bytes=self._most_memory_bytes(),
            rows=size,
        )

    def _most_memory_bytes(self) -> int:
        """The most that was in use: on a GPU by torch, else resident of this process at the end of a batch."""
        return self._resident_bytes if self._gpu is None else int(torch.cuda.max_memory_allocated(self._gpu))
