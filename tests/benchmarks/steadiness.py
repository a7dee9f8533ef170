"""How steady the machine is: once a second, what a step of the engine takes, and what that rests on.

python -m tests.benchmarks.steadiness [--seconds 60] [--rows 4]

A step by all threads and by one, a barrier of all threads, and the rate at which they read memory. Where only what
several threads do together changes, and stays so for seconds, the cores themselves have moved: a virtual machine's
share a cache at times and at times not. No prediction can know that.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

from service.commands.bench.other_work import OtherWork
from service.engine.compute_thread import engine_executor
from service.engine.loading import load_engine
from service.messages.options import ServiceOptions
from service.messages.workload import TEXT

if TYPE_CHECKING:
    from concurrent.futures import Executor

BARRIERS: Final = 2000
READ_BYTES: Final = 64_000_000  # more than a cache holds
READS: Final = 4
TOKENS: Final = 40
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

    import numpy as np
    import torch

    from service.engine.job import Progress, SamplingParams
    from service.engine.model import kernels

    threads, memory, none = torch.get_num_threads(), torch.zeros(READ_BYTES // 4), np.zeros(64, np.float32)
    nothing = kernels.as_program(*[(kernels.NORMALIZED, 0, 8, *3 * (none.ctypes.data,), 0)] * BARRIERS)

    def step_s() -> float:
        times_s: list[float] = []

        def emit(progress: list[Progress]) -> None:
            if progress:
                times_s.append(time.perf_counter())

        sampling = SamplingParams(max_tokens=TOKENS, ignore_eos=True)
        engine.generate(
            [engine.job(str(n), TEXT.examples[n % len(TEXT.examples)], sampling) for n in range(rows)], emit
        )
        return median(later - earlier for earlier, later in pairwise(times_s))

    found: list[tuple[float, ...]] = []
    print("   ".join(TITLES))
    begun_s = time.perf_counter()
    while time.perf_counter() < begun_s + seconds:
        by_all_s = step_s()
        torch.set_num_threads(1)
        by_one_s = step_s()
        torch.set_num_threads(threads)
        barriers_s = -time.perf_counter()
        kernels.run(nothing, threads)
        barriers_s += time.perf_counter()
        reading_s = -time.perf_counter()
        for _ in range(READS):
            memory.sum()
        reading_s += time.perf_counter()
        gigabytes_per_s = READS * READ_BYTES / reading_s / 1e9
        found.append((1e3 * by_all_s, 1e3 * by_one_s, 1e6 * barriers_s / BARRIERS, gigabytes_per_s))
        print(
            "   ".join(f"{value:{len(title)}.2f}" for title, value in zip(TITLES, found[-1], strict=True)), flush=True
        )
        time.sleep(max(0.0, 1.0 - (time.perf_counter() - begun_s) % 1.0))
    return found


if __name__ == "__main__":
    main()
