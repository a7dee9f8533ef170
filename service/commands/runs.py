"""Runs of load on a running service, each from idle to idle under settings of its own.

A comparison or a sweep goes on for minutes. It ends early by Ctrl-C, by SIGTERM or, where a window started it, at the
end of standard input. What was measured by then is kept, and the service gets its settings from before back.
"""

from __future__ import annotations

import argparse
import asyncio
import operator
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

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.progress import (
    SETTLE_S,
    Backlog,
    CompareEvent,
    Duration,
    Progress,
    Refused,
    RemainingTime,
)
from service.analysis.compare.run import MeasuredRun
from service.analysis.compare.run_plan import WARM_UP_S, PlannedRun, Side
from service.analysis.observed.batches import mean_size_of
from service.commands import cli
from service.commands.load_options import add_load_options, add_objective_option
from service.commands.remote import RemoteService, ServiceWatch
from service.load.process import allow_connections, on_signals, run_undisturbed
from service.load.report import LoadReport
from service.load.run import FINISH_WITHIN_S, LoadProgress, run_load
from service.messages.load import RunLoad
from service.messages.objectives import NO_OBJECTIVES, Objectives
from service.messages.pipes import ExitCode, write_event
from service.messages.settings import Bounds, SettingError, Settings
from service.messages.telemetry import COMPARISON, COMPARISON_WARM_UP, BatchRecord
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
        self._rest_s = SETTLE_S
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

    async def throughput(self, side: Side, duration_s: float, left_s: float = 0.0) -> float:
        """What this side reaches, in requests a second; `left_s` is what all of it takes from here on."""
        notified = NotifiedRun(self._notify, MATCHING, partial(operator.sub, left_s))
        report, batches = await self.run(side.settings, side.load, duration_s, notified)
        run = run_of(report, batches)
        return run.answered / run.ran_s

    async def warm_up(self, sides: Iterable[tuple[Settings, RunLoad]], seconds: float, left_s: float = 0.0) -> float:
        """A short run of each side, so that nothing is computed or connected for the first time in a round.

        `left_s` is what all of it takes from here on; returns what it then takes.
        """
        for settings, load in sides:
            if seconds > 0:
                notified = NotifiedRun(self._notify, WARM_UP, partial(operator.sub, left_s))
                await self.run(settings, load, seconds, notified, WARM_UP_ENDS_WITHIN_S, COMPARISON_WARM_UP)
                self._rest_s = max(self._rest_s, notified.ran_s - seconds)
                left_s -= notified.ran_s
        return left_s

    async def measure(
        self,
        runs: Sequence[PlannedRun],
        duration_s: float,
        take: Callable[[PlannedRun, MeasuredRun], None],
        done: int = 0,
    ) -> None:
        """Make `runs` and call `take` with each and its figures; `done` runs were made before. Progress is notified."""
        pace = RemainingTime(duration_s, self._rest_s)
        for place, planned in enumerate(runs):

            def left_s(ran_s: float, place: int = place) -> float:
                return pace.left_s(runs[place:], ran_s)

            point = planned.key if isinstance(planned.key, int) else None
            notified = NotifiedRun(self._notify, planned.title, left_s, done + place, done + len(runs), point)
            report, batches = await self.run(planned.settings, planned.load, duration_s, notified)
            pace.note(planned.key, notified.ran_s)
            take(planned, run_of(report, batches))

    async def run(
        self,
        settings: Settings,
        load: RunLoad,
        duration_s: float,
        notified: NotifiedRun | None = None,
        finish_within_s: float = FINISH_WITHIN_S,
        id_prefix: str = COMPARISON,
    ) -> tuple[LoadReport, list[BatchRecord]]:
        """Send `load` under these settings, from an idle service to an idle one: its report, and what was executed."""
        if notified is not None:
            notified.begin()
        await self._watch.until_idle(None if notified is None else notified.wait)
        await self._remote.change(msgspec.structs.asdict(settings))
        self._watch.forget()
        url, token, model = self._server
        report = await run_load(
            url,
            load,
            duration_s,
            token=token,
            model=model,
            on_progress=None if notified is None else notified.advance,
            finish_within_s=finish_within_s,
            id_prefix=id_prefix,
            objectives=self._objectives,
        )
        await self._watch.until_idle()
        return report, self._watch.batches()


class NotifiedRun:
    """The time of one run as it is notified; how long it waits for other load before is no part of it."""

    def __init__(
        self,
        notify: Notify,
        title: str,
        left_s: Callable[[float], float],
        done: int = 0,
        total: int = 0,
        point: int | None = None,
    ) -> None:
        """`left_s` says how long all takes from here on, once the run has lasted for `ran_s`."""
        self._notify = notify
        self._title = title
        self._left_s = left_s
        self._done, self._total, self._point = done, total, point
        self._began_s: float | None = None
        self._backlog = Backlog()
        self._begun_s = 0.0

    @property
    def ran_s(self) -> float:
        return time.monotonic() - self._begun_s

    def begin(self) -> None:
        self._begun_s = time.monotonic()
        self._say(self._title)

    def wait(self, held: int) -> None:
        """The service still holds `held` requests that are not of this run."""
        self._begun_s = time.monotonic()
        self._say(self._backlog.text(self._begun_s, held), held)

    def advance(self, progress: LoadProgress) -> None:
        """The run's own load has come so far."""
        totals = progress.totals
        self._began_s = self._began_s or time.monotonic() - progress.elapsed_s
        is_over = progress.elapsed_s >= progress.duration_s
        doing = f"waiting for {counted(totals.outstanding, 'answer')}" if is_over else f"{totals.sent} sent"
        self._say(f"{self._title}, {doing}")

    def _say(self, doing: str, backlog: int = 0) -> None:
        left_s = max(self._left_s(self.ran_s), 0.0)
        self._notify(
            Progress(
                done=self._done,
                total=self._total,
                doing=doing,
                left_s=left_s,
                backlog=backlog,
                point=self._point,
                began_s=self._began_s,
            )
        )


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
        mean_batch=mean_size_of(batches),
        lag_p99_ms=None if lag_ms is None else lag_ms.p99,
        began_s=report.start_s + requests[0].intended_s,
    )


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
    """A progress bar of runs on standard error; above it how long they take, what they wait for, and a refusal."""

    def __init__(self, expected: Duration | None = None) -> None:
        super().__init__(self.RUNS, leaves=False)
        self._done = -1
        self._waits = False
        if expected is not None:
            self.say(f"It takes {expected.text}.")

    def take(self, event: CompareEvent) -> None:
        match event:
            case Progress():
                remark = f"{format_time(event.left_s)} left" if event.left_s else ""
                is_further, self._done = event.done != self._done, event.done
                if event.backlog and not self._waits:
                    self.say(f"{event.doing}.")
                self._waits = bool(event.backlog)
                self.show(event.done, max(event.total, 1), event.doing, remark, at_once=is_further)
            case Refused(reason=reason):
                self.say(reason)


def obey_window(kind: type[Plan], work: Callable[[Plan], Work]) -> ExitCode:
    """Carry out the plan that a window writes as the first line of standard input."""
    try:
        plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)
    except (msgspec.MsgspecError, SettingError) as error:
        write_event(Refused(reason=f"The plan was not understood: {error}."))
        return ExitCode.CANNOT
    return carry_out(work(plan), write_event, ends_with_input=True)


def carry_out(work: Work, notify: Callable[[Refused], None], *, ends_with_input: bool = False) -> ExitCode:
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
