"""`python -m service sweep`: many settings of a running service under one load, and which of them is best."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from service.analysis.compare.html import sweep_page
from service.analysis.compare.plan import MOST_POINTS, Objective, PlanError, SweepPlan, grid
from service.analysis.compare.progress import CompareEvent, SweepTask, Swept
from service.analysis.compare.run import FIGURE_BY_NAME
from service.analysis.compare.serve_config import measured_config
from service.analysis.compare.sweep import Sweep
from service.analysis.observed.descriptions import setting_value
from service.commands.measuring import (
    CANNOT,
    JsonLines,
    Listener,
    TerminalBar,
    carry_out,
    plan_from_input,
    run_command,
    sweep,
)
from service.commands.options import add_measuring_options, check_folders, server_of
from service.commands.runs import put_in_force, settings_in_force
from service.commands.sides import assignments
from service.load.options import SentenceParser, load_of
from service.load.run import ask_workload
from service.messages.files import write_whole
from service.messages.settings import Settings
from service.messages.text import format_figure


def main(argv: list[str]) -> int:
    """0 when all was measured, 2 if that can't be, 130 if it was interrupted: `--resume` then goes on."""
    return run_command(_parser(), argv, _obey_window, _obey_user)


def _obey_user(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    check_folders(options.json, options.html, options.config)
    plan = _plan(parser, options)
    before = _before(options.json, options.resume)
    kept = _Kept(TerminalBar(), before, options.json)
    code = carry_out(sweep(server_of(options), plan, before, kept.tell), kept, ends_with_input=False)
    if kept.sweep is not None:
        _hand_out(kept.sweep, options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(
        prog="python -m service sweep",
        description="Measure many settings of a running service under one load: throughput over latency, "
        "and the best that keeps an objective.",
        epilog="With --json every run is kept as soon as it is done; after an interruption --resume goes on.",
    )
    add_measuring_options(parser, rounds=1)
    parser.add_argument("--grid", action="append", default=[], help="a setting's values, such as max_batch_size=1,4,16")
    parser.add_argument("--list", type=Path, help="file with settings, a JSON object a line, instead of a grid")
    parser.add_argument("--objective", help="what the best must keep, such as p95<=1.0 (seconds)")
    parser.add_argument("--resume", action="store_true", help="go on with the sweep that --json names")
    parser.add_argument("--apply", action="store_true", help="leave the service with the best settings")
    parser.add_argument("--config", type=Path, help="file for the best settings, for `serve run` and `serve deploy`")
    return parser


def _obey_window(options: argparse.Namespace) -> int:
    """The plan, or a sweep to go on with, comes in on standard input, events go out on standard output."""
    listener = JsonLines()
    task = plan_from_input(msgspec.json.Decoder(SweepTask), listener)
    if task is None:
        return CANNOT
    work = sweep(server_of(options), task.plan, task.before, listener.tell)
    return carry_out(work, listener, ends_with_input=True)


def _plan(parser: argparse.ArgumentParser, options: argparse.Namespace) -> SweepPlan:
    ask_workload(parser, options)
    if bool(options.grid) == (options.list is not None):
        raise PlanError(
            "Give either values with --grid, such as --grid max_batch_size=1,4,16, or a --list of settings."
        )
    objective = Objective.parse(options.objective) if options.objective else None
    base = asyncio.run(settings_in_force(server_of(options)))
    return SweepPlan(
        points=grid(base, _axes(options.grid)) if options.grid else _listed(options.list, base),
        load=load_of(parser, options),
        duration_s=options.duration,
        rounds=options.rounds,
        seed=options.seed,
        warm_up_s=options.warm_up,
        objective=objective,
    )


def _axes(texts: Sequence[str]) -> dict[str, Sequence[object]]:
    named = [item for text in texts for item in assignments(text).items()]
    return {name: [setting_value(value.strip()) for value in values.split(",")] for name, values in named}


def _listed(path: Path, base: Settings) -> tuple[Settings, ...]:
    """The settings of each line of a file, the rest as in `base`."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
        points = [base.revised(msgspec.json.decode(line, type=dict[str, object])) for line in lines]
    except OSError as error:
        raise PlanError(f"{path} can't be read: {error.strerror}.") from error
    except msgspec.MsgspecError as error:
        raise PlanError(
            f'{path} is no list of settings: {error}. Write a line such as {{"max_batch_size": 8}}.'
        ) from error
    if not 1 <= len(points) <= MOST_POINTS:
        raise PlanError(f"{path} holds {len(points)} settings; a sweep takes from 1 to {MOST_POINTS:,}.")
    return tuple(dict.fromkeys(points))


def _before(path: Path | None, resumes: bool) -> Sweep | None:
    """What the file holds, where it is gone on with; an unfinished sweep is not overwritten unasked."""
    found = _read(path) if path is not None and path.exists() else None
    if resumes and found is None:
        raise PlanError("There is nothing to go on with: --resume needs the --json file of an interrupted sweep.")
    if found is not None and not found.is_finished and not resumes:
        raise PlanError(f"{path} holds an unfinished sweep. Go on with --resume, or name another file.")
    return found if resumes else None


def _read(path: Path) -> Sweep:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Sweep)
    except OSError as error:
        raise PlanError(f"{path} can't be read: {error.strerror}.") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise PlanError(f"{path} is no sweep, and is left as it is: {error}. Name another file.") from error


class _Kept:
    """Writes what has been measured after every run, and passes everything on."""

    def __init__(self, listener: Listener, before: Sweep | None, path: Path | None) -> None:
        self._listener = listener
        self._path = path
        self.sweep = before
        self.close = listener.close

    def tell(self, event: CompareEvent) -> None:
        if isinstance(event, Swept):
            self.sweep = event.sweep
            if self._path is not None:
                write_whole(self._path, msgspec.json.encode(event.sweep) + b"\n")
        self._listener.tell(event)


def _hand_out(swept: Sweep, options: argparse.Namespace) -> None:
    print("\n".join(_lines(swept)))
    if options.html is not None:
        write_whole(options.html, sweep_page(swept).encode())
    best = swept.best()
    if best is None or not swept.is_finished:
        return
    settings = swept.points[best].settings
    if options.config is not None:
        write_whole(options.config, measured_config(swept.service, settings, swept.verdict()).encode())
    if options.apply:
        asyncio.run(put_in_force(server_of(options), settings))
        print("The best settings are in force.")


def _lines(swept: Sweep) -> Sequence[str]:
    rate, latency = (FIGURE_BY_NAME[name] for name in ("requests_per_s", swept.latency))
    labels = [swept.label(place) or "as it is" for place in range(len(swept.points))]
    width = max(len("settings"), *map(len, labels))
    front, best = swept.front(), swept.best()
    lines = [f"{'settings':<{width}}{rate.unit:>10}{latency.title + ' (s)':>10}"]
    for place, (label, point) in enumerate(zip(labels, swept.points, strict=True)):
        values = "".join(f"{format_figure(point.figure(each.name)):>10}" for each in (rate, latency))
        remark = "   best" if place == best else "   on the front" if place in front else ""
        lines.append(f"{label:<{width}}{values}{remark}")
    return [*lines, "", swept.verdict()]
