"""`python -m service load`: sends load to any completion server, or with `--control` does what another program says."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final, NoReturn

import msgspec
from tqdm import tqdm

from service.analysis.observed.descriptions import describe_pattern, format_length
from service.load.options import (
    PATTERNS,
    SentenceParser,
    add_load_options,
    add_server_options,
    load_of,
    seconds,
)
from service.load.process import fastest_loop, on_signals, run_controlled, spare_collector
from service.load.report import LoadReport, Spread
from service.load.run import LoadError, LoadProgress, ask_workload, run_load
from service.load.trace_file import TraceError, read_trace
from service.messages.files import NotWrittenError, write_whole
from service.messages.load import RunLoad, Trace
from service.messages.workload import TEXT

BAR: Final = "{desc} {percentage:3.0f}%|{bar}| {n:.1f} of {total:g} s{postfix}"
USUAL_DURATION_S: Final = 20.0
AFTER_THE_LAST_S: Final = 1.0
INTERRUPTED: Final = 130


def main(argv: list[str]) -> int:
    """0 after a run with answers, 1 without any, 2 if it could not be run, 130 if it was interrupted."""
    if "--control" in argv:
        return run_controlled(argv)
    parser = _parser()
    options = parser.parse_args(argv)
    about = ask_workload(parser, options)
    load = load_of(parser, options)
    duration_s = options.duration or _natural_duration_s(parser, load)
    if options.json is not None and not options.json.parent.is_dir():
        parser.error(f"there is no folder {options.json.parent} to write the report to")
    try:
        report, was_interrupted = _run(options, load, duration_s, about.unit)
        print(table(report))
        if options.json is not None:
            write_whole(options.json, msgspec.json.encode(report) + b"\n")
    except (LoadError, NotWrittenError) as e:
        print(e, file=sys.stderr)
        return 2
    if was_interrupted:
        return INTERRUPTED
    return 0 if report.totals.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(
        prog="python -m service load",
        description="Send load to a completion server, ours or any that speaks OpenAI's API, and tell what came of it.",
        epilog=f"Patterns: {', '.join(PATTERNS)}. With --control it obeys commands on standard input instead.",
    )
    add_server_options(parser)
    parser.add_argument("--duration", type=seconds, help="seconds to send for (default: 20, or the whole trace)")
    parser.add_argument("--json", type=Path, help="file for the report: every request, and the figures")
    add_load_options(parser)
    return parser


def _natural_duration_s(parser: argparse.ArgumentParser, load: RunLoad) -> float:
    if not isinstance(load.pattern, Trace):
        return USUAL_DURATION_S
    try:
        return read_trace(load.pattern.path)[-1].offset_s * load.pattern.time_scale + AFTER_THE_LAST_S
    except TraceError as e:
        parser.error(str(e))


def _run(options: argparse.Namespace, load: RunLoad, duration_s: float, unit: str) -> tuple[LoadReport, bool]:
    spare_collector()
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(_run_until_interrupted(options, load, duration_s, unit))


async def _run_until_interrupted(
    options: argparse.Namespace, load: RunLoad, duration_s: float, unit: str
) -> tuple[LoadReport, bool]:
    stop = asyncio.Event()
    on_signals(asyncio.get_running_loop(), stop.set)
    with _Bar() as bar:
        report = await run_load(
            options.url,
            load,
            duration_s,
            token=options.token,
            model=options.model,
            unit=unit,
            on_progress=bar.show,
            stop=stop,
        )
    return report, stop.is_set()


class _Bar:
    """Progress on standard error: time, and what has become of the requests; nothing before there is some."""

    def __init__(self) -> None:
        self._bar: tqdm[NoReturn] | None = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, progress: LoadProgress) -> None:
        if self._bar is None:
            every_s = 0.1 if sys.stderr.isatty() else 5.0  # a log shall not be flooded
            self._bar = tqdm(
                desc="sending", total=progress.duration_s, bar_format=BAR, mininterval=every_s, file=sys.stderr
            )
        totals = progress.totals
        is_sending = progress.elapsed_s < progress.duration_s
        self._bar.set_description_str("sending" if is_sending else "finishing", refresh=False)
        self._bar.set_postfix_str(f"{totals.sent:,} sent, {totals.outstanding:,} under way", refresh=False)
        self._bar.update(min(progress.elapsed_s, progress.duration_s) - self._bar.n)


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
    ]
    if report.requests_per_s is not None and report.tokens_per_s is not None:
        lines.append(f"{report.requests_per_s:.2f} requests/s, {report.tokens_per_s:.1f} {report.unit}/s")
    lines += ["", " " * 16 + "".join(f"{name:>9}" for name in Spread.__struct_fields__)]
    lines += [
        _row("latency", report.latency_s, 3, "s"),
        _row("first token" if is_text else "first piece", report.time_to_first_token_s, 3, "s"),
        _row("own lag", report.lag_ms, 2, "ms"),
    ]
    return "\n".join([*lines, *([""] if report.warnings else []), *report.warnings])


def _row(name: str, spread: Spread | None, decimals: int, unit: str) -> str:
    values = ["–"] * len(Spread.__struct_fields__)
    if spread is not None:
        values = [f"{value:.{decimals}f}" for value in msgspec.structs.astuple(spread)]
    return f"{f'{name} ({unit})':<16}" + "".join(f"{value:>9}" for value in values)
