"""Hold beside fixed settings, in the simulator: 12 loads, 3 objectives, and as many seeds as one has time for.

python -m tests.benchmarks.holding [--seeds N] [--only ramp steps …] [--seconds S] [--by-objective]
    [--calm-s S] [--urgent-s S] [--no-clairvoyant] [--trace FILE …] [--real]

A service begins with the usual settings, and Hold moves them. Beside it stand, under the same arrivals: the best of 20
fixed settings, chosen with hindsight for each load, objective and seed; a random search, which tries another of the 20
every half minute and keeps it if more requests were good; and a clairvoyant that knows all arrivals and takes the best
path over the 20, ten seconds each (a shortest path as in arXiv 2309.16911, of which the `BEAM` best beginnings are
followed, so that a better one may exist).

A line a load: requests a second that met the objectives, over those of the best fixed setting, and the share of windows
of ten seconds in which as many did as had to. The engine's prices that Hold believes in are wrong by some percent, as
fitted ones are. It ends with 0 if the aims hold.

With `--trace`, files of Mooncake's (github.com/kvcache-ai/Mooncake, FAST25-release/traces) instead: of each a stretch
that the seed chooses, with its times, and lengths that suit this engine.

With `--real`, six of these cells (or those of `--only`) on the real service instead: `python -m service hold` beside
the fixed setting that the simulator finds best for the cell, one after the other under the same arrivals. Before, users
of several numbers show what the real engine's prices are: the fixed setting is found by these, and where that engine
takes twice as long as the simulated one, rates are halved and objectives doubled. Beside each result stands what the
simulator says of the same cell at these prices. What Hold said stands below the line of a cell, and the share of good
requests in each window.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import asdict

from service.analysis.goal.hold import CALM_S, TRIED_S, URGENT_S, Hold
from service.analysis.observed.columns import Bools, Floats
from service.analysis.predict.cost import CostModel
from service.analysis.predict.load import Arrival
from service.commands.remote import RemoteService, ServiceWatch
from service.commands.watching import watched
from service.load.arrivals import RatedArrivals, TraceEntry, read_trace
from service.load.run import run_load
from service.messages.load import (
    USUAL_PROMPTS,
    ClosedLoop,
    GammaArrivals,
    OnOff,
    Pattern,
    Poisson,
    Ramp,
    RunLoad,
    Steps,
)
from service.messages.load import Trace as Recorded
from service.messages.objectives import NO_OBJECTIVES, TIMES, Objectives
from service.messages.pipes import our_python, python_path
from service.messages.settings import Settings
from tests.benchmarks.measure import batchscope
from tests.simulated_service import Answered, SimulatedService, hold_through
from tests.unit.goal_cases import Case

SECONDS: Final = 120.0
WINDOW_S: Final = 10.0
INTERVAL_S: Final = 10.0
BEAM: Final = 3
WRONG: Final = 0.08  # standard deviation of the logarithm of the speed that is believed in
TOKENS: Final = 12
PROMPT_TOKENS: Final = 6
USERS: Final = 24
SHORTER: Final = 24  # answers than in recorded traces, where they have 343 tokens in the mean
SHORTER_PROMPTS: Final = 300  # likewise, of 12,035 tokens
START: Final = Settings()
OBJECTIVES: Final = (Objectives(latency_s=1.0), Objectives(ttft_s=0.3), Objectives(ttft_s=0.5, tpot_s=0.045))
GRID: Final = tuple(
    Settings(formation=formation, max_batch_size=size, batch_wait_timeout_s=0.0, max_queued_requests=queued)
    for formation, size, queued in product(("late", "continuous"), (4, 8, 16, 32, 64), (16, 256))
)
LEAST_OF: Final = {"changing": 1.15, "steady": 0.98}
LEAST_KEPT: Final = 0.95

Lengths = Callable[[Random], tuple[int, int]]


class Trace(NamedTuple):
    """Arrivals by a pattern or as recorded, with tokens to generate and to read; `kind` says which aim is for it."""

    kind: str
    pattern: Pattern
    lengths: Lengths = lambda _: (TOKENS, PROMPT_TOKENS)
    gathers_s: float = 0.0
    users: int = 0
    recorded: Sequence[TraceEntry] = ()


def _lognormal(tokens: int, sigma: float, prompts: int) -> Lengths:
    def draw(random: Random) -> tuple[int, int]:
        made, read = random.lognormvariate(math.log(tokens), sigma), random.lognormvariate(math.log(prompts), 1.0)
        return min(max(round(made), 1), 120), min(max(round(read), 1), 400)

    return draw


TRACES: Final[Mapping[str, Trace]] = {
    "steady 4/s": Trace("steady", Poisson(rate_per_s=4.0)),
    "steady 8/s": Trace("steady", Poisson(rate_per_s=8.0)),
    "steady 14/s": Trace("steady", Poisson(rate_per_s=14.0)),
    "steady 18/s": Trace("steady", Poisson(rate_per_s=18.0)),
    "ramp": Trace("changing", Ramp(rate_per_s=3.0, rate_to_per_s=24.0, over_s=100.0)),
    "steps": Trace("changing", Steps(rates_per_s=(4.0, 16.0, 8.0, 24.0, 4.0), step_s=SECONDS / 5)),
    "on/off": Trace("changing", OnOff(rate_per_s=20.0, on_s=15.0, off_s=15.0)),
    "clustered": Trace("changing", GammaArrivals(rate_per_s=10.0, shape=0.2)),
    "conversations": Trace("changing", Steps(rates_per_s=(2.0, 4.0, 2.0), step_s=40.0), _lognormal(14, 0.7, 40), 3.0),
    "tools": Trace("changing", Steps(rates_per_s=(3.0, 6.0, 4.0), step_s=40.0), _lognormal(7, 1.0, 30), 3.0),
    "mixed lengths": Trace("other", Poisson(rate_per_s=5.0), lambda random: (random.randint(4, 48), PROMPT_TOKENS)),
    "closed": Trace("other", Poisson(rate_per_s=10.0), users=USERS),
}
"""Conversations and tools are like Mooncake's traces: lengths with long tails, and arrivals that come together every
3 s, as the timestamps there do. Nothing of those traces is in them; `--trace` takes the traces themselves."""


CELLS: Final = (
    *((name, OBJECTIVES[0]) for name in ("steady 8/s", "ramp", "steps", "on/off")),
    ("clustered", OBJECTIVES[1]),
    ("closed", OBJECTIVES[2]),
)
PRICED_UNDER: Final = Settings(formation="late", max_batch_size=64, batch_wait_timeout_s=0.0)
PRICED_FROM: Final = (1, 4, 16, 48)  # users, one number after the other
PRICED_S: Final = 10.0  # each
PRICED_SIZE: Final = 16  # of the batches by which engines are compared
ENVIRONMENT: Final = os.environ | {"PYTHONPATH": python_path()}


class Result(NamedTuple):
    """What became of the requests; `shares` of them were good in the windows, one after the other."""

    goodput_per_s: float
    kept: float
    shares: tuple[float, ...] = ()

    @classmethod
    def of(cls, requests: Sequence[Answered], objectives: Objectives, seconds: float) -> Result:
        good = np.array([each.is_good(objectives) for each in requests])
        return cls.of_good(np.array([each.intended_s for each in requests]), good, objectives, seconds)

    @classmethod
    def of_good(cls, intended_s: Floats, good: Bools, objectives: Objectives, seconds: float) -> Result:
        """Of requests that were to be sent at these times, and which of them were good."""
        window = intended_s // WINDOW_S
        shares = tuple([float(good[window == each].mean()) for each in np.unique(window)])
        kept = [share >= objectives.share for share in shares]
        return cls(float(good.sum()) / seconds, float(np.mean(kept)), shares)


@dataclass
class Bench:
    """One load under one objective with one seed."""

    trace: Trace
    objectives: Objectives
    seed: int
    seconds: float
    cost: CostModel
    hold: Hold

    def service(self, settings: Settings) -> SimulatedService:
        wrong = math.exp(Random(f"wrong {self.seed}").gauss(0.0, WRONG))
        arrivals = list(self._arrivals())
        return SimulatedService(
            arrivals, self.seconds, self.cost, self.cost.slower(wrong), settings, self.trace.users, self.seed
        )

    def result(self, service: SimulatedService) -> Result:
        return Result.of(service.requests(), self.objectives, self.seconds)

    def fixed(self) -> tuple[Result, Settings]:
        """The best of the grid, by hindsight."""
        results = [(self.result(self.service(settings)), settings) for settings in GRID]
        return max(results, key=lambda each: each[0])

    def held(self) -> tuple[Result, int]:
        """By Hold, and its moves."""
        service = self.service(START)
        moves = hold_through(service, replace(self.hold, objectives=self.objectives), self.seconds)
        return self.result(service), len(moves)

    def searched_at_random(self) -> Result:
        """Another setting every `CALM_S`, which stays if it was better after `TRIED_S`."""
        service, random = self.service(START), Random(self.seed)
        while service.at_s + CALM_S < self.seconds:
            service.at_s += CALM_S - TRIED_S
            before, best = service.seen(self.objectives, 0.0).recent.share, service.settings
            service.change(random.choice(GRID))
            service.at_s += TRIED_S
            if service.seen(self.objectives, service.at_s - TRIED_S).recent.share < before:
                service.change(best)
        return self.result(service)

    def clairvoyant(self) -> Result:
        """The best path found over the grid."""
        first = self.service(START)
        first.ahead_s = INTERVAL_S
        paths = [first]
        while paths[0].at_s < self.seconds:
            forks = [self._forked(path, settings) for path, settings in product(paths, GRID)]
            paths = sorted(forks, key=lambda each: -self.result(each).goodput_per_s)[:BEAM]
        return self.result(paths[0])

    def _forked(self, path: SimulatedService, settings: Settings) -> SimulatedService:
        fork = path.fork()
        fork.change(settings)
        fork.at_s += INTERVAL_S
        return fork

    def _arrivals(self) -> Iterator[Arrival]:
        return self._replayed() if self.trace.recorded else self._drawn()

    def _replayed(self) -> Iterator[Arrival]:
        entries = self.trace.recorded
        begin_s = Random(f"stretch {self.seed}").uniform(0.0, max(entries[-1].offset_s - self.seconds, 0.0))
        for number, entry in enumerate(entries):
            due_s = entry.offset_s - begin_s + number * 1e-7
            if 0 <= due_s < self.seconds:
                tokens, prompt_tokens = (entry.max_tokens or 1) / SHORTER, (entry.prompt_words or 1) / SHORTER_PROMPTS
                yield Arrival(due_s, due_s, max(round(tokens), 1), max(round(prompt_tokens), 1))

    def _drawn(self) -> Iterator[Arrival]:
        rated, random = RatedArrivals(self.trace.pattern, self.seed), Random(f"lengths {self.seed}")
        gathers_s = self.trace.gathers_s
        number = 0
        while rated.due_s < self.seconds:
            number += 1
            due_s = rated.due_s
            if gathers_s:
                due_s = due_s // gathers_s * gathers_s + random.uniform(0.0, 0.3)
            yield Arrival(due_s + number * 1e-7, due_s + number * 1e-7, *self.trace.lengths(random))
            rated.advance()


@dataclass(frozen=True)
class Row:
    """The results of a load, means over objectives and seeds."""

    name: str
    held: Result
    fixed: Result
    random: Result
    clairvoyant: Result
    moves: float
    best: str
    kind: str

    @property
    def ratio(self) -> float:
        return self.held.goodput_per_s / self.fixed.goodput_per_s

    def __str__(self) -> str:
        rates = [each.goodput_per_s / self.fixed.goodput_per_s for each in (self.held, self.random, self.clairvoyant)]
        shown = "".join(f"{each:>10.2f}" for each in rates)
        kept = "".join(f"{each.kept:>10.0%}" for each in (self.held, self.fixed, self.clairvoyant))
        return f"{self.name:<16}{self.fixed.goodput_per_s:>9.2f}{shown}{kept}{self.moves:>7.1f}   {self.best}"


COLUMNS: Final = ("goodput", "Hold", "random", "clairv.", "kept", "by best", "clairv.")
HEAD: Final = f"{'load':16}{COLUMNS[0]:>9}{''.join(f'{each:>10}' for each in COLUMNS[1:])}{'moves':>7}   best fixed"


def row_of(
    name: str, trace: Trace, objectives: Sequence[Objectives], options: argparse.Namespace, cost: CostModel
) -> Row:
    hold = Hold(NO_OBJECTIVES, calm_s=options.calm_s, urgent_s=options.urgent_s)
    held, fixed, random, clairvoyant, moves, names = [], [], [], [], [], []
    for each, seed in product(objectives, range(options.seeds)):
        bench = Bench(trace, each, seed, options.seconds, cost, hold)
        best, settings = bench.fixed()
        result, count = bench.held()
        held.append(result)
        fixed.append(best)
        random.append(bench.searched_at_random())
        clairvoyant.append(bench.clairvoyant() if options.clairvoyant else best)
        moves.append(count)
        names.append(f"{settings.formation} {settings.max_batch_size}/{settings.max_queued_requests}")
    means = [_mean(each) for each in (held, fixed, random, clairvoyant)]
    return Row(name, *means, moves=fmean(moves), best=max(names, key=names.count), kind=trace.kind)


def _mean(results: Sequence[Result]) -> Result:
    return Result(fmean(each.goodput_per_s for each in results), fmean(each.kept for each in results))


async def on_the_real_service(only: Collection[str], seconds: float, example: CostModel) -> None:
    """A line for each of `CELLS` of these loads, and what Hold said."""
    with batchscope() as ready:
        await _held_for_real(ready.url, [each for each in CELLS if each[0] in only], seconds, example)


async def _held_for_real(url: str, cells: Sequence[tuple[str, Objectives]], seconds: float, example: CostModel) -> None:
    async with RemoteService(url) as remote, ServiceWatch(remote) as watch:
        cost = await _priced(url, remote)
        slowness = cost.batch_s(PRICED_SIZE, TOKENS) / example.batch_s(PRICED_SIZE, TOKENS)
        print(f"A batch of {PRICED_SIZE} takes {slowness:.2f} times as long as on the simulated engine, so rates are")
        print(f"divided by that and objectives multiplied. {_prices_text(cost)}\n")
        head = f"{'load':16}{'objective':34}{'goodput':>9}{'Hold':>7}{'simulated':>11}"
        print(f"{head}{'kept':>7}{'by best':>9}{'moves':>7}   best fixed")
        for name, usual in cells:
            trace, objectives = _slowed(TRACES[name], slowness), _relaxed(usual, slowness)
            bench = Bench(trace, objectives, 1, seconds, cost, Hold(objectives))
            simulated, best = bench.fixed()
            expected = bench.held()[0].goodput_per_s / simulated.goodput_per_s
            await watch.until_idle()
            await remote.change(asdict(best))
            fixed = await _asked(url, bench)
            await watch.until_idle()
            await remote.change(asdict(START))
            held, reasons, moves = await _held(url, bench)
            ratio = f"{held.goodput_per_s / fixed.goodput_per_s:.2f}" if fixed.goodput_per_s else "–"
            rates = f"{fixed.goodput_per_s:>9.2f}{ratio:>7}{expected:>11.2f}"
            settings = f"{best.formation} {best.max_batch_size}/{best.max_queued_requests}"
            line = f"{name:16}{objectives.words:34}{rates}{held.kept:>7.0%}{fixed.kept:>9.0%}{moves:>7}   {settings}"
            print(line, *reasons, sep="\n    ", flush=True)
            for by, result in (("Hold", held), ("the fixed setting", fixed)):
                print(f"    good in each {WINDOW_S:g} s under {by}:", *map("{:.0%}".format, result.shares), flush=True)


async def _held(url: str, bench: Bench) -> tuple[Result, list[str], int]:
    """What comes of the load under `python -m service hold`, what that said, and the number of its moves."""
    wanted = [f"{time}={s}" for time, field in TIMES.items() if (s := getattr(bench.objectives, field))]
    command = our_python("service", "hold", "--url", url, "--objective", *wanted)
    holding = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=ENVIRONMENT)
    assert holding.stdout is not None
    if not await holding.stdout.readline():  # that it has begun, which takes the engine seconds of a core
        sys.exit("Hold has not begun, for the reason above.")
    result = await _asked(url, bench)
    holding.send_signal(signal.SIGINT)
    said, _ = await holding.communicate()
    *reasons, last = said.decode().splitlines()
    return result, reasons, int(last.split()[0])


async def _priced(url: str, remote: RemoteService) -> CostModel:
    """The real engine's prices, fitted to the batches that users of several numbers give."""
    await remote.change(asdict(PRICED_UNDER))
    seen = asyncio.create_task(watched(remote, PRICED_S * len(PRICED_FROM)))
    for users in PRICED_FROM:
        await run_load(url, _load_of(ClosedLoop(users=users)), PRICED_S)
    cost = CostModel.of_history((await seen).history)
    assert cost is not None, "what was watched suffices to predict"
    return cost


def _prices_text(cost: CostModel) -> str:
    prices = {"a reading": cost.overhead_s, "a step": cost.step_s, "a row of a step": cost.row_s}
    return "Prices: " + ", ".join(f"{name} {price_s * 1e3:.2f} ms" for name, price_s in prices.items()) + "."


def _slowed(trace: Trace, factor: float) -> Trace:
    """The load with `factor` times the time between arrivals."""
    pattern = trace.pattern
    rates = {
        name: tuple(each / factor for each in rate) if isinstance(rate, tuple) else rate / factor
        for name, rate in asdict(pattern).items()
        if name.startswith("rate")
    }
    return trace._replace(pattern=msgspec.structs.replace(pattern, **rates))


def _relaxed(objectives: Objectives, factor: float) -> Objectives:
    """The same objectives for an engine that takes `factor` times as long."""
    times_s = {field: round(s * factor, 3) for field in TIMES.values() if (s := getattr(objectives, field))}
    return msgspec.structs.replace(objectives, **times_s)


def _load_of(pattern: Pattern) -> RunLoad:
    return RunLoad(pattern=pattern, prompts=USUAL_PROMPTS, max_tokens=TOKENS, prompt_words=PROMPT_TOKENS, seed=1)


async def _asked(url: str, bench: Bench) -> Result:
    """What becomes of the load's requests on the service there."""
    pattern = ClosedLoop(users=bench.trace.users) if bench.trace.users else bench.trace.pattern
    report = await run_load(url, _load_of(pattern), bench.seconds, objectives=bench.objectives)
    intended_s = np.array([each.intended_s for each in report.requests])
    good = np.array([each.has_met(bench.objectives) for each in report.requests])
    return Result.of_good(intended_s, good, bench.objectives, bench.seconds)


def judge(rows: Sequence[Row]) -> bool:
    """Print what the aims say; whether they hold."""
    holds = True
    for kind, least in LEAST_OF.items():
        ratios = [row.ratio for row in rows if row.kind == kind]
        if ratios:
            mean = math.exp(fmean(map(math.log, ratios)))
            holds &= mean >= least
            print(f"{kind} loads: {mean:.2f} of the goodput of the best fixed setting (aim: at least {least:.2f})")
    kept = fmean(row.held.kept for row in rows)
    print(f"the objective is kept in {kept:.0%} of the windows (aim: {LEAST_KEPT:.0%})", end="; ")
    print(f"by the best fixed setting in {fmean(row.fixed.kept for row in rows):.0%}")
    return holds and kept >= LEAST_KEPT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="of each load and objective (2)")
    parser.add_argument("--only", nargs="*", default=TRACES, metavar="LOAD", help=f"of {', '.join(TRACES)}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of each load ({SECONDS:g})")
    parser.add_argument("--by-objective", action="store_true", help="a line for each objective")
    parser.add_argument(
        "--no-clairvoyant", dest="clairvoyant", action="store_false", help="which takes most of the time"
    )
    parser.add_argument("--calm-s", type=float, default=CALM_S, help=f"between two moves of Hold ({CALM_S:g})")
    parser.add_argument("--urgent-s", type=float, default=URGENT_S, help=f"the same in need ({URGENT_S:g})")
    parser.add_argument("--trace", nargs="*", default=(), metavar="FILE", help="of Mooncake's")
    parser.add_argument("--real", action="store_true", help="six cells on the real service")
    options = parser.parse_args()
    cost = Case().predictor.cost
    traces = {
        Path(each).stem: Trace("changing", Recorded(path=each), recorded=read_trace(each)) for each in options.trace
    }
    if options.real:
        asyncio.run(on_the_real_service(options.only, options.seconds, cost))
        return 0
    print(HEAD, flush=True)
    rows = []
    for name, trace in traces.items() or [(each, TRACES[each]) for each in options.only]:
        for objectives in [[each] for each in OBJECTIVES] if options.by_objective else [OBJECTIVES]:
            row = row_of(name, trace, objectives, options, cost)
            rows.append(row)
            print(row, f"  {objectives[0].words}" if options.by_objective else "", flush=True)
    return 0 if judge(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
