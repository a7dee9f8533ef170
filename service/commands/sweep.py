"""`python -m service sweep`: many settings of a running service under one load, and which of them is best."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from service.analysis.compare.html import sweep_page
from service.analysis.compare.progress import CompareEvent, Duration, SweepTask, Swept
from service.analysis.compare.run import FIGURE_BY_NAME, MeasuredRun
from service.analysis.compare.run_plan import MOST_POINTS, PlanError, PlannedRun, SweepPlan, grid
from service.analysis.compare.serve_config import measured_config
from service.analysis.compare.sweep import Sweep
from service.commands import cli, runs
from service.commands.load_options import ask_workload, load_of, objectives_of
from service.messages.files import write_whole
from service.messages.pipes import write_event
from service.messages.settings import Settings, setting_value
from service.messages.text import format_figure


@cli.command
def main(argv: list[str]) -> int:
    """0 when all was measured, 2 if that can't be, 130 if it was interrupted: `--resume` then goes on."""
    options = _parser().parse_args(argv)
    server = cli.server_of(options)
    if options.control:
        return runs.obey_window(SweepTask, lambda task: sweep(server, task.plan, task.before, write_event))
    cli.check_folders(options.json, options.html, options.config)
    plan = _plan(options)
    before = latest = _before(options.json, options.resume)
    with runs.TerminalBar(Duration.of(plan, len(before.to_come()) if before else None)) as bar:

        def notify(event: CompareEvent) -> None:
            nonlocal latest
            if isinstance(event, Swept):
                latest = event.sweep
                cli.write_json(options.json, latest)
            bar.take(event)

        code = runs.carry_out(sweep(server, plan, before, notify), notify)
    if latest is not None:
        _hand_out(latest, options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "sweep",
        "Measure many settings of a running service under one load: throughput over latency, and the best settings "
        "that keep an objective. With --json every run is kept as soon as it is done; after an interruption --resume "
        "goes on.",
        "--url http://127.0.0.1:8000 --grid max_batch_size=1,4,16 --objective p95=1.0 --json sweep.json",
    )
    runs.add_measuring_options(parser, 1)
    parser.add_argument("--grid", action="append", default=[], help="a setting's values, such as max_batch_size=1,4,16")
    parser.add_argument("--list", type=Path, help="file with settings, a JSON object a line, instead of a grid")
    parser.add_argument("--resume", action="store_true", help="go on with the sweep that --json names")
    parser.add_argument("--apply", action="store_true", help="leave the service with the best settings")
    parser.add_argument("--config", type=Path, help="file for the best settings, for `serve run` and `serve deploy`")
    return parser


def _plan(options: argparse.Namespace) -> SweepPlan:
    ask_workload(cli.server_of(options), options)
    if bool(options.grid) == (options.list is not None):
        raise PlanError(
            "Give either values with --grid, such as --grid max_batch_size=1,4,16, or a --list of settings."
        )
    base = asyncio.run(runs.settings_in_force(cli.server_of(options)))
    return SweepPlan(
        points=grid(base, _axes(options.grid)) if options.grid else _listed(options.list, base),
        load=load_of(options),
        duration_s=options.duration,
        rounds=options.rounds,
        seed=options.seed,
        warm_up_s=options.warm_up,
        objectives=objectives_of(options),
    )


def _axes(texts: Sequence[str]) -> dict[str, Sequence[object]]:
    named = cli.assignments(texts).items()
    return {name: [setting_value(name, value) for value in values.split(",")] for name, values in named}


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


async def sweep(
    server: cli.Server, plan: SweepPlan, before: Sweep | None, notify: Callable[[CompareEvent], None]
) -> None:
    """Measure what `before` lacks of `plan`; each run ends with a `Swept` of everything measured so far."""
    async with runs.MeasuredService.at(server, notify, plan.objectives) as service:
        facts = await service.facts()
        swept = before or Sweep.begun(facts, plan)
        swept.refuse_other(plan, facts)
        to_come = swept.to_come()

        def take(planned: PlannedRun, run: MeasuredRun) -> None:
            nonlocal swept
            swept = swept.with_run(int(planned.key), run, time.time())
            notify(Swept(sweep=swept))

        if to_come:
            expected = Duration.of(plan, len(to_come))
            await service.warm_up([(plan.points[0], plan.load)], plan.warm_up_s, expected.total_s)
        await service.measure(to_come, plan.duration_s, take, done=len(list(plan.runs())) - len(to_come))
        notify(Swept(sweep=swept))


def _hand_out(swept: Sweep, options: argparse.Namespace) -> None:
    print("\n".join(_lines(swept)))
    if options.html is not None:
        write_whole(options.html, sweep_page(swept).encode())
    best = swept.best()
    if best is None or not swept.is_finished:
        if options.config is not None:
            print(f"{options.config} is not written: there are no best settings.")
        return
    settings = swept.points[best].settings
    if options.config is not None:
        write_whole(options.config, measured_config(swept.service, settings, swept.verdict()).encode())
    if options.apply:
        asyncio.run(runs.put_in_force(cli.server_of(options), settings))
        print("The best settings are in force.")


def _lines(swept: Sweep) -> Sequence[str]:
    rate, latency = (FIGURE_BY_NAME[name] for name in ("requests_per_s", swept.latency))
    labels = [swept.label(place) or "as it is" for place in range(len(swept.points))]
    width = max(len("settings"), *map(len, labels))
    front, best = swept.front(), swept.best()
    lines = [f"{'settings':<{width}}{rate.title:>12}{latency.title + ' (s)':>14}"]
    for place, (label, point) in enumerate(zip(labels, swept.points, strict=True)):
        values = "".join(
            f"{format_figure(point.figure(each.name)):>{wide}}" for each, wide in ((rate, 12), (latency, 14))
        )
        remark = "   best" if place == best else "   on the front" if place in front else ""
        lines.append(f"{label:<{width}}{values}{remark}")
    return [*lines, "", swept.verdict()]
