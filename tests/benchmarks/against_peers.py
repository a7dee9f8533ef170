"""This service beside other servers of the same weights, each with the continuous batching that it is shipped with:
transformers serve, llama.cpp, vLLM, OpenVINO GenAI and mistral.rs.

    python -m tests.benchmarks.peers DIR            # makes an environment for each
    python -m tests.benchmarks.against_peers DIR

Each server is started alone and gets each load in turn, 24 tokens a request, temperature 0: users that wait for their
answers, and Poisson arrivals, each with answers in one piece and streamed; and all of that again in the next round, in
another order. Weights are in bfloat16, but llama.cpp has them as they were published, in 4 bits, and so has ours on a
processor with VNNI, OpenVINO in float16 (computed in bfloat16 where the processor can), and mistral.rs in float32.

A peer that cannot be installed, does not start or does not answer is named with the reason, and left out. It ends with
0 if this service gives at least 1.1 times the tokens/s of the best of the others to 16 and to 32 users, and latencies
under Poisson arrivals that are no worse than the best's.
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

import aiohttp

from service.commands.bench.other_work import OtherWork
from service.messages.settings import FORMATIONS
from tests.benchmarks.measure import AnswerError, Measurement, ask_for_completion, closed_loop, poisson
from tests.benchmarks.peers import PEERS, PeerError, Server, installed, ours

FASTER: Final = 1.1
USERS: Final = (1, 4, 16, 32)
JUDGED_USERS: Final = (16, 32)
WARM_UP_S: Final = 4.0
ANSWERS: Final = {"whole": {}, "streamed": {"stream": True, "stream_options": {"include_usage": True}}}
LABEL_WIDTH: Final = 36
COLUMN_WIDTH: Final = 16


@dataclass(frozen=True)
class Figure:
    """Something to compare: of which load, and by what it is judged, if it is."""

    load: str
    unit: str
    of: Callable[[Measurement], float]
    wanted: float | None
    more_is_better: bool

    def ratio(self, medians: Mapping[str, float]) -> float:
        """The first, which is ours, over the best of the others."""
        first, *others = medians.values()
        return first / (max(others) if self.more_is_better else min(others))

    def holds(self, ratio: float) -> bool:
        return self.wanted is None or (ratio >= self.wanted if self.more_is_better else ratio <= self.wanted)

    def verdict(self, ratio: float) -> str:
        if self.wanted is None:
            return f"{ratio:.2f}"
        sign = "≥" if self.more_is_better else "≤"
        return f"{ratio:.2f} ({sign} {self.wanted:g}: {'holds' if self.holds(ratio) else 'FAILS'})"


def figures(rate_per_s: float) -> list[Figure]:
    return [figure for answer in ANSWERS for figure in _figures_of(answer, rate_per_s)]


def _figures_of(answer: str, rate_per_s: float) -> list[Figure]:
    arrivals = f"Poisson {rate_per_s:g}/s, {answer}"
    closed = [
        Figure(
            f"{users} users, {answer}",
            "tokens/s",
            lambda measured: measured.tokens_per_s,
            FASTER if users in JUDGED_USERS else None,
            True,
        )
        for users in USERS
    ]
    return [
        *closed,
        Figure(arrivals, "p50 (s)", lambda measured: measured.percentile_s(50), 1.0, False),
        Figure(arrivals, "p95 (s)", lambda measured: measured.percentile_s(95), 1.0, False),
    ]


Rounds = dict[str, dict[str, list[Measurement]]]  # by server, and by load


def main() -> int:
    options = _options()
    first = ours(options.formation, options.dtype)
    servers = [first, *(installed(options.folder.resolve(), peer) for peer in PEERS if peer.name in options.peers)]
    measured: Rounds = {}
    reasons: dict[str, str] = {}
    others = OtherWork()
    for number in range(options.rounds):
        turn = number % len(servers)
        for server in [each for each in servers[turn:] + servers[:turn] if each.name not in reasons]:
            try:
                with server.served() as url, others:
                    reached = asyncio.run(_measure(url, server, options))
            except (PeerError, AnswerError, aiohttp.ClientError, TimeoutError, ExceptionGroup) as error:
                if server is first:
                    raise
                reasons[server.name] = _reason(error)
                print(f"round {number + 1}, {server.name}: {reasons[server.name]}", file=sys.stderr, flush=True)
                continue
            for load, measurement in reached.items():
                measured.setdefault(server.name, {}).setdefault(load, []).append(measurement)
                print(f"round {number + 1}, {server.name}, {load}: {_told(measurement)}", file=sys.stderr, flush=True)
    compared = {server.name: measured[server.name] for server in servers if server.name in measured.keys() - reasons}
    code = _compare(compared, figures(options.rate)) if len(compared) > 1 else 1
    for name, reason in reasons.items():
        print(f"{name} is left out: {reason}")
    for warning in others.warnings:
        print(warning)
    return code


def _options() -> argparse.Namespace:
    names = [peer.name for peer in PEERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what tests.benchmarks.peers has made")
    parser.add_argument("--peers", nargs="+", choices=names, default=names, help="(default: all)")
    parser.add_argument("--formation", choices=FORMATIONS, default="continuous", help="ours (default: continuous)")
    parser.add_argument("--dtype", default="auto", help="ours (default: auto)")
    parser.add_argument("--rate", type=float, default=4.0, help="Poisson arrivals a second (default: 4)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each load (default: 15)")
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


async def _measure(url: str, server: Server, options: argparse.Namespace) -> dict[str, Measurement]:
    measured: dict[str, Measurement] = {}
    for answer, how in ANSWERS.items():
        ask = ask_for_completion(url, **server.fields, **how)
        await closed_loop(ask, max(USERS), WARM_UP_S, warm_up_s=0.0)
        for users in USERS:
            measured[f"{users} users, {answer}"] = await closed_loop(ask, users, options.seconds, WARM_UP_S)
        measured[f"Poisson {options.rate:g}/s, {answer}"] = await poisson(ask, options.rate, options.seconds)
    return measured


def _reason(error: Exception) -> str:
    """In one line; of a group the first."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _compare(measured: Rounds, wanted: list[Figure]) -> int:
    print(f"{'':{LABEL_WIDTH}}" + "".join(f"{name:>{COLUMN_WIDTH}}" for name in measured) + "   ours / the best")
    verdicts = [_compare_figure(measured, figure) for figure in wanted]
    return 0 if all(verdicts) else 1


def _compare_figure(measured: Rounds, figure: Figure) -> bool:
    values = {name: [figure.of(each) for each in loads[figure.load]] for name, loads in measured.items()}
    ratio = figure.ratio({name: median(each) for name, each in values.items()})
    cells = "".join(f"{formatted(each):>{COLUMN_WIDTH}}" for each in values.values())
    print(f"{figure.load + ', ' + figure.unit:{LABEL_WIDTH}}{cells}   {figure.verdict(ratio)}", flush=True)
    return figure.holds(ratio)


def _told(measured: Measurement) -> str:
    told = f"{measured.tokens_per_s:.0f} tokens/s"
    if len(measured.latencies_s) < 2:  # of one user that is answered slowly
        return told
    return f"{told}, p50 {measured.percentile_s(50):.2f} s, p95 {measured.percentile_s(95):.2f} s"


def formatted(values: list[float]) -> str:
    """The median of the rounds, and half of what lies between the extremes."""
    return f"{median(values):.3g} ± {(max(values) - min(values)) / 2:.2g}"


if __name__ == "__main__":
    sys.exit(main())
