"""Carries a bench out: starts workers and a service, interleaves the runs, and concludes from those that were made."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from service.analysis.compare.progress import Progress
from service.commands.bench.other_work import OtherWork
from service.commands.bench.report import (
    HTTP,
    NAMES,
    WARM_UP_TOKENS,
    BenchPlan,
    BenchReport,
    BenchRun,
    MeasuredOn,
    PlannedRun,
    Rates,
    Subject,
    Weights,
    concluded,
    interleaved,
)
from service.commands.bench.subjects import EngineAlone, Reference
from service.commands.bench.worker import Worker
from service.commands.cli import Server
from service.commands.runs import WARM_UP, MeasuredService, MeasuringError
from service.load.report import LoadReport, tokens_between
from service.messages.life import Failed, Ready, ServiceState, StageProgress
from service.messages.load import USUAL_PROMPTS, ClosedLoop, RunLoad
from service.messages.options import ServiceOptions, is_loopback
from service.messages.pipes import our_python, python_path
from service.messages.settings import Formation, Settings
from service.messages.telemetry import BatchRecord

Notify = Callable[[Progress], None]

AT_ONCE_S: Final = 0.1  # no user asks a second time: the first answer takes longer
USERS_A_ROW: Final = 2  # one is generated for, and one waits to take the place
BATCHES_BEFORE: Final = 1  # its users have all come at once
BATCHES_AFTER: Final = 2  # until every request counts that was under way in the measured time


@asynccontextmanager
async def own_service(options: ServiceOptions, notify: Notify = lambda _: None) -> AsyncIterator[Ready]:
    """That service on a free port. It ends with the block, and with this process: then its standard input ends."""
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    environment = {**os.environ, "PYTHONPATH": python_path()}
    process = await asyncio.create_subprocess_exec(
        *_command(options), stdin=pipe, stdout=pipe, stderr=nowhere, env=environment
    )
    try:
        yield await _ready(process, notify)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


def _command(options: ServiceOptions) -> tuple[str, ...]:
    place = ("--port", "0", "--model", options.model, "--device", options.device, "--dtype", options.dtype)
    return our_python("service", *place, "--formation", options.settings.formation)


async def _ready(process: asyncio.subprocess.Process, notify: Notify) -> Ready:
    assert process.stdout is not None
    async for line in process.stdout:
        match msgspec.json.decode(line, type=ServiceState):
            case Ready() as ready:
                return ready
            case Failed(reason=reason):
                raise MeasuringError(reason)
            case StageProgress(name=name):
                notify(_beginning(f"starting the service: {name}"))
    raise MeasuringError("The service ended before it was ready. Start it alone to see why: python -m service")


ELSEWHERE: Final = "Neither generate nor the floors were measured: the service runs on another machine."


class ThroughHttp:
    """Batches of a service that is up; how long one takes at a size is known from the last run there."""

    def __init__(self, service: MeasuredService, formation: Formation, subject: Subject) -> None:
        self._service = service
        self._formation = formation
        self._subject: Subject = subject
        self._batch_s: dict[int, float] = {}

    async def run(self, size: int, tokens: int, run_s: float) -> BenchRun:
        """Measure about `run_s` while all users are there; the first run at a size measures one wave."""
        settings = Settings(formation=self._formation, max_batch_size=size)
        load = RunLoad(
            pattern=ClosedLoop(users=USERS_A_ROW * size),
            prompts=USUAL_PROMPTS,
            max_tokens=tokens,
            stream=HTTP[self._subject],
        )
        batch_s = self._batch_s.get(size)
        for_s = AT_ONCE_S if batch_s is None else run_s + (BATCHES_BEFORE + BATCHES_AFTER) * batch_s
        report, executed = await self._service.run(settings, load, for_s)
        within_s = (
            (0.0, report.ran_s) if batch_s is None else (BATCHES_BEFORE * batch_s, for_s - BATCHES_AFTER * batch_s)
        )
        run = run_of(self._subject, size, report, executed, self._service.most_memory_bytes, within_s)
        self._batch_s[size] = size * tokens / run.tokens_per_s
        return run


def run_of(
    subject: Subject,
    size: int,
    report: LoadReport,
    executed: Sequence[BatchRecord],
    memory_bytes: int,
    within_s: tuple[float, float],
) -> BenchRun:
    """What was measured between two times since the start; raises `MeasuringError` if not all were answered."""
    if report.totals.ok < max(report.totals.sent, 1):
        why = " ".join(report.warnings) or "Nothing was sent."
        raise MeasuringError(f"Not all requests were answered at a batch size of {size}. {why}")
    tokens = tokens_between(report.requests, *within_s)
    if not tokens:
        raise MeasuringError(f"The service was too slow at a batch size of {size}: nothing came in the time measured.")
    first_token_s = report.time_to_first_token_s
    return BenchRun(
        subject=subject,
        size=size,
        tokens=tokens,
        ran_s=within_s[1] - within_s[0],
        step_s=_step_s(executed),
        first_token_s=None if first_token_s is None else first_token_s.p50,
        memory_bytes=memory_bytes,
        rows=_rows(executed),
    )


def _step_s(executed: Sequence[BatchRecord]) -> float | None:
    """Time of a step as the service reports it, without the reading of prompts.

    Prompts of a new batch are read in a step of their own; those of a request that joins are read in a shared step.
    """
    decoding_s, steps = 0.0, 0
    for batch in executed:
        if batch.work is None or batch.started_s is None or batch.finished_s is None:
            continue
        decoding_s += batch.finished_s - batch.started_s - batch.work.prefill_s
        steps += batch.work.steps - (batch.release_reason not in ("joined", "left"))
    return decoding_s / steps if steps > 0 else None


def _rows(executed: Sequence[BatchRecord]) -> float:
    """Rows of a step, on average."""
    steps = sum(batch.work.steps for batch in executed if batch.work is not None)
    return sum(batch.tokens for batch in executed) / steps if steps else 0.0


Measurer: TypeAlias = Worker | ThroughHttp
"""Decodes batches of what it measures, one after the other, with its `run`."""


@dataclass
class Bench:
    """What has been started.

    Attributes:
        reference: measures the rates of the machine; ``None`` where the service runs on another machine.
        weights: of the model of `reference`.
        notes: sentences on what is missing.
    """

    on: MeasuredOn
    measurers: dict[Subject, Measurer]
    reference: Worker | None = None
    weights: Weights | None = None
    notes: list[str] = field(default_factory=list)


async def started(
    stack: AsyncExitStack, plan: BenchPlan, subjects: tuple[Subject, ...], server: Server | None, notify: Notify
) -> Bench:
    """All ends with `stack`. Raises `MeasuringError` or `WorkerError`."""
    if server is not None:
        return await _beside(stack, plan, subjects, server)
    notify(_beginning("loading the model"))
    workers = await _workers(stack, plan.service, subjects)
    through_http: dict[Subject, Measurer] = {}
    if HTTP.keys() & set(subjects):
        ready = await stack.enter_async_context(own_service(plan.service, notify))
        service = await stack.enter_async_context(MeasuredService.at(Server(ready.url), notify))
        through_http = _through_http(plan, service, subjects)
    return await _bench(workers, through_http)


async def _beside(stack: AsyncExitStack, plan: BenchPlan, subjects: tuple[Subject, ...], server: Server) -> Bench:
    """A service that is up, and beside it, if it runs on this machine, workers that compute as it does."""
    service = await stack.enter_async_context(MeasuredService.at(server, lambda _: None))
    facts = await service.facts()
    through_http = _through_http(plan, service, subjects)
    if not is_loopback(urlsplit(server.url).hostname or ""):
        if "engine" in subjects:
            raise MeasuringError(f"{facts.url} is another machine, so the engine alone can't be: measure bench http.")
        on = MeasuredOn(model=facts.model, device=facts.device, dtype=facts.dtype, url=facts.url)
        return Bench(on, through_http, notes=[ELSEWHERE])
    options = msgspec.structs.replace(plan.service, device=facts.device, dtype=facts.dtype)
    bench = await _bench(await _workers(stack, options, subjects), through_http)
    if bench.on.model != facts.model:
        raise MeasuringError(
            f"{server.url} runs {facts.model}, and not {bench.on.model}. Name its model with --model, so that what it "
            "is held against computes the same."
        )
    bench.on = msgspec.structs.replace(bench.on, url=server.url)
    return bench


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


async def _bench(workers: dict[Subject, Worker], through_http: dict[Subject, Measurer]) -> Bench:
    for worker in workers.values():
        await worker.ready()
    reference = workers.pop("generate")
    on, weights = await reference.ask("facts")
    return Bench(on, {**workers, **through_http, "generate": reference}, reference, weights)


def _through_http(plan: BenchPlan, service: MeasuredService, subjects: tuple[Subject, ...]) -> dict[Subject, Measurer]:
    return {name: ThroughHttp(service, plan.service.settings.formation, name) for name in HTTP if name in subjects}


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
        """Raises `MeasuringError` or `WorkerError`."""
        async with AsyncExitStack() as stack:
            self._bench = await started(stack, self._plan, self._subjects, self._server, notify)
            await self._measure(self._bench, notify)

    def report(self) -> BenchReport | None:
        """What the runs so far say, if there are any."""
        bench = self._bench
        if bench is None or not self._runs:
            return None
        # A service that ran before is no descendant: its work cannot be told apart from that of other programs.
        warnings = self._others.warnings if self._server is None else []
        notes = [*bench.notes, *warnings]
        return concluded(self._plan, bench.on, self._runs, self._rates, bench.weights, notes, measured_at=time.time())

    async def _measure(self, bench: Bench, notify: Notify) -> None:
        sizes = self._plan.sizes_on(bench.on.device)
        subjects = tuple(bench.measurers)
        await self._warm_up(bench, list(interleaved(subjects, sizes, 1)), notify)
        planned = list(interleaved(subjects, sizes, self._plan.rounds))
        begun_s = time.monotonic()
        for place, run in enumerate(planned):
            if place % (len(planned) // self._plan.rounds) == 0:
                await self._take_rates(bench)
            done, left = (sum(each.weight for each in part) for part in (planned[:place], planned[place:]))
            left_s = (time.monotonic() - begun_s) / done * left if done else 0.0
            doing = f"round {run.round + 1} of {self._plan.rounds}: {_doing(run)}"
            notify(Progress(done=place, total=len(planned), doing=doing, left_s=left_s))
            with self._others:
                measured = await bench.measurers[run.subject].run(run.size, self._plan.tokens, self._plan.run_s)
            assert (measured.subject, measured.size) == (run.subject, run.size)
            self._runs.append(measured)
        await self._take_rates(bench)

    async def _warm_up(self, bench: Bench, planned: Sequence[PlannedRun], notify: Notify) -> None:
        """So that nothing is computed or connected for the first time in a round."""
        for run in planned:
            notify(_beginning(f"{WARM_UP}: {_doing(run)}"))
            tokens = self._plan.tokens if run.subject in HTTP else min(WARM_UP_TOKENS, self._plan.tokens)
            await bench.measurers[run.subject].run(run.size, tokens, 0.0)

    async def _take_rates(self, bench: Bench) -> None:
        """What the machine does at best is the best of all that was measured: others can only make it slower."""
        if bench.reference is not None:
            with self._others:
                rates: Rates = await bench.reference.ask("rates")
            self._rates = rates if self._rates is None else self._rates.or_better(rates)


def _doing(run: PlannedRun) -> str:
    return f"{NAMES[run.subject]}, batch of {run.size}"
