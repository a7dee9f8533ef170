"""Runs of load on a running service, each from idle to idle under settings of its own.

A comparison or a sweep goes on for minutes. It ends early by Ctrl-C, by SIGTERM or, where a window started it, at the
end of standard input. What was measured by then is kept, and the service gets its settings from before back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec
import numpy as np

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.progress import CompareEvent, Progress, Refused, RemainingTime
from service.analysis.compare.run import MeasuredRun
from service.analysis.compare.run_plan import WARM_UP_S, PlannedRun, Side
from service.analysis.observed.batches import mean_size
from service.commands import cli
from service.commands.load_options import add_load_options, add_objective_option
from service.commands.remote import RemoteService, ServiceWatch
from service.load.process import allow_connections, on_signals, run_undisturbed
from service.load.report import LoadReport
from service.load.run import FINISH_WITHIN_S, LoadProgress, run_load
from service.messages.load import RunLoad
from service.messages.objectives import NO_OBJECTIVES, Objectives
from service.messages.pipes import ExitCode
from service.messages.settings import Bounds, SettingError, Settings
from service.messages.telemetry import COMPARISON, BatchRecord
from service.messages.text import UserError, counted, format_time

Notify = Callable[[Progress], None]
Work = Coroutine[Any, Any, None]
Plan = TypeVar("Plan")

DURATION_S: Final = 10.0
LONGEST_WARM_UP_S: Final = 3600.0
STDIN: Final = 0
READ_BYTES: Final = 4096
WARM_UP: Final = "warming up"
WARM_UP_ENDS_WITHIN_S: Final = 15.0  # after its last request, whose answers are not counted
MATCHING: Final = "measuring the throughput of A"


class MeasuringError(UserError):
    """Nothing could be measured; the text is a sentence that says what to do."""


async def settings_in_force(server: cli.Server) -> Settings:
    """Raises `ServiceUnreachableError`."""
    async with RemoteService(server.url, server.token) as remote:
        return (await remote.settings()).settings


async def put_in_force(server: cli.Server, settings: Settings) -> None:
    """Raises `ServiceUnreachableError`."""
    async with RemoteService(server.url, server.token) as remote:
        await remote.change(msgspec.structs.asdict(settings))


class MeasuredService:
    """One service that is measured. Its settings are as they were before when it is left, however that happens."""

    def __init__(self, remote: RemoteService, server: cli.Server, notify: Notify, objectives: Objectives) -> None:
        self._remote = remote
        self._objectives = objectives
        self._server = server
        self._notify = notify
        self._watch = ServiceWatch(remote)

    @classmethod
    @asynccontextmanager
    async def at(
        cls, server: cli.Server, notify: Notify, objectives: Objectives = NO_OBJECTIVES
    ) -> AsyncIterator[Self]:
        """That service, whose requests are to meet `objectives`; raises `ServiceUnreachableError`."""
        async with RemoteService(server.url, server.token) as remote:
            before = await remote.settings()
            service = cls(remote, server, notify, objectives)
            try:
                async with service._watch:
                    yield service
            finally:
                await remote.change(msgspec.structs.asdict(before.settings))

    async def facts(self) -> ServiceFacts:
        """What is measured on."""
        replicas = await self._watch.replicas()
        first = replicas[0]
        return ServiceFacts(
            url=self._server.url, model=first.model, device=first.device, dtype=first.dtype, replicas=len(replicas)
        )

    @property
    def most_memory_bytes(self) -> int:
        """Of all replicas, during the last run."""
        return self._watch.most_memory_bytes

    async def throughput(self, side: Side, duration_s: float) -> float:
        """What this side reaches, in requests a second."""
        self._notify(Progress(done=0, total=0, doing=MATCHING, left_s=0.0))
        report, batches = await self.run(side.settings, side.load, duration_s)
        run = run_of(report, batches)
        return run.answered / run.ran_s

    async def warm_up(self, sides: Iterable[tuple[Settings, RunLoad]], seconds: float) -> None:
        """A short run of each side, so that nothing is computed or connected for the first time in a round."""
        for settings, load in sides:
            if seconds > 0:
                self._notify(Progress(done=0, total=0, doing=WARM_UP, left_s=0.0))
                await self.run(settings, load, seconds, finish_within_s=WARM_UP_ENDS_WITHIN_S)

    async def measure(
        self,
        runs: Sequence[PlannedRun],
        duration_s: float,
        take: Callable[[PlannedRun, MeasuredRun], None],
        done: int = 0,
    ) -> None:
        """Make `runs` and call `take` with each and its figures; `done` runs were made before. Progress is notified."""
        pace = RemainingTime(duration_s)
        for place, planned in enumerate(runs):
            begun_s = time.monotonic()

            def notify(doing: str, place: int = place, begun_s: float = begun_s) -> None:
                left_s = pace.left_s(runs[place:], time.monotonic() - begun_s)
                self._notify(Progress(done=done + place, total=done + len(runs), doing=doing, left_s=left_s))

            run = await self._run_planned(planned, duration_s, notify)
            pace.note(planned.key, time.monotonic() - begun_s)
            take(planned, run)

    async def _run_planned(self, planned: PlannedRun, duration_s: float, notify: Callable[[str], None]) -> MeasuredRun:
        notify(planned.title)
        report, batches = await self.run(
            planned.settings, planned.load, duration_s, lambda progress: notify(_doing(planned, progress))
        )
        return run_of(report, batches)

    async def run(
        self,
        settings: Settings,
        load: RunLoad,
        duration_s: float,
        on_progress: Callable[[LoadProgress], None] | None = None,
        finish_within_s: float = FINISH_WITHIN_S,
    ) -> tuple[LoadReport, list[BatchRecord]]:
        """Send `load` under these settings, from an idle service to an idle one: its report, and what was executed."""
        await self._watch.until_idle()
        await self._remote.change(msgspec.structs.asdict(settings))
        self._watch.forget()
        url, token, model = self._server
        report = await run_load(
            url,
            load,
            duration_s,
            token=token,
            model=model,
            on_progress=on_progress,
            finish_within_s=finish_within_s,
            id_prefix=COMPARISON,
            objectives=self._objectives,
        )
        await self._watch.until_idle()
        return report, self._watch.batches()


def _doing(planned: PlannedRun, progress: LoadProgress) -> str:
    totals = progress.totals
    if progress.elapsed_s < progress.duration_s:
        return f"{planned.title}, {totals.sent} sent"
    return f"{planned.title}, waiting for {counted(totals.outstanding, 'answer')}"


def run_of(report: LoadReport, batches: Sequence[BatchRecord]) -> MeasuredRun:
    """What is compared of a run; raises `MeasuringError` if not one request was answered."""
    totals = report.totals
    if not totals.ok:
        why = " ".join(report.warnings) or "Send more, or for longer."
        raise MeasuringError(f"No request was answered, so there is nothing to compare. {why}")
    requests = sorted(report.requests, key=lambda request: request.intended_s)
    latencies_s = [
        request.finished_s - request.intended_s
        for request in requests
        if request.outcome in ("ok", "cancelled") and request.finished_s is not None
    ]
    answered = [request for request in requests if request.outcome == "ok"]
    lag_ms = report.lag_ms
    return MeasuredRun(
        seed=report.seed,
        ran_s=report.ran_s,
        latencies_s=tuple(latencies_s),
        ttfts_s=tuple([request.ttft_s for request in answered if request.ttft_s is not None]),
        tpots_s=tuple([request.tpot_s for request in answered if request.tpot_s is not None]),
        tokens=sum(request.tokens for request in answered),
        good=sum(request.has_met(report.objectives) for request in answered) if report.objectives else None,
        broken_off=totals.cancelled,
        refused=totals.refused,
        failed=totals.failed,
        dropped=totals.dropped,
        mean_batch=_mean_batch(batches),
        lag_p99_ms=None if lag_ms is None else lag_ms.p99,
    )


def _mean_batch(batches: Sequence[BatchRecord]) -> float | None:
    ran = [(batch, batch.started_s) for batch in batches if batch.started_s is not None]
    size = np.array([float(batch.size) for batch, _ in ran])
    run_s = np.array([(batch.finished_s or started_s) - started_s for batch, started_s in ran])
    return mean_size(size, run_s, np.array([batch.formation == "continuous" for batch, _ in ran], np.bool_))


# -- what `compare` and `sweep` have in common ------------------------------------------------------------------------


def add_measuring_options(parser: argparse.ArgumentParser, usual_rounds: int) -> None:
    """Add the server, the load, how long it runs, and where the result goes."""
    add = parser.add_argument
    cli.add_server_options(parser)
    add("--duration", type=cli.seconds, default=DURATION_S, help="seconds to send for, in each run (default: 10)")
    add("--rounds", type=cli.rounds, default=usual_rounds, help=f"runs of each setting (default: {usual_rounds})")
    warm_up = cli.number(Bounds(0, LONGEST_WARM_UP_S, integral=False))
    add("--warm-up", type=warm_up, default=WARM_UP_S, help="seconds of load before; not counted (default: %(default)g)")
    add("--json", type=Path, help="file for the result: plan, every run, and what they say")
    add("--html", type=Path, help="file for a report with plots, a page that needs nothing else")
    add("--control", action="store_true", help="plan in on standard input, events out: for the window")
    add_objective_option(parser)
    add_load_options(parser)


class TerminalBar(cli.ProgressBar):
    """A progress bar of runs on standard error; a refusal as a sentence above it."""

    def __init__(self) -> None:
        super().__init__(self.RUNS, leaves=False)
        self._done = -1

    def take(self, event: CompareEvent) -> None:
        match event:
            case Progress():
                remark = f"{format_time(event.left_s)} left" if event.left_s else ""
                is_further, self._done = event.done != self._done, event.done
                self.show(event.done, max(event.total, 1), event.doing, remark, at_once=is_further)
            case Refused(reason=reason):
                self.say(reason)


def write_event(event: CompareEvent) -> None:
    """Write an event as a line of JSON to standard output."""
    with suppress(BrokenPipeError):  # the window is gone: the end of standard input says so, too
        sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
        sys.stdout.buffer.flush()


def obey_window(kind: type[Plan], work: Callable[[Plan], Work]) -> ExitCode:
    """Carry out the plan that a window writes as the first line of standard input."""
    try:
        plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)
    except (msgspec.MsgspecError, SettingError) as error:
        write_event(Refused(reason=f"The plan was not understood: {error}."))
        return ExitCode.CANNOT
    return carry_out(work(plan), write_event, ends_with_input=True)


def carry_out(work: Work, notify: Callable[[CompareEvent], None], *, ends_with_input: bool = False) -> ExitCode:
    """Run `work` to its end; `DONE`, `INTERRUPTED`, or `CANNOT` after a `Refused` that says why."""
    allow_connections()
    try:
        run_undisturbed(_until_stopped(work, ends_with_input))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return ExitCode.INTERRUPTED
    except UserError as error:
        notify(Refused(reason=str(error)))
        return ExitCode.CANNOT
    return ExitCode.DONE


async def _until_stopped(work: Work, ends_with_input: bool) -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    on_signals(partial(_cancel, task))
    if ends_with_input:
        threading.Thread(target=_await_end_of_input, args=(loop, task), daemon=True).start()
    await task


def _cancel(task: asyncio.Task[None]) -> None:
    """Once: a second Ctrl-C must not keep the service from getting its settings back."""
    if not task.cancelling():
        task.cancel()


def _await_end_of_input(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    while os.read(STDIN, READ_BYTES):  # not sys.stdin, whose lock the program's end waits for
        pass
    with suppress(RuntimeError):  # the loop has closed meanwhile
        loop.call_soon_threadsafe(_cancel, task)
