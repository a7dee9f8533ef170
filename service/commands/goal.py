"""`python -m service goal`: searches the cheapest settings that hold an objective, and measures the best of them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.progress import CompareEvent, Duration, Swept
from service.analysis.compare.serve_config import measured_config
from service.analysis.compare.sweep import Sweep
from service.analysis.goal import control
from service.analysis.goal.planner import MOST_REPLICAS, ReplicaPlan, plan_of
from service.analysis.goal.search import (
    HOLDING,
    MOST_PLACES,
    Candidate,
    Goal,
    GoalError,
    GoalSearch,
    SearchProgress,
    choices_of,
    search,
)
from service.analysis.predict.load import PresentLoad
from service.analysis.predict.predict import Predictor
from service.commands import cli, runs
from service.commands.load_options import add_objective_option, workload_at
from service.commands.remote import RemoteService
from service.commands.sweep import sweep
from service.commands.watching import Watched, add_watch_options, load_to_predict, watched
from service.messages.files import write_whole
from service.messages.load import USUAL_PROMPTS
from service.messages.objectives import Objectives
from service.messages.pipes import ExitCode
from service.messages.settings import BOUNDS, SCALE_BOUNDS, Settings
from service.messages.text import format_figure, percent


class GoalReport(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `--json`.

    Attributes:
        settings: in force while it watched.
        chosen: what `--apply` and `--config` take; ``None`` where nothing holds.
        measured: of `--measure`, the best settings on the service.
        replicas: how many replicas the rate needs, where nothing holds.
    """

    service: ServiceFacts
    watched_s: float
    settings: Settings
    search: GoalSearch
    chosen: Candidate | None
    measured: Sweep | None = None
    replicas: ReplicaPlan | None = None
    verdict: str


@cli.command
def main(argv: list[str]) -> int:
    """0 if some settings hold, 1 if none do, 2 if that can't be searched, 130 if it was interrupted."""
    if "--control" in argv:
        return control.main()
    options = _parser().parse_args(argv)
    cli.check_folders(options.json, options.config)
    goal = Goal(
        objectives=Objectives.parse(options.objective),
        replicas_up_to=options.replicas_up_to,
        max_batch_size_up_to=options.max_batch_size_up_to,
    )
    goal.check()
    seen = asyncio.run(_watch(options))
    predictor = Predictor.of(seen.observation)
    predictor = replace(predictor, load=load_to_predict(options, predictor.load))
    with cli.ProgressBar(cli.ProgressBar.SEARCHED, leaves=False) as bar:
        found = search(predictor, goal, choices_of(predictor, goal, seen.settings), partial(_show, bar))
    print("\n".join((*_lines(found), "", found.verdict)))
    largest = predictor.cost.sizes[1]
    if not found.holding and not predictor.cost.is_sure_of(2 * largest):
        print(
            f"No batch of more than {largest} was observed, so what larger ones take is hardly known: raise "
            "max_batch_size for a while, then ask again."
        )
    needed = plan_of(predictor, found, seen.settings)
    if needed is not None:
        print("\n".join(("", *_replica_lines(needed, found.time), "", needed.sentence)))
    report = GoalReport(
        service=seen.facts(options.url),
        watched_s=options.seconds,
        settings=seen.settings,
        search=found,
        chosen=found.cheapest,
        replicas=needed,
        verdict=found.verdict,
    )
    code = ExitCode.DONE
    if options.measure and found.holding:
        report, code = _measured(report, predictor.load, options)
    cli.write_json(options.json, report)
    if code == ExitCode.DONE and report.chosen is not None:
        _hand_out(report, report.chosen, options)
        return ExitCode.DONE
    return code or ExitCode.INCOMPLETE


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "goal",
        "Watch a running service, search all settings by simulation for the cheapest that hold an objective at a rate, "
        "and show what goodput costs in latency. Cheapest is: fewest replicas, then fewest places in memory "
        "(max_batch_size), then the least time. A setting holds an objective where nine of ten simulated runs keep it.",
        "--url http://127.0.0.1:8000 --objective p95=1.0 --rate 4",
    )
    add_watch_options(parser)
    add_objective_option(parser)
    replicas, sizes = (cli.number(each) for each in (SCALE_BOUNDS["replicas"], BOUNDS["max_batch_size"]))
    add = parser.add_argument
    add("--replicas-up-to", type=replicas, default=1, metavar="N", help="that the machine holds (default: 1)")
    places = f"places in memory for requests of a batch (default: {MOST_PLACES})"
    add("--max-batch-size-up-to", type=sizes, default=MOST_PLACES, metavar="N", help=places)
    add("--json", type=Path, help="file for the result: all settings with their figures")
    add("--config", type=Path, help="file for the cheapest that holds, for `serve run` and `serve deploy`")
    add("--apply", action="store_true", help="put the cheapest that holds in force")
    measure = f"measure the best {HOLDING} on the service, which must have no other load then, and let that decide"
    add("--measure", action="store_true", help=measure)
    usual = "of --measure (default: %(default)s)"
    add("--rounds", type=cli.whole(2, cli.MOST_ROUNDS), default=control.ROUNDS, help=usual)
    add(
        "--duration", type=cli.seconds, default=control.RUN_S, help="seconds of each of its runs (default: %(default)g)"
    )
    add("--control", action="store_true", help="obey a JSON line on standard input instead")
    return parser


async def _watch(options: argparse.Namespace) -> Watched:
    async with RemoteService(options.url, options.token) as remote:
        return await watched(remote, options.seconds)


def _show(bar: cli.ProgressBar, progress: SearchProgress) -> None:
    doing = "trying all settings" if progress.is_first else "deciding the close ones"
    bar.show(progress.done, progress.total, doing, f"{progress.runs} runs", at_once=progress.done == progress.total)


def _lines(found: GoalSearch) -> Iterator[str]:
    """The frontiers, what holds and what just misses, the cheapest first."""
    remarks = dict.fromkeys(found.holding, "next cheapest") | {found.just_misses: "just misses"}
    remarks |= {found.holding[0]: "cheapest that holds"} if found.holding else {}
    shown = sorted({*found.frontier, *found.least_places, *(place for place in remarks if place is not None)})
    texts = [found.candidates[place].text for place in shown]
    width = max(map(len, ("settings", *texts)))
    yield f"{'settings':<{width}}{found.time + ' (s)':>12}{'nine of ten':>18}{'goodput/s':>11}{'kept':>10}"
    for place, text in zip(shown, texts, strict=True):
        each = found.candidates[place]
        band = f"{format_figure(each.time_s.low)} to {format_figure(each.time_s.high)}"
        figures = f"{format_figure(each.time_s.value):>12}{band:>18}{format_figure(each.goodput_per_s.value):>11}"
        remark = remarks.get(place, "on the front" if place in found.frontier else "")
        yield f"{text:<{width}}{figures}{f'{each.kept} of {each.runs}':>10}   {remark}".rstrip()


def _replica_lines(plan: ReplicaPlan, time: str) -> Iterator[str]:
    """The formula and the simulation for each number of replicas that was simulated."""
    yield f"{'replicas':>8}{'busy':>8}{time + ' (s)':>12}{'nine of ten':>18}{'kept':>10}"
    for each in plan.tried:
        if each.replicas < MOST_REPLICAS or each == plan.needed or plan.needed is None:
            band = f"{format_figure(each.time_s.low)} to {format_figure(each.time_s.high)}"
            figures = f"{percent(plan.busy(each.replicas)):>8}{format_figure(each.time_s.value):>12}{band:>18}"
            remark = "the fewest that hold" if each == plan.needed else ""
            yield f"{each.replicas:>8}{figures}{f'{each.kept} of {each.runs}':>10}   {remark}".rstrip()


def _measured(report: GoalReport, load: PresentLoad, options: argparse.Namespace) -> tuple[GoalReport, ExitCode]:
    """The report with the best settings measured on the service, and the cheapest that keeps the objectives there."""
    found, replicas = report.search, report.service.replicas
    server = cli.Server(options.url, options.token)
    about = asyncio.run(workload_at(server))
    prompts = USUAL_PROMPTS if about.generates else about.examples
    plan = control.measuring_plan(found, replicas, load, prompts, duration_s=options.duration, rounds=options.rounds)
    best = [found.candidates[place] for place in found.holding]
    if plan is None:
        raise GoalError(f"What holds takes {best[0].replicas} replicas: redeploy the service first, then measure.")
    here = [each for each in best if each.replicas == replicas]
    latest: Sweep | None = None
    with runs.TerminalBar(Duration.of(plan)) as bar:

        def notify(event: CompareEvent) -> None:
            nonlocal latest
            if isinstance(event, Swept):
                latest = event.sweep
            bar.take(event)

        code = runs.carry_out(sweep(server, plan, None, notify), notify)
    if latest is None or not latest.is_finished:
        return report, code
    kept = [each for each, point in zip(here, latest.points, strict=True) if point.has_met(plan.objectives)]
    verdict = _measured_verdict(latest, here, kept)
    print(verdict)
    chosen = kept[0] if kept else None
    return msgspec.structs.replace(report, chosen=chosen, measured=latest, verdict=verdict), code


def _measured_verdict(measured: Sweep, tried: Sequence[Candidate], kept: Sequence[Candidate]) -> str:
    latencies = ", ".join(
        f"{each.text}: {format_figure(point.figure(measured.latency), 's')}"
        for each, point in zip(tried, measured.points, strict=True)
    )
    of = f"Measured in {measured.plan.rounds} rounds"
    words = measured.plan.objectives.share_words
    best = f"{kept[0].text} is the cheapest in which {words}" if kept else f"in none of them {words}"
    return f"{of}, {best}. {latencies}."


def _hand_out(report: GoalReport, chosen: Candidate, options: argparse.Namespace) -> None:
    if options.config is not None:
        service = msgspec.structs.replace(report.service, replicas=chosen.replicas)
        how = "Simulated by what was observed" if report.measured is None else "Measured"
        write_whole(options.config, measured_config(service, chosen.settings, report.verdict, how).encode())
    if options.apply:
        asyncio.run(runs.put_in_force(cli.Server(options.url, options.token), chosen.settings))
        print(f"In force: {chosen.text}.")
        if chosen.replicas != report.service.replicas:
            print(
                f'It takes {chosen.replicas} replicas: PUT {options.url}/deployment {{"replicas": {chosen.replicas}}}'
            )
