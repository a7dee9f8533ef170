"""What a service that nobody asks anything takes from an engine beside it, by waking up alone.

python -m tests.benchmarks.idle_service [BATCH_SIZE]

The engine decodes batches in a process of its own while all processes of an idle service are stopped and, in turns,
while they run. The ratio is the most that an engine on the same processors can reach with Ray around it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Final

import psutil

from service.commands.bench.subjects import EngineAlone
from service.commands.bench.worker import Worker
from service.messages.options import ServiceOptions
from service.messages.settings import Settings
from tests.benchmarks.measure import batchscope

ROUNDS: Final = 20
TOKENS: Final = 24
BATCHES: Final = 4
OPTIONS: Final = ServiceOptions(settings=Settings(formation="continuous"))


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    with batchscope("--port", "0"):
        service = psutil.Process().children(recursive=True)
        ratios = asyncio.run(_ratios(size, service))
    low, _, high = quantiles(ratios)
    print(f"batches of {size}: beside an idle service {median(ratios):.2f} of alone ({low:.2f} to {high:.2f})")


async def _ratios(size: int, service: list[psutil.Process]) -> list[float]:
    async with Worker(EngineAlone, OPTIONS) as engine:
        await engine.ready()

        async def tokens_per_s() -> float:
            return float((await engine.ask("run", size, TOKENS, BATCHES)).tokens_per_s)

        await tokens_per_s()
        ratios = []
        for number in range(ROUNDS):
            first = await tokens_per_s() if number % 2 else None
            with _stopped(service):
                alone = await tokens_per_s()
            beside = first or await tokens_per_s()
            ratios.append(beside / alone)
            print(f"round {number + 1} of {ROUNDS}: {beside:.0f} beside, {alone:.0f} alone", flush=True)
    return ratios


@contextmanager
def _stopped(processes: list[psutil.Process]) -> Iterator[None]:
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)


if __name__ == "__main__":
    main()
