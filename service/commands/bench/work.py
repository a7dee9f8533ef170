"""Carries a bench out: interleaves the runs, and concludes from those that were made."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from service.analysis.compare.progress import Progress
from service.commands.bench.other_work import OtherWork
from service.commands.bench.plan import HTTP, NAMES, WARM_UP_TOKENS, BenchPlan, PlannedRun, Subject, interleaved
from service.commands.bench.report import BenchReport, Rates, Run, concluded
from service.commands.bench.starting import Bench, NotStartedError, Tell, started
from service.commands.bench.worker import WorkerError
from service.commands.cli import Server
from service.commands.runs import WARM_UP, MeasuringError


class BenchWork:
    """One bench, which can be concluded at any time."""

    def __init__(self, plan: BenchPlan, subjects: tuple[Subject, ...], server: Server | None = None) -> None:
        """With `server` a service that is up is measured instead of one of our own."""
        self._plan = plan
        self._subjects = subjects
        self._server = server
        self._bench: Bench | None = None
        self._rates: Rates | None = None
        self._runs: list[Run] = []
        self._others = OtherWork()

    async def carry_out(self, tell: Tell) -> None:
        """Raises `MeasuringError`."""
        try:
            async with AsyncExitStack() as stack:
                self._bench = await started(stack, self._plan, self._subjects, self._server, tell)
                await self._measure(self._bench, tell)
        except (WorkerError, NotStartedError) as error:
            raise MeasuringError(str(error)) from error

    def report(self) -> BenchReport | None:
        """What the runs so far say, if there are any."""
        bench = self._bench
        if bench is None or not self._runs:
            return None
        weights = None if bench.facts is None else bench.facts.weights
        # A service that was up before is no descendant, so nobody can tell its work from that of others.
        warnings = self._others.warnings if self._server is None else []
        notes = [*bench.notes, *warnings]
        return concluded(self._plan, bench.on, self._runs, self._rates, weights, notes, measured_at=time.time())

    async def _measure(self, bench: Bench, tell: Tell) -> None:
        sizes = self._plan.sizes_on(bench.on.device)
        subjects = tuple(bench.measurers)
        await self._warm_up(bench, list(interleaved(subjects, sizes, 1)), tell)
        planned = list(interleaved(subjects, sizes, self._plan.rounds))
        told = _Told(planned, tell)
        for place, run in enumerate(planned):
            if place % (len(planned) // self._plan.rounds) == 0:
                await self._take_rates(bench)
            told.begin(place, f"round {run.round + 1} of {self._plan.rounds}: {_doing(run)}")
            with self._others:
                measured = await bench.measurers[run.subject].run(run.size, self._plan.tokens, self._plan.batches)
            self._runs.append(measured)
        await self._take_rates(bench)

    async def _warm_up(self, bench: Bench, planned: Sequence[PlannedRun], tell: Tell) -> None:
        """So that nothing is computed or connected for the first time in a round."""
        for run in planned:
            tell(Progress(done=0, total=0, doing=f"{WARM_UP}: {_doing(run)}", left_s=0.0))
            tokens = self._plan.tokens if run.subject in HTTP else min(WARM_UP_TOKENS, self._plan.tokens)
            await bench.measurers[run.subject].run(run.size, tokens, 1)

    async def _take_rates(self, bench: Bench) -> None:
        """What the machine does at best is the best of all that was measured: others can only make it slower."""
        if bench.reference is not None:
            with self._others:
                rates = await bench.reference.rates()
            self._rates = rates if self._rates is None else self._rates.or_better(rates)


class _Told:
    """Tells how far the runs are, and about how long the rest takes."""

    def __init__(self, planned: Sequence[PlannedRun], tell: Tell, clock: Callable[[], float] = time.monotonic) -> None:
        self._planned = planned
        self._tell = tell
        self._clock = clock
        self._begun_s = clock()

    def begin(self, place: int, doing: str) -> None:
        done, left = (sum(run.weight for run in part) for part in (self._planned[:place], self._planned[place:]))
        left_s = (self._clock() - self._begun_s) / done * left if done else 0.0
        self._tell(Progress(done=place, total=len(self._planned), doing=doing, left_s=left_s))


def _doing(run: PlannedRun) -> str:
    return f"{NAMES[run.subject]}, batch of {run.size}"
