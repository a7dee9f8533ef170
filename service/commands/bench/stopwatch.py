"""When the steps of a run ended, and how much memory there was in use by then. Imports torch: for worker processes."""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median

import psutil
import torch

from service.commands.bench.figures import Run
from service.commands.bench.plan import Subject


class Stopwatch:
    """Times the batches of one run; told of each batch's beginning and end, and of each of its steps."""

    def __init__(self, device: torch.device) -> None:
        self._memory = _Memory(device)
        self._batches_s: list[list[float]] = []
        self._ran_s = 0.0

    def begin_batch(self) -> None:
        self._batches_s.append([time.perf_counter()])

    def end_step(self, *, is_last: bool) -> None:
        """Every row has got a token."""
        self._batches_s[-1].append(time.perf_counter())
        if is_last:
            self._memory.look()

    def end_batch(self) -> None:
        self._ran_s += time.perf_counter() - self._batches_s[-1][0]

    def run(self, subject: Subject, size: int, tokens: int) -> Run:
        """What was measured; `tokens` were generated for each row of each batch."""
        steps_s = [b - a for times_s in self._batches_s for a, b in pairwise(times_s[1:])]
        return Run(
            subject=subject,
            size=size,
            tokens=size * tokens * len(self._batches_s),
            ran_s=self._ran_s,
            step_s=median(steps_s) if steps_s else None,
            first_token_s=median(times_s[1] - times_s[0] for times_s in self._batches_s),
            memory_bytes=self._memory.most_bytes,
            rows=size,
        )


class _Memory:
    """The most that was in use: on a GPU by torch, else resident of this process when it was looked."""

    def __init__(self, device: torch.device) -> None:
        self._gpu = device if device.type == "cuda" else None
        self._process = psutil.Process()
        self._seen_bytes = 0
        if self._gpu is not None:
            torch.cuda.reset_peak_memory_stats(self._gpu)

    def look(self) -> None:
        if self._gpu is None:
            self._seen_bytes = max(self._seen_bytes, self._process.memory_info().rss)

    @property
    def most_bytes(self) -> int:
        return self._seen_bytes if self._gpu is None else int(torch.cuda.max_memory_allocated(self._gpu))
