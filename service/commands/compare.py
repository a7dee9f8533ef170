"""`python -m service compare`: A against B on a running service, over several rounds, and whether B differs."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from service.analysis.compare.comparison import Comparison, concluded
from service.analysis.compare.html import comparison_page
from service.analysis.compare.progress import Compared, CompareEvent, Duration
from service.analysis.compare.run import FIGURE_BY_NAME, FIGURE_BY_OPTION, MeasuredRun
from service.analysis.compare.run_plan import ComparePlan, PlanError, PlannedRun, Side
from service.commands import cli, runs
from service.commands.load_options import CHOICES, add_load_options, ask_workload, load_of, objectives_of
from service.messages.files import write_whole
from service.messages.load import RunLoad
from service.messages.pipes import write_event
from service.messages.settings import Settings, setting_value
from service.messages.text import format_figure

ROUNDS = 4


@cli.command
def main(argv: list[str]) -> int:
    """0 when it was carried out, with any result; 2 if it could not be, 130 if it was interrupted."""
    options = _parser().parse_args(argv)
    server = cli.server_of(options)
    if options.control:
        return runs.obey_window(ComparePlan, lambda plan: compare(server, plan, write_event))
    cli.check_folders(options.json, options.html)
    plan = _plan(options)
    latest: Comparison | None = None
    with runs.TerminalBar(Duration.of(plan)) as bar:

        def notify(event: CompareEvent) -> None:
            nonlocal latest
            if isinstance(event, Compared):
                latest = event.comparison
            bar.take(event)

        code = runs.carry_out(compare(server, plan, notify), notify)
    if latest is not None:
        cli.write_json(options.json, latest)
        if options.html is not None:
            write_whole(options.html, comparison_page(latest).encode())
        print("\n".join(_lines(latest)))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "compare",
        "Compare two settings of a running service: same arrivals, several rounds, the difference with a 95 % "
        "confidence interval. A side names what differs from the settings in force and from the load, such as "
        "formation=early,max_batch_size=8 or pattern=closed,users=8; a side that is not given differs in nothing.",
        "--url http://127.0.0.1:8000 --a formation=late --b formation=continuous --rate 4 --html page.html",
    )
    runs.add_measuring_options(parser, ROUNDS)
    parser.add_argument("--a", default=[], action="append", help="what differs in A, such as formation=late")
    parser.add_argument("--b", default=[], action="append", help="what differs in B, such as formation=continuous")
    figure = "the figure that the verdict is about (default: p95)"
    parser.add_argument("--figure", choices=FIGURE_BY_OPTION, default="p95", help=figure)
    match = "B, an open loop, gets the rate that A, a closed one, reaches: what is left is what waiting users hide"
    parser.add_argument("--match-throughput", action="store_true", help=match)
    return parser


def _plan(options: argparse.Namespace) -> ComparePlan:
    ask_workload(cli.server_of(options), options)
    if not options.a and not options.b:
        raise PlanError("Say how the sides differ, such as --a formation=late --b formation=early.")
    base = asyncio.run(runs.settings_in_force(cli.server_of(options)))
    plan = ComparePlan(
        a=_side(options.a, base, options),
        b=_side(options.b, base, options),
        duration_s=options.duration,
        rounds=options.rounds,
        seed=options.seed,
        warm_up_s=options.warm_up,
        figure=FIGURE_BY_OPTION[options.figure].name,
        objectives=objectives_of(options),
        matches_throughput=options.match_throughput,
    )
    plan.check()
    return plan


def _side(texts: Sequence[str], base: Settings, options: argparse.Namespace) -> Side:
    """The settings `base` and the load of the options, with the changes that `texts` spell."""
    changes = cli.assignments(texts)
    settings = {name: setting_value(name, changes.pop(name)) for name in list(changes) if hasattr(base, name)}
    return Side(settings=base.revised(settings), load=_load(changes, options))


def _load(changes: Mapping[str, str], options: argparse.Namespace) -> RunLoad:
    parser = cli.Parser("compare", "")
    add_load_options(parser)
    common = argparse.Namespace(**vars(options))
    if "pattern" in changes:
        for field in CHOICES:  # what belongs to the other pattern
            setattr(common, field, None)
    flags = [f"{cli.flag(name)}={value}" for name, value in changes.items()]
    asked, unknown = parser.parse_known_args(flags, namespace=common)
    if unknown:
        name, _, _ = unknown[0].removeprefix("--").partition("=")
        raise cli.UsageError(f"There is no setting and no option of the load called {name}; compare --help names them.")
    return load_of(asked)


async def compare(server: cli.Server, plan: ComparePlan, notify: Callable[[CompareEvent], None]) -> None:
    """Carry out `plan`; from the second round on, each round ends with a `Compared` of all rounds so far."""
    measured: dict[str | int, list[MeasuredRun]] = {"A": [], "B": []}
    plan.check()
    async with runs.MeasuredService.at(server, notify, plan.objectives) as service:
        facts = await service.facts()
        sides = [(side.settings, side.load) for side in (plan.a, plan.b)]
        left_s = await service.warm_up(sides, plan.warm_up_s, Duration.of(plan).total_s)
        if plan.matches_throughput:
            plan = plan.matched(await service.throughput(plan.a, plan.duration_s, left_s))

        def take(planned: PlannedRun, run: MeasuredRun) -> None:
            a, b = measured["A"], measured["B"]
            measured[planned.key].append(run)
            if len(a) == len(b) >= 2:
                notify(Compared(comparison=concluded(facts, time.time(), plan, a, b)))

        await service.measure(list(plan.runs()), plan.duration_s, take)


def _lines(comparison: Comparison) -> Sequence[str]:
    row = "{:<20}{:>14}{:>14}{:>12}   {}".format
    rows = [row("mean of the rounds", "A", "B", "B / A", "95 % CI")]
    for each in comparison.differences:
        figure = FIGURE_BY_NAME[each.figure]
        values = (format_figure(value, figure.unit) for value in (each.a, each.b))
        rows.append(row(figure.title, *values, each.short_text, each.interval_text))
    return [f"A → B: {comparison.title}", *rows, "", comparison.verdict, *comparison.caveats]
