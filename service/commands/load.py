"""`python -m service load`: sends load to any completion server, or does what the lines on standard input say."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Final

from service.analysis.observed.descriptions import format_length
from service.analysis.observed.register import ENTRIES
from service.commands import cli
from service.commands.load_options import (
    PATTERNS,
    add_load_options,
    add_objective_option,
    ask_workload,
    load_of,
    objectives_of,
)
from service.load.arrivals import read_trace
from service.load.process import obey_lines, on_signals, run_undisturbed
from service.load.report import LoadReport, Spread
from service.load.run import LoadProgress, run_load
from service.messages.load import RunLoad, Trace, describe_pattern
from service.messages.objectives import Objectives
from service.messages.pipes import ExitCode
from service.messages.text import format_number, percent, seconds
from service.messages.workload import TEXT

USUAL_DURATION_S: Final = 20.0
AFTER_THE_LAST_S: Final = 1.0
OF_TOKENS: Final = ("time_to_first_token_s", "time_per_output_token_s", "inter_token_latency_s")
SPREADS: Final = ("latency_s", *OF_TOKENS, "lag_ms")


@cli.command
def main(argv: list[str]) -> int:
    """0 after a run with answers, 1 without any, 2 if it could not be run, 130 if it was interrupted."""
    options = _parser().parse_args(argv)
    server = cli.server_of(options)
    if options.control:
        obey_lines(*server)
        return ExitCode.DONE
    cli.check_folders(options.json)
    about = ask_workload(server, options)
    load, objectives = load_of(options), objectives_of(options)
    duration_s = options.duration or _natural_duration_s(load)
    report, was_interrupted = run_undisturbed(_run_until_interrupted(server, load, duration_s, about.unit, objectives))
    print(table(report))
    cli.write_json(options.json, report)
    if was_interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if report.totals.ok else ExitCode.INCOMPLETE


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "load",
        f"Send load to a completion server, ours or any that speaks OpenAI's API, and report latency, throughput and "
        f"losses. The patterns are {', '.join(PATTERNS)}.",
        "--url http://127.0.0.1:8000 --pattern poisson --rate 8 --duration 30",
        "--url http://127.0.0.1:8000 --pattern closed --users 16 --json report.json",
    )
    cli.add_server_options(parser)
    parser.add_argument("--duration", type=cli.seconds, help="seconds to send for (default: 20, or the whole trace)")
    parser.add_argument("--json", type=Path, help="file for the report: every request, and the figures")
    parser.add_argument("--control", action="store_true", help="obey JSON lines on standard input instead")
    add_objective_option(parser)
    add_load_options(parser)
    return parser


def _natural_duration_s(load: RunLoad) -> float:
    if not isinstance(load.pattern, Trace):
        return USUAL_DURATION_S
    return read_trace(load.pattern.path)[-1].offset_s * load.pattern.time_scale + AFTER_THE_LAST_S


async def _run_until_interrupted(
    server: cli.Server, load: RunLoad, duration_s: float, unit: str, objectives: Objectives
) -> tuple[LoadReport, bool]:
    stop = asyncio.Event()
    on_signals(stop.set)
    url, token, model = server
    with cli.ProgressBar(cli.ProgressBar.SECONDS) as bar:

        def show(progress: LoadProgress) -> None:
            totals = progress.totals
            doing = "sending" if progress.elapsed_s < progress.duration_s else "finishing"
            remark = f"{totals.sent:,} sent, {totals.outstanding:,} under way"
            bar.show(progress.elapsed_s, progress.duration_s, doing, remark)

        report = await run_load(
            *(url, load, duration_s),
            token=token,
            model=model,
            unit=unit,
            on_progress=show,
            stop=stop,
            objectives=objectives,
        )
    return report, stop.is_set()


def table(report: LoadReport) -> str:
    """What a run came to, for a reader."""
    totals = report.totals
    lost = {
        "refused": totals.refused,
        "failed": totals.failed,
        "broken off": totals.cancelled,
        "dropped": totals.dropped,
    }
    losses = "".join(f", {count:,} {what}" for what, count in lost.items() if count)
    is_text = report.unit == TEXT.unit
    length = f"{format_length(report.max_tokens)} tokens, " if is_text else ""
    lines = [
        f"{report.pattern.__struct_config__.tag}: {describe_pattern(report.pattern)}, "
        f"{length}seed {report.seed}, at {report.url} ({report.model or '–'})",
        f"{totals.sent:,} sent, {totals.ok:,} answered{losses} in {report.ran_s:.1f} s",
        *(
            [f"{totals.differing:,} of {totals.repeated:,} answers to repeated prompts differ"]
            if totals.repeated
            else []
        ),
    ]
    if report.requests_per_s is not None and report.tokens_per_s is not None:
        rate = ENTRIES["requests_per_s"].name
        lines.append(f"{report.requests_per_s:.2f} {rate}, {report.tokens_per_s:.1f} {report.unit}/s")
    lines += _goodput(report)
    lines += ["", " " * 16 + "".join(f"{name:>9}" for name in Spread.__struct_fields__)]
    lines += [_row(key, getattr(report, key)) for key in SPREADS if is_text or key not in OF_TOKENS]
    lines += _longest_stall(report)
    return "\n".join([*lines, *([""] if report.warnings else []), *report.warnings])


def _goodput(report: LoadReport) -> list[str]:
    if report.goodput_per_s is None or report.good_share is None:
        return []
    wanted = report.objectives
    verdict = "met" if report.good_share >= wanted.share else "missed"
    rates = [ENTRIES[key].name for key in ("goodput_per_s", "requests_per_s")]
    return [
        f"{rates[0]} {report.goodput_per_s:.2f} {rates[1]}: {percent(report.good_share)} met {wanted.words}; "
        f"{percent(wanted.share)} are to: {verdict}"
    ]


def _longest_stall(report: LoadReport) -> list[str]:
    stalls = [(r.gaps.longest_s, r.id) for r in report.requests if r.outcome == "ok" and r.gaps is not None]
    if not stalls:
        return []
    longest_s, id = max(stalls)
    return [f"longest stall {seconds(longest_s)}, in {id}"]


def _row(key: str, spread: Spread | None) -> str:
    entry = ENTRIES[key]
    factor = 1e3 if entry.unit == "ms" and key.endswith("_s") else 1.0
    values = [None if spread is None else factor * getattr(spread, field) for field in Spread.__struct_fields__]
    numbers = "".join(f"{format_number(value, entry.decimals):>9}" for value in values)
    return f"{f'{entry.name} ({entry.unit})':<16}{numbers}"
