"""How steady the machine is: once a second, what a step of the engine takes, and what that rests on.

python -m tests.benchmarks.steadiness [--seconds 60] [--rows 4]

A step by all threads and by one, a barrier of all threads, and the rate at which they read memory. Where only what
several threads do together changes, and stays so for seconds, the cores themselves have moved: a virtual machine's
share a cache at times and at times not. No prediction can know that.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

from service.commands.bench.other_work import OtherWork
from service.engine.compute_thread import engine_executor
from service.engine.loading import load_engine, try_batch
from service.messages.options import ServiceOptions

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from service.engine.job import Engine

BARRIERS: Final = 2000
READ_BYTES: Final = 64_000_000  # more than a cache holds
READS: Final = 4
TITLES: Final = ("step (ms)", "by one thread (ms)", "barrier (µs)", "read (GB/s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rows", type=int, default=4)
    options = parser.parse_args()
    with engine_executor() as executor, OtherWork() as others:
        found = executor.submit(_measure, executor, options.seconds, options.rows).result()
    for title, values in zip(TITLES, zip(*found, strict=True), strict=True):
        low, middle, high = quantiles(values, n=10)[0], median(values), quantiles(values, n=10)[-1]
        print(f"{title:20} {middle:6.2f}   nine tenths above {low:.2f}, nine tenths below {high:.2f}")
    print(f"Other programs used {others.share:.0%} of the processor.")


def _measure(executor: Executor, seconds: float, rows: int) -> list[tuple[float, ...]]:
    """Of each second, in the order of `TITLES`; in the engine's own thread."""
    engine = load_engine(ServiceOptions(), executor=executor).engine
    found: list[tuple[float, ...]] = []
    print("   ".join(TITLES))
    begun_s = time.perf_counter()
    while time.perf_counter() < begun_s + seconds:
        with _threads(1):
            by_one_s = _step_s(engine, rows)
        found.append((1e3 * _step_s(engine, rows), 1e3 * by_one_s, 1e6 * _barrier_s(), _read_per_s() / 1e9))
        columns = zip(TITLES, found[-1], strict=True)
        print("   ".join(f"{value:{len(title)}.2f}" for title, value in columns), flush=True)
        time.sleep(max(0.0, 1.0 - (time.perf_counter() - begun_s) % 1.0))
    return found


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _step_s(engine: Engine, rows: int) -> float:
    trial = try_batch(engine, rows)
    assert trial is not None, "the examples are short"
    return trial.step_s


def _barrier_s() -> float:
    import numpy as np
    import torch

    from service.engine.model import kernels

    memory = np.zeros(64, np.float32)
    no_rows = (kernels.NORMALIZED, 0, 8, *3 * (memory.ctypes.data,), 0)
    program = kernels.as_program(*[no_rows] * BARRIERS)
    begun_s = time.perf_counter()
    kernels.run(program, torch.get_num_threads())
    return (time.perf_counter() - begun_s) / BARRIERS


def _read_per_s() -> float:
    import torch

    memory = torch.zeros(READ_BYTES // 4)
    begun_s = time.perf_counter()
    for _ in range(READS):
        memory.sum()
    return READS * READ_BYTES / (time.perf_counter() - begun_s)


if __name__ == "__main__":
    main()
