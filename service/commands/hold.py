"""`python -m service hold`: keeps an objective on a running service while its load changes, by moving settings."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import time
from functools import partial
from typing import Final

import msgspec

from service.analysis.compare.progress import CompareEvent, Refused
from service.analysis.goal.hold import Hold, Move, Said, Seen
from service.analysis.goal.search import MOST_PLACES, Goal
from service.analysis.observed.history import History
from service.analysis.predict.control import NICENESS
from service.commands import cli, runs
from service.commands.load_options import add_objective_option
from service.commands.remote import RemoteService
from service.messages.clock import monotonic_clock_id
from service.messages.objectives import Objectives
from service.messages.settings import BOUNDS, Settings
from service.messages.telemetry import TelemetryFrame
from service.messages.text import clock_text, counted

TICK_S: Final = 1.0


@cli.command
def main(argv: list[str]) -> int:
    """0 when its time is over or it has let go, 2 if it can't hold that, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    objectives = Objectives.parse(options.objective)
    Goal(objectives=objectives, max_batch_size_up_to=options.max_batch_size_up_to).check()
    hold = Hold(objectives, options.max_batch_size_up_to, sheds=options.shedding)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    return runs.carry_out(_hold(options, hold), _refuse)


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "hold",
        "Keep an objective on a running service while its load changes. Settings are moved where it is broken or would "
        "be, at most doubled or halved, and each move is printed with its reason. It lets go as soon as "
        "somebody else changes settings. At its end the settings are those from before.",
        "--url http://127.0.0.1:8000 --objective p95=1.0",
    )
    cli.add_address_options(parser)
    add_objective_option(parser)
    add = parser.add_argument
    add("--seconds", type=cli.seconds, help="how long (default: until Ctrl-C)")
    sizes = cli.number(BOUNDS["max_batch_size"])
    places = f"places in memory for requests of a batch (default: {MOST_PLACES})"
    add("--max-batch-size-up-to", type=sizes, default=MOST_PLACES, metavar="N", help=places)
    shedding = "leave max_queued_requests alone: else it is lowered where what waits longer could not be good any more"
    add("--no-shedding", dest="shedding", action="store_false", help=shedding)
    add("--keep", action="store_true", help="leave the last settings in force at the end")
    return parser


def _refuse(event: CompareEvent) -> None:
    if isinstance(event, Refused):
        print(event.reason, file=sys.stderr)


async def _hold(options: argparse.Namespace, hold: Hold) -> None:
    async with RemoteService(options.url, options.token) as remote:
        before = (await remote.settings()).settings
        held = _Held(remote, hold)
        try:
            async with asyncio.timeout(options.seconds):
                await held.until_over()
        except TimeoutError:
            pass
        finally:
            moves = counted(held.moves, "move")
            if held.moves and not (held.is_over or options.keep):
                await remote.change(msgspec.structs.asdict(before))
                moves += "; the settings from before are in force again"
            print(f"{moves}.", flush=True)


class _Held:
    """A service that is held: telemetry in, settings out."""

    def __init__(self, remote: RemoteService, hold: Hold) -> None:
        self.moves = 0
        self.is_over = False
        self._remote = remote
        self._hold = hold
        self._history = History(monotonic_clock_id())
        self._version = 0  # of the last move
        self._since_s = -math.inf

    async def until_over(self) -> None:
        """Follow the telemetry until the controller lets go."""
        stepped_s = -math.inf
        async for event in self._remote.telemetry():
            if not isinstance(event, TelemetryFrame):
                self._history.add_missed(event)
                continue
            self._history.add_telemetry(event)
            if event.at_s - stepped_s >= TICK_S and event.in_force.version >= self._version:
                stepped_s = event.at_s
                await self._step(event.at_s)
            if self.is_over:
                return

    async def _step(self, at_s: float) -> None:
        seen = Seen.of_history(self._history, self._hold.objectives, at_s, self._since_s)
        match await asyncio.to_thread(partial(self._hold.step, seen)):
            case Move(settings=settings, reason=reason):
                _say(reason)
                await self._put_in_force(settings, at_s)
            case Said(sentence=sentence, ends=ends):
                _say(sentence)
                self.is_over = ends

    async def _put_in_force(self, settings: Settings, at_s: float) -> None:
        self._version = (await self._remote.change(msgspec.structs.asdict(settings))).version
        self._since_s = at_s
        self.moves += 1


def _say(text: str) -> None:
    print(f"{clock_text(time.time())}  {text}", flush=True)
