"""What a router gains that sends each request to the replica whose batch it fits: simulated, or on real replicas.

python -m tests.benchmarks.routing [--replicas 2,4,8] [--routers NAME …] [--seeds 3]        # simulated
python -m tests.benchmarks.routing --real [--seconds 20] [--rounds 3] [--replicas 2,4]

Simulated are, on the same arrivals: Ray's own router, which takes the replica with fewer requests of two; turn by turn;
the replica with the fewest requests of all; the one whose batch a request fits, by what replicas hold at that moment;
and the same by what `service.ray_serve.router` knows, which is what was sent and what has ended.

Real are two services of the adder side by side, with that router and with Ray's. Each gets the same load in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

import aiohttp
import numpy as np

from service.analysis.predict.load import Arrival, OpenLoop
from service.analysis.predict.replicas import Ran, Replica, SimulatedRequest
from service.analysis.predict.simulation import FewerOfTwo, Fitting, Router, simulate
from service.batching.mirror import Standing, ranks
from service.messages.options import ServiceOptions
from service.messages.settings import BOUNDS, Settings
from tests.benchmarks.measure import AnswerError, Ask, batchscope, poisson

if TYPE_CHECKING:
    from ray.serve import Application

CAP: Final = 8
WAIT_S: Final = 0.05
SETTINGS: Final = Settings(
    max_batch_size=CAP, batch_wait_timeout_s=WAIT_S, max_queued_requests=int(BOUNDS["max_queued_requests"].high)
)
SHARES: Final = (0.2, 0.5, 0.8, 0.95)
WARM_UP: Final = 0.2
REQUESTS_A_REPLICA: Final = 40
LEAST_REQUESTS: Final = 4_000
BY_RAY: Final = "--app=tests.benchmarks.routing:build_by_ray"


@dataclass(frozen=True)
class Engine:
    """A batch takes ``base_s + member_s · size``."""

    name: str
    base_s: float
    member_s: float

    def batch_s(self, size: int) -> float:
        return self.base_s + self.member_s * size

    def run(self, _at_s: float, members: Sequence[Arrival]) -> Ran:
        run_s = self.batch_s(len(members))
        return Ran(run_s, run_s, [run_s] * len(members))


ENGINES: Final = (Engine("the adder", 0.2, 0.0), Engine("members cost", 0.05, 0.02))


class Fewest(Router):
    def choose(self, _at_s: float, _request: SimulatedRequest, replicas: Sequence[Replica], random: Random) -> Replica:
        return min(replicas, key=lambda each: (each.held, random.random()))


class AllKnowing(Router):
    """By what the replicas hold at that moment."""

    def choose(self, _at_s: float, _request: SimulatedRequest, replicas: Sequence[Replica], random: Random) -> Replica:
        order = ranks([Standing(not each.is_idle, *divmod(each.waiting, CAP)) for each in replicas])
        return min(zip(order, replicas, strict=True), key=lambda each: (each[0], random.random()))[1]


class TurnByTurn(Router):
    def __init__(self) -> None:
        self._turns = itertools.count()

    def choose(self, _at_s: float, _request: SimulatedRequest, replicas: Sequence[Replica], _random: Random) -> Replica:
        return replicas[next(self._turns) % len(replicas)]


ROUTERS: Final[Mapping[str, Callable[[], Router]]] = {
    "Ray's": FewerOfTwo,
    "turn by turn": TurnByTurn,
    "fewest": Fewest,
    "fitting": AllKnowing,
    "fitting as sent": lambda: Fitting(SETTINGS),
}


def simulated(engine: Engine, replicas: int, share: float, router: Router, seed: int) -> tuple[float, float, float]:
    """The median and the 95th percentile of the latency, in milliseconds, and the mean size of batches."""
    rate, random, at_s = share * replicas * CAP / engine.batch_s(CAP), Random(seed), 0.0
    arrivals = list[Arrival]()
    for _ in range(max(REQUESTS_A_REPLICA * replicas, LEAST_REQUESTS)):
        at_s += random.expovariate(rate)
        arrivals.append(Arrival(at_s, at_s, tokens=1))
    run = simulate(
        cast(Any, SETTINGS),
        cast(Any, engine),
        OpenLoop(arrivals),
        at_s + 1,
        replicas=replicas,
        seed=seed,
        router=router,
    )
    begin_s = WARM_UP * at_s
    took_s = [
        each.finished_s - each.arrival.intended_s
        for each in run.requests
        if each.finished_s is not None and each.arrival.intended_s > begin_s
    ]
    sizes = [len(batch.members) for batch in run.batches if batch.started_s > begin_s]
    return 1e3 * float(np.median(took_s)), 1e3 * float(np.percentile(took_s, 95)), float(np.mean(sizes))


def print_simulated(numbers: Sequence[int], routers: Sequence[str], seeds: int) -> None:
    print(f"median / p95 in ms, mean batch; late, {CAP} at most, {WAIT_S:g} s of waiting; means of {seeds} runs")
    for engine in ENGINES:
        print(f"\n{engine.name}: {engine.base_s:g} s + {engine.member_s:g} s a member")
        print(f"{'replicas':>8}{'busy':>6}" + "".join(f"{name:>20}" for name in routers))
        for replicas, share in itertools.product(numbers, SHARES):
            cells = []
            for name in routers:
                seen = [simulated(engine, replicas, share, ROUTERS[name](), seed) for seed in range(seeds)]
                median, p95, size = np.mean(seen, axis=0)
                cells.append(f"{median:.0f} / {p95:.0f}, {size:.1f}")
            print(f"{replicas:>8}{share:>6.0%}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


def build_by_ray(options: ServiceOptions) -> Application:
    """The service's application with Ray's own router."""
    from unittest.mock import patch

    from ray.serve.config import RequestRouterConfig

    from service import app

    with patch.object(app, "router_config", RequestRouterConfig):
        return app.build(options)


def ask_to_add(url: str) -> Ask:
    async def ask(client: aiohttp.ClientSession, number: int) -> None:
        async with client.get(url, params={"number": number}) as response:
            if not response.ok:
                raise AnswerError(f"{url} answered {response.status}: {(await response.text())[:200]}")
            await response.read()

    return ask


async def measure(urls: Sequence[str], replicas: int, rounds: int, seconds: float) -> None:
    """Print what the services at the first and the second of these addresses do with the same load."""
    for share in SHARES:
        rate = share * replicas * CAP / ENGINES[0].batch_s(CAP)
        seen: dict[str, list[tuple[float, float]]] = {url: [] for url in urls}
        for number in range(rounds):
            for url in urls if number % 2 else urls[::-1]:
                run = await poisson(ask_to_add(url), rate, seconds, seed=number)
                seen[url].append((run.percentile_s(50), run.percentile_s(95)))
        medians = [1e3 * np.median(seen[url], axis=0) for url in urls]
        ratio = statistics.median(one[1] / other[1] for one, other in zip(*seen.values(), strict=True))
        cells = "".join(f"{f'{median:.0f} / {p95:.0f}':>16}" for median, p95 in medians)
        print(f"{replicas:>8}{share:>6.0%}{cells}{ratio:>12.2f}", flush=True)


def print_real(numbers: Sequence[int], rounds: int, seconds: float) -> None:
    print(
        f"median / p95 in ms of the adder, medians of {rounds} rounds of {seconds:g} s; load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'replicas':>8}{'busy':>6}{'fitting':>16}{'by Ray':>16}{'p95 ratio':>12}", flush=True)
    for replicas in numbers:
        options = (
            "--workload=adder",
            f"--replicas={replicas}",
            f"--max-batch-size={CAP}",
            f"--batch-wait-timeout-s={WAIT_S}",
            "--port=0",
        )
        with ExitStack() as services:
            urls = [services.enter_context(batchscope(*options, *app)).url for app in ((), (BY_RAY,))]
            asyncio.run(measure(urls, replicas, rounds, seconds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="measure on real replicas of the adder")
    parser.add_argument("--replicas", default="", help="numbers of them (2,4,8,64; real 2,4)")
    parser.add_argument("--routers", nargs="+", default=list(ROUTERS), choices=ROUTERS, help="those simulated (all)")
    parser.add_argument("--seeds", type=int, default=3, help="simulated runs of each (3)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each real run (20)")
    options = parser.parse_args()
    usual = "2,4" if options.real else "2,4,8,64"
    numbers = [int(each) for each in (options.replicas or usual).split(",")]
    if options.real:
        print_real(numbers, options.rounds, options.seconds)
    else:
        print_simulated(numbers, options.routers, options.seeds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
