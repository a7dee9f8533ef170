"""What it is worth that requests join and leave: `late` beside `continuous` where completions differ in length.

python -m tests.benchmarks.mixed_lengths [--batch 8] [--seconds 40] [--rounds 2]

8 to 128 tokens a request, every length as likely. What joining is worth depends on what a row costs: on a processor a
step takes longer with each, and `late` computes none that is done. First both are saturated by more users than a batch
holds; then both get the same Poisson arrivals, near 80 % of what `late` can carry, and it is told when the first token
comes. It ends with 0 if `continuous` has at most half the 95th percentile of `late`, and at least 1.3 times its
tokens/s.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from statistics import median
from typing import Final

from service.commands.bench.other_work import OtherWork
from service.commands.cli import Server
from service.commands.runs import MeasuredService
from service.load.report import LoadReport, tokens_between
from service.messages.load import USUAL_PROMPTS, ClosedLoop, Pattern, Poisson, RunLoad, UniformLength
from service.messages.settings import Formation, Settings
from tests.benchmarks.measure import batchscope

FORMATIONS: Final[tuple[Formation, ...]] = ("late", "continuous")
LENGTHS: Final = UniformLength(low=8, high=128)
MEAN_TOKENS: Final = (LENGTHS.low + LENGTHS.high) / 2
USERS_A_ROW: Final = 3
SHARE: Final = 0.8
SOONER: Final = 0.5
FASTER: Final = 1.3
WARM_UP_S: Final = 4.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8, help="max_batch_size of both (default: 8)")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each load (default: 40)")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    others = OtherWork()
    with batchscope("--port", "0") as ready, others:
        print(f"8 to 128 tokens a request, batches of {options.batch}, {ready.model}, {ready.device}", flush=True)
        code = asyncio.run(_compare(ready.url, options.batch, options.seconds, options.rounds))
    for warning in others.warnings:
        print(warning)
    return code


async def _compare(url: str, batch: int, seconds: float, rounds: int) -> int:
    settings = {each: Settings(formation=each, max_batch_size=batch, max_queued_requests=1024) for each in FORMATIONS}
    saturating = ClosedLoop(users=USERS_A_ROW * batch)
    async with MeasuredService.at(Server(url), lambda _: None) as service:
        await service.warm_up([(each, _load(saturating, 0)) for each in settings.values()], WARM_UP_S)
        saturated = await _rounds(service, settings, saturating, seconds, rounds)
        tokens_per_s = {each: median(map(_tokens_per_s, saturated[each])) for each in FORMATIONS}
        rate_per_s = SHARE * tokens_per_s["late"] / MEAN_TOKENS
        print(f"saturated by {saturating.users} users{_cells(tokens_per_s, 'tokens/s')}", flush=True)
        arriving = await _rounds(service, settings, Poisson(rate_per_s=rate_per_s), seconds, rounds)
    first_token_s = {each: median(map(_first_token_p95_s, arriving[each])) for each in FORMATIONS}
    latency_s = {each: median(map(_latency_p95_s, arriving[each])) for each in FORMATIONS}
    print(f"Poisson {rate_per_s:.2f}/s, first token p95{_cells(first_token_s, 's')}")
    print(f"Poisson {rate_per_s:.2f}/s, latency p95{_cells(latency_s, 's')}")
    holds = (
        first_token_s["continuous"] <= SOONER * first_token_s["late"]
        and tokens_per_s["continuous"] >= FASTER * tokens_per_s["late"]
    )
    print("holds" if holds else "FAILS", f"(wanted: first token ≤ {SOONER:g}, tokens/s ≥ {FASTER:g})")
    return 0 if holds else 1


async def _rounds(
    service: MeasuredService, settings: dict[Formation, Settings], pattern: Pattern, seconds: float, rounds: int
) -> dict[Formation, list[LoadReport]]:
    """The same arrivals and lengths for both, one after the other, which comes first changes from round to round."""
    reports: dict[Formation, list[LoadReport]] = {each: [] for each in FORMATIONS}
    for number in range(rounds):
        for formation in FORMATIONS[:: -1 if number % 2 else 1]:
            report, _ = await service.run(settings[formation], _load(pattern, number), seconds)
            if report.totals.ok < report.totals.sent:
                raise SystemExit(f"Not all requests were answered. {' '.join(report.warnings)}")
            reports[formation].append(report)
    return reports


def _load(pattern: Pattern, seed: int) -> RunLoad:
    return RunLoad(pattern=pattern, prompts=USUAL_PROMPTS, max_tokens=LENGTHS, seed=seed)


def _tokens_per_s(report: LoadReport) -> float:
    """While all users were there: from the end of the first tenth to the end of sending."""
    start_s, end_s = report.duration_s / 10, report.duration_s
    return tokens_between(report.requests, start_s, end_s) / (end_s - start_s)


def _first_token_p95_s(report: LoadReport) -> float:
    assert report.time_to_first_token_s is not None
    return report.time_to_first_token_s.p95


def _latency_p95_s(report: LoadReport) -> float:
    assert report.latency_s is not None
    return report.latency_s.p95


def _cells(of: dict[Formation, float], unit: str) -> str:
    values = "".join(f"   {each} {of[each]:.3g} {unit}" for each in FORMATIONS)
    return f"{values}   continuous / late {of['continuous'] / of['late']:.2f}"


if __name__ == "__main__":
    sys.exit(main())
