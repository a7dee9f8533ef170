"""`python -m service hold`: keeps an objective on a running service while its load changes, by moving settings."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable
from functools import partial

import msgspec

from service.analysis.compare.progress import Refused
from service.analysis.goal.control import HoldEvent, HoldTask, Moved
from service.analysis.goal.hold import Follower, Hold, Move, Said, Seen
from service.analysis.goal.search import MOST_PLACES, Goal
from service.analysis.observed.descriptions import settings_text
from service.analysis.predict.control import NICENESS
from service.commands import cli, runs
from service.commands.load_options import add_objective_option
from service.commands.remote import RemoteService
from service.messages.clock import monotonic_clock_id
from service.messages.objectives import Objectives
from service.messages.pipes import write_event
from service.messages.settings import BOUNDS
from service.messages.text import clock_text, counted


@cli.command
def main(argv: list[str]) -> int:
    """0 when its time is over or it has let go, 2 if it can't hold that, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    if options.control:
        return runs.obey_window(HoldTask, partial(_hold_for_window, options))
    objectives = Objectives.parse(options.objective)
    Goal(objectives=objectives, max_batch_size_up_to=options.max_batch_size_up_to).check()
    hold = Hold(objectives, options.max_batch_size_up_to, sheds=options.shedding)
    return runs.carry_out(_hold(options, hold), _say)


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
    add("--control", action="store_true", help="objectives in on standard input, events out: for the window")
    return parser


def _say(event: HoldEvent) -> None:
    match event:
        case Moved(reason=text) | Said(sentence=text):
            print(f"{clock_text(time.time())}  {text}", flush=True)
        case Refused(reason=reason):
            print(reason, file=sys.stderr)


async def _hold_for_window(options: argparse.Namespace, task: HoldTask) -> None:
    """Until the window lets go: what is in force then stays, and each move can be undone there."""
    async with RemoteService(options.url, options.token) as remote:
        hold = Hold(task.objectives, task.max_batch_size_up_to)
        await _Held(remote, hold, write_event).until_over()


async def _hold(options: argparse.Namespace, hold: Hold) -> None:
    async with RemoteService(options.url, options.token) as remote:
        before = (await remote.settings()).settings
        held = _Held(remote, hold, _say)
        print(f"Holding {hold.objectives.words}. The settings at first: {settings_text(before)}.", flush=True)
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

    def __init__(self, remote: RemoteService, hold: Hold, notify: Callable[[HoldEvent], None]) -> None:
        self.moves = 0
        self.is_over = False
        self._remote = remote
        self._hold = hold
        self._notify = notify
        self._follower = Follower(monotonic_clock_id(), hold.objectives)

    async def until_over(self) -> None:
        """Follow the telemetry until the controller lets go."""
        async for event in self._remote.telemetry():
            seen = self._follower.take(event)
            if seen is not None:
                await self._step(seen)
            if self.is_over:
                return

    async def _step(self, seen: Seen) -> None:
        match await asyncio.to_thread(partial(self._hold.step, seen)):
            case Move() as move:
                await self._put_in_force(move, seen)
            case Said() as said:
                self._say(said)

    async def _put_in_force(self, move: Move, seen: Seen) -> None:
        settings, at_s = move.settings, seen.at_s
        in_force = await self._remote.change(msgspec.structs.asdict(settings), move.note, seen.version)
        if in_force.settings != settings:
            self._say(self._hold.let_go(seen.settings, in_force.settings))
            return
        self._follower.note_move(in_force.version, at_s)
        self.moves += 1
        moved = Moved(version=in_force.version, at_s=at_s, before=seen.settings, settings=settings, reason=move.reason)
        self._notify(moved)

    def _say(self, said: Said) -> None:
        self._notify(said)
        self.is_over = said.ends
