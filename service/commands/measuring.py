"""Comparing and sweeping as work that goes on for minutes: told of as it goes, ended at any time, put right at the end.

It ends early by Ctrl-C, by SIGTERM, or, where a window started it, when standard input ends: the window is gone or has
had enough. What was measured by then is kept, and the service has the settings that it had before.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import msgspec
from tqdm import tqdm

from service.analysis.compare.comparison import concluded
from service.analysis.compare.plan import ComparePlan, PlanError, PlannedRun, SweepPlan
from service.analysis.compare.progress import Compared, CompareEvent, Progress, Refused, Swept
from service.analysis.compare.run import MeasuredRun
from service.analysis.compare.sweep import Sweep
from service.commands.options import Server
from service.commands.remote import NotIdleError, ServiceUnreachableError
from service.commands.runs import MeasuredService, MeasuringError
from service.load.process import allow_connections, fastest_loop, on_signals, spare_collector
from service.load.run import LoadError
from service.messages.files import NotWrittenError
from service.messages.settings import SettingError
from service.messages.text import format_time

STOPPED: Final = 130  # as a shell tells of Ctrl-C
CANNOT: Final = 2
LOG_EVERY_S: Final = 5.0
STDIN: Final = 0
READ_BYTES: Final = 4096
USER_ERRORS: Final = (
    *(LoadError, MeasuringError, NotIdleError, NotWrittenError, PlanError, ServiceUnreachableError, SettingError),
)
Work = Coroutine[Any, Any, None]
Plan = TypeVar("Plan")


def run_command(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    obey_window: Callable[[argparse.Namespace], int],
    obey_user: Callable[[argparse.ArgumentParser, argparse.Namespace], int],
) -> int:
    """The exit code of a measuring command; what a user got wrong is a sentence on standard error."""
    options = parser.parse_args(argv)
    if options.control:
        return obey_window(options)
    try:
        return obey_user(parser, options)
    except USER_ERRORS as error:
        print(error, file=sys.stderr)
        return CANNOT


class Listener(Protocol):
    """Who hears how it goes on."""

    def tell(self, event: CompareEvent) -> None: ...
    def close(self) -> None: ...


class TerminalBar:
    """A progress bar on standard error; a refusal as a sentence below it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._bar: tqdm[Any] = tqdm(bar_format="{desc:<44} {bar} {n_fmt}/{total_fmt}{postfix}", leave=False, total=1)
        self._every_s = 0.2 if sys.stderr.isatty() else LOG_EVERY_S  # a log shall not be flooded
        self._clock = clock
        self._drawn_s = clock()

    def tell(self, event: CompareEvent) -> None:
        match event:
            case Progress():
                self._show(event)
            case Refused(reason=reason):
                self._bar.write(reason, file=sys.stderr)

    def close(self) -> None:
        self._bar.close()

    def _show(self, progress: Progress) -> None:
        is_further = progress.done != self._bar.n
        if not is_further and self._clock() - self._drawn_s < self._every_s:
            return
        self._drawn_s = self._clock()
        self._bar.total = max(progress.total, 1)
        self._bar.n = progress.done
        self._bar.set_description_str(progress.doing, refresh=False)
        self._bar.set_postfix_str(f"{format_time(progress.left_s)} left" if progress.left_s else "")


class JsonLines:
    """Every event as a line of JSON on standard output."""

    def tell(self, event: CompareEvent) -> None:
        with suppress(BrokenPipeError):  # the window is gone: the end of standard input says so, too
            sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
            sys.stdout.buffer.flush()

    def close(self) -> None:
        pass


async def compare(server: Server, plan: ComparePlan, tell: Callable[[CompareEvent], None]) -> None:
    """Carry out `plan`; from the second round on, what the rounds so far say is told after each."""
    runs: dict[str | int, list[MeasuredRun]] = {"A": [], "B": []}
    plan.check()
    async with MeasuredService.at(server, tell) as service:
        facts = await service.facts()
        await service.warm_up(((side.settings, side.load) for side in (plan.a, plan.b)), plan.warm_up_s)
        if plan.matches_throughput:
            plan = plan.matched(await service.throughput(plan.a, plan.duration_s))

        def take(planned: PlannedRun, run: MeasuredRun) -> None:
            a, b = runs["A"], runs["B"]
            runs[planned.key].append(run)
            if len(a) == len(b) >= 2:
                tell(Compared(comparison=concluded(facts, time.time(), plan, a, b)))

        await service.measure(list(plan.runs()), plan.duration_s, take)


async def sweep(server: Server, plan: SweepPlan, before: Sweep | None, tell: Callable[[CompareEvent], None]) -> None:
    """Measure what `before` lacks of `plan`; what has been measured is told after each run."""
    async with MeasuredService.at(server, tell) as service:
        facts = await service.facts()
        swept = before or Sweep.begun(facts, plan)
        swept.refuse_other(plan, facts)
        to_come = [run for run in plan.runs() if run.round >= len(swept.points[int(run.key)].runs)]

        def take(planned: PlannedRun, run: MeasuredRun) -> None:
            nonlocal swept
            swept = swept.with_run(int(planned.key), run, time.time())
            tell(Swept(sweep=swept))

        if to_come:
            await service.warm_up([(plan.points[0], plan.load)], plan.warm_up_s)
        await service.measure(to_come, plan.duration_s, take, done=len(list(plan.runs())) - len(to_come))
        tell(Swept(sweep=swept))


def carry_out(work: Work, listener: Listener, *, ends_with_input: bool) -> int:
    """MeasuredRun `work` to its end; 0, `STOPPED`, or `CANNOT` after a sentence that says why."""
    allow_connections()
    spare_collector()
    try:
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(_until_stopped(work, ends_with_input))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return STOPPED
    except USER_ERRORS as error:
        listener.tell(Refused(reason=str(error)))
        return CANNOT
    finally:
        listener.close()
    return 0


async def _until_stopped(work: Work, ends_with_input: bool) -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    on_signals(loop, partial(_cancel, task))
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


def plan_from_input(decoder: msgspec.json.Decoder[Plan], listener: Listener) -> Plan | None:
    """The plan that a window writes as the first line of standard input; the listener hears why there is none."""
    try:
        return decoder.decode(sys.stdin.buffer.readline())
    except (msgspec.MsgspecError, SettingError) as error:
        listener.tell(Refused(reason=f"The plan was not understood: {error}."))
        return None
