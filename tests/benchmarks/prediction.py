"""Predictions of 36 cells (3 formations, 4 loads, 3 caps) on the real service, each held against what then came.

python -m tests.benchmarks.prediction [--cells N] [--only late,closed,16 …] [--seconds S] [--seed N]

As a user would: while a load runs under one setting, another is predicted from what the window would know then; then it
is put in force and measured, and the next is predicted from that. The settings of a load come in a random order. Open
loops are shares of the capacity that full batches of 8 reach under `late`, measured first. Where requests come faster
than a cell serves them its figures are those at the prediction's horizon, and the load begins anew with the next cell.

A line a cell: what was predicted with its band, what was measured, the error, and "!" where it came outside the band.
`engine` is by what factor the batches took longer than the fit says that the prediction rests on, and `others` how much
of the processor other programs took. Cells whose engine had just changed its speed, where the window makes no
prediction, bear a "~" and are counted apart. It ends with 0 if the aims hold.

What the engine's own speed does between a prediction and its outcome no prediction can know. So the errors are also
said of predictions at the prices that the outcome's own batches had: they are those of the simulation alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from random import Random
from statistics import median
from typing import Final

import msgspec
import numpy as np

from service.analysis.observed.history import History
from service.analysis.observed.scores import SCORED
from service.analysis.predict.cost import CostModel, Executed
from service.analysis.predict.observation import Observation
from service.analysis.predict.predict import Predictor
from service.analysis.predict.prediction_report import measured
from service.analysis.predict.score import LATE_S, Outcome, span_of
from service.analysis.predict.speed import SpeedChange
from service.commands.bench.other_work import OtherWork
from service.commands.remote import RemoteService, ServiceWatch
from service.messages.clock import monotonic_clock_id
from service.messages.load import (
    USUAL_PROMPTS,
    Cancel,
    ClosedLoop,
    LoadCommand,
    LoadEvent,
    LoadFrame,
    Pattern,
    Poisson,
    RunLoad,
    StopLoad,
)
from service.messages.settings import FORMATIONS, Formation, Settings
from service.messages.telemetry import FramesMissed
from tests.benchmarks.measure import TOKENS, batchscope
from tests.unit.test_predict_theory import chain, latencies_s, rate_at, simulated

CAPS: Final = (4, 8, 16)
LOADS: Final = ("30", "60", "80", "closed")
USERS: Final = 12
BASE: Final = Settings(max_batch_size=8, batch_wait_timeout_s=0.05)
TIMEOUTS_S: Final = {"late": 0.05, "early": 0.2, "continuous": 0.0}
OBSERVED_S: Final = 20.0
LEAST_OBSERVED: Final = 8  # batches
MOST_DRAIN_S: Final = 60.0
CAPACITY_S: Final = 10.0
AIMS: Final = {"p50_s": 0.07, "p95_s": 0.12, "ttft_p50_s": 0.15, "tpot_p50_s": 0.15}
INSIDE: Final = (0.85, 0.95)
THEORY_LOADS: Final = (0.1, 0.3, 0.5, 0.7, 0.8)
SHORT: Final = {"late": "late", "early": "early", "continuous": "cont."}


@dataclass(frozen=True)
class Cell:
    """A setting under a load: a share of the capacity in percent, or "closed"."""

    formation: Formation
    load: str
    cap: int

    @property
    def settings(self) -> Settings:
        timeout_s = TIMEOUTS_S[self.formation]
        return Settings(formation=self.formation, max_batch_size=self.cap, batch_wait_timeout_s=timeout_s)

    @property
    def name(self) -> str:
        return f"{SHORT[self.formation]:5} {self.cap:2}  {self.load}{'' if self.load == 'closed' else ' %'}"

    def is_chosen(self, only: Sequence[str]) -> bool:
        """Whether every word of one of these lists names its formation, load or cap."""
        own = {self.formation, self.load, str(self.cap)}
        return not only or any(set(each.split(",")) <= own for each in only)


@dataclass(frozen=True)
class Row:
    """A cell with its outcome.

    Attributes:
        at_its_prices: the outcome of the prediction at the prices of the outcome's own batches; ``None`` where
            these are too few for a fit.
        speed: by what factor the batches took longer than the prediction's cost model says.
        others: share of the processor that other programs took meanwhile.
        changed: the change of the engine's speed for which the window would have made no prediction.
    """

    cell: Cell
    outcome: Outcome
    at_its_prices: Outcome | None
    speed: float
    others: float
    changed: SpeedChange | None

    def print(self) -> None:
        texts = (_figure(self.outcome, name) for name in SCORED)
        mark = "~" if self.changed else " "
        grows = " grows" if self.outcome.prediction.saturated else ""
        print(f"{self.cell.name:16}{mark}{'  '.join(texts)}  ×{self.speed:4.2f}  {self.others:4.0%}{grows}", flush=True)


def _figure(outcome: Outcome, name: str) -> str:
    estimate, value, error = getattr(outcome.prediction, name), getattr(outcome.measured, name), outcome.error(name)
    if error is None:
        return f"{'–':^34}"
    scale, digits = (1e3, 1) if name.startswith("tpot") else (1.0, 2)
    predicted, low, high, came = (f"{scale * each:.{digits}f}" for each in (*msgspec.structs.astuple(estimate), value))
    outside = " " if outcome.is_inside(name) else "!"
    return f"{predicted:>5} ({low:>5}–{high:>5}) {came:>5} {error:+5.0%}{outside}"


class Load:
    """The load generator on a service whose telemetry is heard all the time."""

    def __init__(self, remote: RemoteService, history: History, process: asyncio.subprocess.Process) -> None:
        self._remote, self.history, self._process = remote, history, process

    async def begin(self, pattern: Pattern, seed: int) -> None:
        self._command(RunLoad(pattern=pattern, prompts=USUAL_PROMPTS, max_tokens=TOKENS, seed=seed))
        await until(lambda: self.history.load is not None and self.history.load.pattern == pattern)

    async def end(self) -> None:
        """Stop the load, cancel what is under way, and wait until the service is idle."""
        self._command(StopLoad())
        self._command(Cancel())
        async with ServiceWatch(self._remote) as watch:
            await watch.until_idle()

    async def apply(self, settings: Settings) -> float:
        """Put settings in force; returns when the first batch was formed under them."""
        version = (await self._remote.change(msgspec.structs.asdict(settings))).version
        regimes = self.history.batches.regimes
        await until(lambda: bool(regimes) and self.history.batches.regimes[-1].version >= version)
        return self.history.batches.regimes[-1].start_s

    def _command(self, command: LoadCommand) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(command) + b"\n")

    async def heard(self, at_s: float) -> None:
        await until(lambda: (self.history.last_s or 0.0) >= at_s)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 — what is waited for comes with frames, 20 a second
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def _load(url: str, remote: RemoteService) -> AsyncIterator[Load]:
    history, pipe = History(monotonic_clock_id()), asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "service", "load", "--control", "--url", url)
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=2**24)
    decoder: msgspec.json.Decoder[LoadEvent] = msgspec.json.Decoder(LoadEvent)

    async def hear() -> None:
        async for event in remote.telemetry():
            if isinstance(event, FramesMissed):
                history.add_missed(event)
            else:
                history.add_telemetry(event)

    async def hear_load() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if isinstance(frame := decoder.decode(line), LoadFrame):
                history.add_load(frame)

    tasks = [asyncio.create_task(hear()), asyncio.create_task(hear_load())]
    await until(lambda: history.first_s is not None)
    try:
        yield Load(remote, history, process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def observed_under(load: Load, since_s: float) -> Observation:
    """What is known once there are enough batches of the present settings."""
    while True:
        at_s = load.history.now_s()
        observation = Observation.of_history(load.history, at_s, max(OBSERVED_S, at_s - since_s))
        if observation is not None and len(executed_between(observation.executed, since_s, np.inf)) >= LEAST_OBSERVED:
            return observation
        await load.heard(at_s + 1.0)


def executed_between(executed: Executed, start_s: float, end_s: float) -> Executed:
    within = (executed.finished_s > start_s) & (executed.finished_s <= end_s)
    return Executed(*(getattr(executed, field.name)[within] for field in fields(executed)))


async def measure(load: Load, cell: Cell, since_s: float, seconds: float) -> tuple[Row, float] | None:
    """Predict the cell from what ran since `since_s`, and measure it; also since when it is in force.

    ``None`` where the prediction does not say when it holds, or what was sealed before takes too long.
    """
    history = load.history
    observation = await observed_under(load, since_s)
    predictor = Predictor.of(observation)
    prediction = await asyncio.to_thread(predictor.predict, cell.settings, seconds)
    assert prediction is not None
    if span_of(prediction, 0.0) is None:
        print(f"{cell.name:16} not measured: the backlog takes longer than can be predicted", flush=True)
        return None
    with OtherWork() as others:
        try:
            begun_s = await asyncio.wait_for(load.apply(cell.settings), MOST_DRAIN_S)
        except TimeoutError:
            print(f"{cell.name:16} not measured: batches sealed before still run", flush=True)
            return None
        span = span_of(prediction, begun_s)
        assert span is not None
        await load.heard(span[1] + LATE_S)
    ran = executed_between(Executed.of_history(history), begun_s, span[1])
    speed, came, own = _speed(predictor.cost, ran), measured(history, *span), CostModel.of_batches(ran)
    then = None if own is None else replace(predictor, cost=own).predict(cell.settings, seconds)
    at_its_prices = None if then is None else Outcome(then, came)
    changed = SpeedChange.of_batches(observation.executed)
    return Row(cell, Outcome(prediction, came), at_its_prices, speed, others.share, changed), begun_s


def _speed(cost: CostModel, ran: Executed) -> float:
    return float(np.median(cost.ratios(ran))) if len(ran) else float("nan")


async def run_load(load: Load, cells: Sequence[Cell], pattern: Pattern, options: argparse.Namespace) -> list[Row]:
    """The rows of cells that have one load: each is predicted from the one before."""
    rows: list[Row] = []
    since_s: float | None = None
    for number, cell in enumerate(cells):
        if since_s is None:
            present = cells[number - 1] if cells[number - 1] != cell else replace(cell, cap=CAPS[cell.cap == CAPS[0]])
            await load.begin(pattern, options.seed)
            since_s = await load.apply(present.settings)
            await load.heard(since_s + OBSERVED_S)
        came = await measure(load, cell, since_s, options.seconds)
        since_s = None
        if came is not None:
            row, since_s = came
            row.print()
            rows.append(row)
        if came is None or row.outcome.prediction.saturated:
            await load.end()
            since_s = None
    await load.end()
    return rows


async def capacity_per_s(load: Load) -> float:
    """Requests a second that full batches reach under `BASE`."""
    await load.begin(ClosedLoop(users=2 * BASE.max_batch_size), 1)
    begun_s = await load.apply(BASE) + CAPACITY_S / 2
    await load.heard(begun_s + CAPACITY_S)
    rate = measured(load.history, begun_s, begun_s + CAPACITY_S).requests_per_s
    await load.end()
    return rate


async def run(url: str, options: argparse.Namespace) -> list[Row]:
    chosen = [Cell(*each) for each in product(FORMATIONS, LOADS, CAPS)]
    chosen = [cell for cell in chosen if cell.is_chosen(options.only)]
    Random(options.seed).shuffle(chosen)
    chosen = chosen[: options.cells]
    rows: list[Row] = []
    async with RemoteService(url) as remote, _load(url, remote) as load:
        capacity = await capacity_per_s(load)
        print(f"{capacity:.1f} requests/s with full batches of {BASE.max_batch_size} under {BASE.formation}")
        titles = "".join(f"{name + (' (ms)' if 'TPOT' in name else ' (s)'):<36}" for name in SCORED.values())
        print(f"{'':17}{titles}engine others", flush=True)
        for name in LOADS:
            cells = [cell for cell in chosen if cell.load == name]
            rate_per_s = capacity if name == "closed" else capacity * int(name) / 100
            pattern = ClosedLoop(users=USERS) if name == "closed" else Poisson(rate_per_s=round(rate_per_s, 2))
            rows += await run_load(load, cells, pattern, options) if cells else []
    return rows


def judge(rows: Sequence[Row]) -> bool:
    """Print the medians of the errors, and the share inside; returns whether the aims hold."""
    made = [row for row in rows if row.changed is None]
    print(f"{len(rows)} cells, {len(rows) - len(made)} of them after a change of the engine's speed (~), not counted")
    holds = _judge_errors([(row.cell.formation, row.outcome) for row in made])
    inside = _inside([row.outcome for row in made])
    print(
        f"inside their band: {100 * inside:.0f} of 100 outcomes ({100 * INSIDE[0]:.0f} to {100 * INSIDE[1]:.0f} of 100)"
    )
    print("at the prices of the outcome's own batches:")
    at_its_prices = [(row.cell.formation, row.at_its_prices) for row in made if row.at_its_prices is not None]
    _judge_errors(at_its_prices)
    print(f"inside their band: {100 * _inside([outcome for _, outcome in at_its_prices]):.0f} of 100 outcomes")
    return holds and INSIDE[0] <= inside <= INSIDE[1]


def _judge_errors(outcomes: Sequence[tuple[Formation, Outcome]]) -> bool:
    holds = True
    for name, aim in AIMS.items():
        errors = [(formation, error) for formation, each in outcomes if (error := each.error(name)) is not None]
        if errors:
            all_together = median(abs(error) for _, error in errors)
            holds &= all_together <= aim
            print(f"{SCORED[name]:9} median error {all_together:4.0%} (at most {aim:.0%})", end="")
            for formation in FORMATIONS:
                own = [error for each, error in errors if each == formation]
                if own:
                    print(f"   {formation} {median(map(abs, own)):.0%}, in the mean {np.mean(own):+.0%}", end="")
            print()
    return holds


def _inside(outcomes: Sequence[Outcome]) -> float:
    inside = [is_in for each in outcomes for name in SCORED if (is_in := each.is_inside(name)) is not None]
    return float(np.mean(inside)) if inside else float("nan")


def print_theory() -> None:
    """The simulator beside the exact mean latency of `late` under Poisson arrivals, without a timeout."""
    errors = []
    for share in THEORY_LOADS:
        rate = rate_at(share, 256)
        errors.append(float(np.mean(latencies_s(simulated(rate)))) / chain(rate).latency_s() - 1)
    told = ", ".join(f"{error:+.1%} at {share:.0%}" for error, share in zip(errors, THEORY_LOADS, strict=True))
    print(f"simulator against theory (mean latency, late, by load): {told}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=len(FORMATIONS) * len(LOADS) * len(CAPS), help="how many (36)")
    parser.add_argument("--only", nargs="*", default=(), help="words that a cell must have: continuous,80 or late,16")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement (30)")
    parser.add_argument("--seed", type=int, default=7, help="of the order of the cells and of the arrivals (7)")
    options = parser.parse_args()
    with batchscope("--port", "0") as ready, OtherWork() as others:
        rows = asyncio.run(run(ready.url, options))
    holds = judge(rows)
    print(f"Other programs used {others.share:.0%} of the processor.")
    print_theory()
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
