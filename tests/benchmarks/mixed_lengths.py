"""What it is worth that requests join and leave: `late` beside `continuous` where completions differ in length.

python -m tests.benchmarks.mixed_lengths [--batch 8] [--seconds 40] [--rounds 2]
python -m tests.benchmarks.mixed_lengths --prompts
python -m tests.benchmarks.mixed_lengths --shared

8 to 128 tokens a request, every length as likely. What joining is worth depends on what a row costs: on a processor a
step takes longer with each, and `late` computes none that is done. First both are saturated by more users than a batch
holds; then both get the same Poisson arrivals, near 80 % of what `late` can carry, and it is told when the first token
comes. It ends with 0 if `continuous` has at most half the 95th percentile of `late`, and at least 1.3 times its
tokens/s.

With `--prompts` it is the prompts that differ, from 8 to 1,500 tokens, and the engine alone decodes them: in groups of
like length, as it does, and as one batch that is padded to the longest row, step by step in turns.

With `--shared` prompts of 8 to 60 tokens of their own begin with the same ones, as with a system prompt. The engine
alone reads them anew, and from where they are new, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from itertools import product
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Final

from service.commands.bench.other_work import OtherWork
from service.commands.cli import Server
from service.commands.runs import MeasuredService
from service.engine.compute_thread import prepare_engine_thread
from service.engine.cores import bind_openmp_threads, usable_cores
from service.engine.engine import TextEngine
from service.engine.groups import Groups
from service.engine.job import SamplingParams, Sequence
from service.engine.prefixes import Prefixes
from service.engine.steps import Launched
from service.load.report import LoadReport, tokens_between
from service.messages.load import USUAL_PROMPTS, ClosedLoop, Pattern, Poisson, RunLoad, UniformLength
from service.messages.settings import Formation, Settings
from tests.benchmarks.measure import batchscope

if TYPE_CHECKING:
    from service.engine.model.load import LoadedModel

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
    parser.add_argument("--prompts", action="store_true", help="prompts that differ, and the engine alone")
    parser.add_argument("--shared", action="store_true", help="prompts that begin alike, and the engine alone")
    options = parser.parse_args()
    others = OtherWork()
    if options.prompts or options.shared:
        with others:
            _compare_alone(_compare_groups if options.prompts else _compare_shared)
        print(*others.warnings, sep="\n")
        return 0
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


PROMPTS: Final = {
    "1,400 and seven of 8 to 100": lambda random: [1400, *(random.randint(8, 100) for _ in range(7))],
    "16 of 8 to 1,500": lambda random: [random.randint(8, 1500) for _ in range(16)],
    "16 of 20 to 60": lambda random: [random.randint(20, 60) for _ in range(16)],
}
STEPS: Final = 24
ROUNDS: Final = 7


def _compare_alone(compare: Callable[[LoadedModel], None]) -> None:
    bind_openmp_threads()
    from service.engine.model.load import load
    from service.engine.model.resolve import DEFAULT_MODEL, resolve

    model = load(resolve(DEFAULT_MODEL), "cpu", "auto")
    prepare_engine_thread("cpu", usable_cores())
    compare(model)


def _compare_shared(model: LoadedModel) -> None:
    print(f"{'prompts, tokens in common':30}{'read anew':>14}{'from where new':>18}{'ratio':>10}")
    for rows, shared in product((1, 8), (64, 256, 1024)):
        random, times_s = Random(3), dict[bool, list[float]]({False: [], True: []})
        engine, known = TextEngine(model), Prefixes()
        beginning = [random.randrange(100, 40_000) for _ in range(shared)]
        for _ in range(ROUNDS):
            for is_known, taken_s in times_s.items():
                engine.forward.prefixes = known if is_known else None
                own = [[random.randrange(100, 40_000) for _ in range(random.randint(8, 60))] for _ in range(rows)]
                taken_s.append(_read_s(engine, [beginning + each for each in own]))
        anew, new = (median(taken_s[2:]) for taken_s in times_s.values())  # two prompts have to have it first
        print(f"{f'{rows}, {shared:,}':30}{anew * 1000:>11.0f} ms{new * 1000:>15.0f} ms{anew / new:>10.1f}", flush=True)


def _read_s(engine: TextEngine, prompts: list[list[int]]) -> float:
    sampling = SamplingParams(max_tokens=8, ignore_eos=True)
    begun_s = time.perf_counter()
    groups = Groups(engine.forward, engine._rows([Sequence("", ids, sampling) for ids in prompts]))
    while not groups.has_read:
        Launched(engine.forward, groups.for_step()).read()
    return time.perf_counter() - begun_s


def _compare_groups(model: LoadedModel) -> None:
    print(f"{'prompts of so many tokens':30}{'groups':>8}{'columns read, of own':>28}{'step, padded / in groups':>26}")
    for name, lengths in PROMPTS.items():
        _compare_step(name, TextEngine(model), lengths(Random(1)))


def _compare_step(name: str, engine: TextEngine, lengths: list[int]) -> None:
    sampling = SamplingParams(max_tokens=STEPS + 100, ignore_eos=True)
    random = Random(2)
    prompts = [[random.randrange(100, 40_000) for _ in range(length)] for length in lengths]
    in_groups, padded = (
        Groups(engine.forward, engine._rows([Sequence("", ids, sampling) for ids in prompts]), is_whole=is_whole)
        for is_whole in (False, True)
    )
    for groups in (in_groups, padded):
        while not groups.has_read:
            Launched(engine.forward, groups.for_step()).read()
    times_s: dict[Groups, list[float]] = {in_groups: [], padded: []}
    for _ in range(STEPS):
        for groups, taken_s in times_s.items():
            batches = groups.for_step()
            begun_s = time.perf_counter()
            Launched(engine.forward, batches).read()
            taken_s.append(time.perf_counter() - begun_s)
    read = [
        sum(len(batch.rows) * max(row.length for row in batch.rows) for batch in groups.for_step()) / sum(lengths)
        for groups in (padded, in_groups)
    ]
    ratio = median(times_s[padded]) / median(times_s[in_groups])
    columns = f"{read[0]:.2f}, {read[1]:.2f}"
    print(f"{name:30}{len(in_groups.for_step()):>8}{columns:>28}{ratio:>26.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
