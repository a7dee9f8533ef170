"""This service beside `transformers serve --continuous-batching` and llama.cpp's server, on the same weights.

The peers want an environment of their own (the first line keeps torch to its CPU build):

    python3 -m venv peers && peers/bin/pip install torch==2.13.0
    peers/bin/pip install 'transformers[serving]==5.23.0' xllamacpp==2026.10.11549
    python -m tests.benchmarks.against_peers peers

Each server is started alone and gets each load in turn, 24 tokens a request, temperature 0: users that wait for their
answers, and Poisson arrivals; and all of that again in the next round. Weights are in bfloat16, but for llama.cpp that
has them as they were published, in 4 bits, and ours with `--dtype int8`. It ends with 0 if this service gives at
least 1.1 times the tokens/s of the better of the two to 16 and to 32 users, and latencies under Poisson arrivals that
are no worse than the better's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from service.commands.bench.other_work import OtherWork
from service.messages.settings import FORMATIONS
from tests.benchmarks.measure import Measurement, ask_for_completion, closed_loop, poisson
from tests.benchmarks.peers import Peer, peers

FASTER: Final = 1.1
USERS: Final = (16, 32)
WARM_UP_S: Final = 4.0


@dataclass(frozen=True)
class Figure:
    """Something to compare: of which load, and by what it is judged."""

    load: str
    unit: str
    of: Callable[[Measurement], float]
    wanted: float
    more_is_better: bool

    def ratio(self, medians: Mapping[str, float]) -> float:
        """The first, which is ours, over the better of the others."""
        ours, *others = medians.values()
        return ours / (max(others) if self.more_is_better else min(others))

    def holds(self, ratio: float) -> bool:
        return ratio >= self.wanted if self.more_is_better else ratio <= self.wanted


def figures(rate_per_s: float) -> list[Figure]:
    arrivals = f"Poisson {rate_per_s:g}/s"
    closed = [
        Figure(f"{users} users", "tokens/s", lambda measured: measured.tokens_per_s, FASTER, True) for users in USERS
    ]
    return [
        *closed,
        Figure(arrivals, "p50 (s)", lambda measured: measured.percentile_s(50), 1.0, False),
        Figure(arrivals, "p95 (s)", lambda measured: measured.percentile_s(95), 1.0, False),
    ]


Rounds = dict[str, dict[str, list[Measurement]]]  # by server, and by load


def main() -> int:
    options = _options()
    servers = peers(options.environment, options.formation, options.dtype)
    measured: Rounds = {server.name: {} for server in servers}
    others = OtherWork()
    for number in range(options.rounds):
        for server in servers[number % len(servers) :] + servers[: number % len(servers)]:
            with server.served() as url, others:
                reached = asyncio.run(_measure(url, server, options))
            for load, measurement in reached.items():
                measured[server.name].setdefault(load, []).append(measurement)
                print(f"round {number + 1}, {server.name}, {load}: {_told(measurement)}", file=sys.stderr, flush=True)
    code = _compare(measured, figures(options.rate))
    for warning in others.warnings:
        print(warning)
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path, help="the virtual environment that has the peers")
    parser.add_argument("--formation", choices=FORMATIONS, default="continuous", help="ours (default: continuous)")
    parser.add_argument("--dtype", default="auto", help="ours, such as int8 (default: auto)")
    parser.add_argument("--rate", type=float, default=4.0, help="Poisson arrivals a second (default: 4)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each load (default: 15)")
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


async def _measure(url: str, server: Peer, options: argparse.Namespace) -> dict[str, Measurement]:
    ask = ask_for_completion(url, **server.fields)
    await closed_loop(ask, max(USERS), WARM_UP_S, warm_up_s=0.0)
    measured = {f"{users} users": await closed_loop(ask, users, options.seconds, WARM_UP_S) for users in USERS}
    return {**measured, f"Poisson {options.rate:g}/s": await poisson(ask, options.rate, options.seconds)}


def _compare(measured: Rounds, wanted: list[Figure]) -> int:
    print(f"{'':24}" + "".join(f"{name:>20}" for name in measured) + "   ours / the better")
    verdicts = [_compare_figure(measured, figure) for figure in wanted]
    return 0 if all(verdicts) else 1


def _compare_figure(measured: Rounds, figure: Figure) -> bool:
    values = {name: [figure.of(each) for each in loads[figure.load]] for name, loads in measured.items()}
    ratio = figure.ratio({name: median(each) for name, each in values.items()})
    cells = "".join(f"{formatted(each):>20}" for each in values.values())
    sign = "≥" if figure.more_is_better else "≤"
    verdict = "holds" if figure.holds(ratio) else "FAILS"
    print(
        f"{figure.load + ', ' + figure.unit:24}{cells}   {ratio:.2f} ({sign} {figure.wanted:g}: {verdict})", flush=True
    )
    return figure.holds(ratio)


def _told(measured: Measurement) -> str:
    p50_s, p95_s = measured.percentile_s(50), measured.percentile_s(95)
    return f"{measured.tokens_per_s:.0f} tokens/s, p50 {p50_s:.2f} s, p95 {p95_s:.2f} s"


def formatted(values: list[float]) -> str:
    """The median of the rounds, and half of what lies between the extremes."""
    return f"{median(values):.3g} ± {(max(values) - min(values)) / 2:.2g}"


if __name__ == "__main__":
    sys.exit(main())
