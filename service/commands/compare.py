"""`python -m service compare`: A against B on a running service, over several rounds, and whether B differs."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from service.analysis.compare.comparison import Comparison
from service.analysis.compare.html import comparison_page
from service.analysis.compare.plan import ComparePlan, PlanError
from service.analysis.compare.progress import Compared, CompareEvent
from service.analysis.compare.run import FIGURE_BY_NAME, FIGURE_BY_OPTION
from service.commands.measuring import CANNOT, JsonLines, TerminalBar, carry_out, compare, plan_from_input, run_command
from service.commands.options import add_measuring_options, check_folders, server_of
from service.commands.runs import settings_in_force
from service.commands.sides import side
from service.load.options import SentenceParser
from service.load.run import ask_workload
from service.messages.files import write_whole
from service.messages.text import format_figure

ROUNDS = 4


def main(argv: list[str]) -> int:
    """0 when it was carried out, whatever came of it; 2 if it could not be, 130 if it was interrupted."""
    return run_command(_parser(), argv, _obey_window, _obey_user)


def _obey_user(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    check_folders(options.json, options.html)
    plan = _plan(parser, options)
    kept = _Kept(TerminalBar())
    code = carry_out(compare(server_of(options), plan, kept.tell), kept, ends_with_input=False)
    if kept.comparison is not None:
        _hand_out(kept.comparison, options.json, options.html)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(
        prog="python -m service compare",
        description="Compare two settings of a running service: same arrivals, several rounds, "
        "the difference with a 95 % confidence interval.",
        epilog="A side names what differs from the settings in force and from the load, "
        "such as formation=early,max_batch_size=8 or pattern=closed,users=8; one that is not given is as it is.",
    )
    add_measuring_options(parser, rounds=ROUNDS)
    parser.add_argument("--a", default=[], action="append", help="what differs in A, such as formation=late")
    parser.add_argument("--b", default=[], action="append", help="what differs in B, such as formation=continuous")
    told = "what the verdict is about (default: p95)"
    parser.add_argument("--figure", choices=FIGURE_BY_OPTION, default="p95", help=told)
    parser.add_argument(
        "--match-throughput",
        action="store_true",
        help="B, an open loop, gets the rate that A, a closed one, reaches: what is left is what waiting users hide",
    )
    return parser


def _obey_window(options: argparse.Namespace) -> int:
    """The plan comes in on standard input, events go out on standard output."""
    listener = JsonLines()
    plan = plan_from_input(msgspec.json.Decoder(ComparePlan), listener)
    if plan is None:
        return CANNOT
    return carry_out(compare(server_of(options), plan, listener.tell), listener, ends_with_input=True)


def _plan(parser: argparse.ArgumentParser, options: argparse.Namespace) -> ComparePlan:
    ask_workload(parser, options)
    if not options.a and not options.b:
        raise PlanError("Say how the sides differ, such as --a formation=late --b formation=early.")
    base = asyncio.run(settings_in_force(server_of(options)))
    a, b = (side(",".join(texts), base, options) for texts in (options.a, options.b))
    plan = ComparePlan(
        a=a,
        b=b,
        duration_s=options.duration,
        rounds=options.rounds,
        seed=options.seed,
        warm_up_s=options.warm_up,
        figure=FIGURE_BY_OPTION[options.figure].name,
        matches_throughput=options.match_throughput,
    )
    plan.check()
    return plan


class _Kept:
    """Keeps what the rounds so far say, and passes everything on."""

    def __init__(self, listener: TerminalBar) -> None:
        self._listener = listener
        self.comparison: Comparison | None = None
        self.close = listener.close

    def tell(self, event: CompareEvent) -> None:
        if isinstance(event, Compared):
            self.comparison = event.comparison
        self._listener.tell(event)


def _hand_out(comparison: Comparison, json: Path | None, html: Path | None) -> None:
    if json is not None:
        write_whole(json, msgspec.json.encode(comparison) + b"\n")
    if html is not None:
        write_whole(html, comparison_page(comparison).encode())
    print("\n".join(_lines(comparison)))


def _lines(comparison: Comparison) -> Sequence[str]:
    row = "{:<20}{:>14}{:>14}{:>12}   {}".format
    rows = [row("mean of the rounds", "A", "B", "B / A", "95 % CI")]
    for each in comparison.differences:
        figure = FIGURE_BY_NAME[each.figure]
        values = (format_figure(value, figure.unit) for value in (each.a, each.b))
        rows.append(row(figure.title, *values, each.short_text, each.interval_text))
    return [f"A → B: {comparison.title}", *rows, "", comparison.verdict, *comparison.caveats]
