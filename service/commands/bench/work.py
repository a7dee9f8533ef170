"""Carries a bench out: starts what it measures, interleaves the runs, and concludes from those that were made."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

import msgspec

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.progress import Progress
from service.commands.bench.other_work import OtherWork
from service.commands.bench.over_http import ThroughHttp
from service.commands.bench.plan import HTTP, NAMES, WARM_UP_TOKENS, BenchPlan, PlannedRun, Subject, interleaved
from service.commands.bench.report import BenchReport, BenchRun, MeasuredOn, Rates, concluded
from service.commands.bench.subjects import EngineAlone, Reference, ReferenceFacts
from service.commands.bench.worker import Worker, WorkerError
from service.commands.cli import Server
from service.commands.runs import WARM_UP, MeasuredService, MeasuringError
from service.messages.life import Failed, Ready, ServiceState, StageProgress
from service.messages.options import ServiceOptions, is_loopback
from service.messages.pipes import our_python, python_path
from service.messages.text import UserError


class NotStartedError(UserError):
    """The service did not start; the text is a sentence that says why."""


@asynccontextmanager
async def own_service(
    options: ServiceOptions, on_stage: Callable[[StageProgress], None] = lambda _: None
) -> AsyncIterator[Ready]:
    """That service on a free port. It ends with the block, and with this process: then its standard input ends."""
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    environment = {**os.environ, "PYTHONPATH": python_path()}
    process = await asyncio.create_subprocess_exec(
        *_command(options), stdin=pipe, stdout=pipe, stderr=nowhere, env=environment
    )
    try:
        yield await _ready(process, on_stage)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


def _command(options: ServiceOptions) -> tuple[str, ...]:
    place = ("--port", "0", "--model", options.model, "--device", options.device, "--dtype", options.dtype)
    return our_python("service", *place, "--formation", options.settings.formation)


async def _ready(process: asyncio.subprocess.Process, on_stage: Callable[[StageProgress], None]) -> Ready:
    assert process.stdout is not None
    async for line in process.stdout:
        match msgspec.json.decode(line, type=ServiceState):
            case Ready() as ready:
                return ready
            case Failed(reason=reason):
                raise NotStartedError(reason)
            case StageProgress() as stage:
                on_stage(stage)
    raise NotStartedError("The service ended before it was ready. Start it alone to see why: python -m service")


ELSEWHERE: Final = "Neither generate nor the floors were measured: the service runs on another machine."
LIBRARIES: Final = ("torch", "transformers")

Notify = Callable[[Progress], None]


class Measurer(Protocol):
    """Decodes batches of what it measures, one after the other."""

    async def run(self, size: int, tokens: int, batches: int) -> BenchRun: ...


class MeasuringWorker:
    """The methods of what a worker process measures."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def run(self, size: int, tokens: int, batches: int) -> BenchRun:
        return cast(BenchRun, await self._worker.ask("run", size, tokens, batches))


class ReferenceWorker(MeasuringWorker):
    """The methods of a `Reference`."""

    async def facts(self) -> ReferenceFacts:
        return cast(ReferenceFacts, await self._worker.ask("facts"))

    async def rates(self) -> Rates:
        return cast(Rates, await self._worker.ask("rates"))


@dataclass
class Bench:
    """What has been started.

    Attributes:
        reference: ``None`` where the service runs on another machine.
        facts: of `reference`.
        notes: sentences on what is missing.
    """

    on: MeasuredOn
    measurers: dict[Subject, Measurer] = field(default_factory=dict)
    reference: ReferenceWorker | None = None
    facts: ReferenceFacts | None = None
    notes: list[str] = field(default_factory=list)


async def started(
    stack: AsyncExitStack, plan: BenchPlan, subjects: tuple[Subject, ...], server: Server | None, notify: Notify
) -> Bench:
    """All ends with `stack`. Raises `MeasuringError`, `WorkerError` or `NotStartedError`."""
    if server is not None:
        return await _beside(stack, plan, subjects, server)
    notify(_beginning("loading the model"))
    workers = await _workers(stack, plan.service, subjects)
    service = None
    if HTTP.keys() & set(subjects):
        ready = await stack.enter_async_context(own_service(plan.service, lambda stage: notify(_stage(stage))))
        service = await stack.enter_async_context(MeasuredService.at(Server(ready.url), notify))
    return await _bench(plan, workers, service, subjects)


async def _beside(stack: AsyncExitStack, plan: BenchPlan, subjects: tuple[Subject, ...], server: Server) -> Bench:
    """A service that is up, and beside it, if it runs on this machine, workers that compute as it does."""
    service = await stack.enter_async_context(MeasuredService.at(server, lambda _: None))
    facts = await service.facts()
    if not is_loopback(urlsplit(server.url).hostname or ""):
        return _elsewhere(plan, service, facts, subjects)
    options = msgspec.structs.replace(plan.service, device=facts.device, dtype=facts.dtype)
    bench = await _bench(plan, await _workers(stack, options, subjects), service, subjects)
    if bench.on.model != facts.model:
        raise MeasuringError(
            f"{server.url} runs {facts.model}, and not {bench.on.model}. Name its model with --model, so that what it "
            "is held against computes the same."
        )
    bench.on = msgspec.structs.replace(bench.on, url=server.url)
    return bench


def _elsewhere(plan: BenchPlan, service: MeasuredService, facts: ServiceFacts, subjects: tuple[Subject, ...]) -> Bench:
    if "engine" in subjects:
        raise MeasuringError(f"{facts.url} is another machine, so the engine alone can't be: measure bench http.")
    on = MeasuredOn(model=facts.model, device=facts.device, dtype=facts.dtype, url=facts.url)
    return Bench(on, _through_http(plan, service, subjects), notes=[ELSEWHERE])


async def _workers(
    stack: AsyncExitStack, options: ServiceOptions, subjects: tuple[Subject, ...]
) -> dict[Subject, Worker]:
    """They begin to load, each in a process of its own."""
    workers: dict[Subject, Worker] = {}
    if "engine" in subjects:
        workers["engine"] = Worker(EngineAlone, options)
    workers["generate"] = Worker(Reference, options)
    for worker in workers.values():
        await stack.enter_async_context(worker)
    return workers


async def _bench(
    plan: BenchPlan, workers: dict[Subject, Worker], service: MeasuredService | None, subjects: tuple[Subject, ...]
) -> Bench:
    for worker in workers.values():
        await worker.ready()
    reference = ReferenceWorker(workers["generate"])
    facts = await reference.facts()
    versions = {name: version(name) for name in LIBRARIES}
    on = MeasuredOn(
        model=facts.model, device=facts.device, dtype=facts.dtype, hardware=facts.hardware, versions=versions
    )
    bench = Bench(on, reference=reference, facts=facts)
    if "engine" in workers:
        bench.measurers["engine"] = MeasuringWorker(workers["engine"])
    if service is not None:
        bench.measurers |= _through_http(plan, service, subjects)
    bench.measurers["generate"] = reference
    return bench


def _through_http(plan: BenchPlan, service: MeasuredService, subjects: tuple[Subject, ...]) -> dict[Subject, Measurer]:
    return {name: ThroughHttp(service, plan.service.settings.formation, name) for name in HTTP if name in subjects}


def _stage(stage: StageProgress) -> Progress:
    return _beginning(f"starting the service: {stage.name}")


def _beginning(doing: str) -> Progress:
    return Progress(done=0, total=0, doing=doing, left_s=0.0)


class BenchWork:
    """One bench, which can be concluded at any time."""

    def __init__(self, plan: BenchPlan, subjects: tuple[Subject, ...], server: Server | None = None) -> None:
        """With `server` a service that is up is measured instead of one of our own."""
        self._plan = plan
        self._subjects = subjects
        self._server = server
        self._bench: Bench | None = None
        self._rates: Rates | None = None
        self._runs: list[BenchRun] = []
        self._others = OtherWork()

    async def carry_out(self, notify: Notify) -> None:
        """Raises `MeasuringError`."""
        try:
            async with AsyncExitStack() as stack:
                self._bench = await started(stack, self._plan, self._subjects, self._server, notify)
                await self._measure(self._bench, notify)
        except (WorkerError, NotStartedError) as error:
            raise MeasuringError(str(error)) from error

    def report(self) -> BenchReport | None:
        """What the runs so far say, if there are any."""
        bench = self._bench
        if bench is None or not self._runs:
            return None
        weights = None if bench.facts is None else bench.facts.weights
        # A service that ran before is no descendant: its work cannot be told apart from that of other programs.
        warnings = self._others.warnings if self._server is None else []
        notes = [*bench.notes, *warnings]
        return concluded(self._plan, bench.on, self._runs, self._rates, weights, notes, measured_at=time.time())

    async def _measure(self, bench: Bench, notify: Notify) -> None:
        sizes = self._plan.sizes_on(bench.on.device)
        subjects = tuple(bench.measurers)
        await self._warm_up(bench, list(interleaved(subjects, sizes, 1)), notify)
        planned = list(interleaved(subjects, sizes, self._plan.rounds))
        pacer = _Pacer(planned, notify)
        for place, run in enumerate(planned):
            if place % (len(planned) // self._plan.rounds) == 0:
                await self._take_rates(bench)
            pacer.begin(place, f"round {run.round + 1} of {self._plan.rounds}: {_doing(run)}")
            with self._others:
                measured = await bench.measurers[run.subject].run(run.size, self._plan.tokens, self._plan.batches)
            assert (measured.subject, measured.size) == (run.subject, run.size)
            self._runs.append(measured)
        await self._take_rates(bench)

    async def _warm_up(self, bench: Bench, planned: Sequence[PlannedRun], notify: Notify) -> None:
        """So that nothing is computed or connected for the first time in a round."""
        for run in planned:
            notify(Progress(done=0, total=0, doing=f"{WARM_UP}: {_doing(run)}", left_s=0.0))
            tokens = self._plan.tokens if run.subject in HTTP else min(WARM_UP_TOKENS, self._plan.tokens)
            await bench.measurers[run.subject].run(run.size, tokens, 1)

    async def _take_rates(self, bench: Bench) -> None:
        """What the machine does at best is the best of all that was measured: others can only make it slower."""
        if bench.reference is not None:
            with self._others:
                rates = await bench.reference.rates()
            self._rates = rates if self._rates is None else self._rates.or_better(rates)


class _Pacer:
    """Notifies how far the runs are, and about how long the rest takes."""

    def __init__(
        self, planned: Sequence[PlannedRun], notify: Notify, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._planned = planned
        self._notify = notify
        self._clock = clock
        self._begun_s = clock()

    def begin(self, place: int, doing: str) -> None:
        done, left = (sum(run.weight for run in part) for part in (self._planned[:place], self._planned[place:]))
        left_s = (self._clock() - self._begun_s) / done * left if done else 0.0
        self._notify(Progress(done=place, total=len(self._planned), doing=doing, left_s=left_s))


def _doing(run: PlannedRun) -> str:
    return f"{NAMES[run.subject]}, batch of {run.size}"
