"""What batching is worth where the function is quick: `house-price`, 32 houses in one call and in 32.

    python -m tests.benchmarks.house_price

First the function alone, then through HTTP: one request with 32 houses, 32 requests one after the other, and 32 at
once, which the service batches. Where the gain through HTTP is small, the last line says why: how much of a single
request's time the function takes, and how much its way there and back.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import requests

from service.workloads.house_price import HousePrice
from tests.benchmarks.measure import batchscope

HOUSES = 32
ROUNDS = 15


def seconds(work: Callable[[], object]) -> float:
    """The median of some rounds, after one that does not count."""
    taken = []
    for _ in range(ROUNDS + 1):
        begun_s = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun_s)
    return statistics.median(taken[1:])


def main() -> int:
    workload = HousePrice()
    workload.load("cpu")
    houses = [json.loads(workload.examples[n % len(workload.examples)]) for n in range(HOUSES)]
    inputs = [workload.check(house) for house in houses]
    together_s, single_s = seconds(lambda: workload(inputs)), seconds(lambda: [workload([each]) for each in inputs])
    rates = f"one call {HOUSES / together_s:8.0f} houses/s, {HOUSES} calls {HOUSES / single_s:8.0f}"
    print(f"the function alone   {rates}: {single_s / together_s:.1f} times")
    with (
        batchscope("--port", "0", "--workload", "house-price", "--batch-wait-timeout-s", "0") as ready,
        ThreadPoolExecutor(HOUSES) as pool,
    ):
        sessions = [requests.Session() for _ in range(HOUSES)]

        def ask(session: requests.Session, some: list[list[float]]) -> None:
            answer = session.post(ready.url, json={"features": some}, timeout=60)
            assert len(answer.json()["predictions"]) == len(some)

        one_s = seconds(lambda: ask(sessions[0], houses))
        many_s = seconds(lambda: [ask(sessions[0], [house]) for house in houses])
        at_once_s = seconds(lambda: list(pool.map(ask, sessions, ([house] for house in houses))))
        for session in sessions:
            session.close()
    for name, taken_s in (("one request", one_s), ("one by one", many_s), ("at once", at_once_s)):
        times = f"{many_s / taken_s:.1f} times one by one"
        print(f"through HTTP         {name:<12} {HOUSES / taken_s:8.0f} houses/s, {times}")
    one_ms, share = many_s / HOUSES * 1e3, single_s / many_s
    print(f"Of the {one_ms:.2f} ms of a single request the function takes {share:.0%}, its way the rest.")
    return 0 if single_s >= 10 * together_s else 1


if __name__ == "__main__":
    sys.exit(main())
