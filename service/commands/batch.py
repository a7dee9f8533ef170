"""`python -m service batch IN.jsonl OUT.jsonl`: a whole file of inputs through the engine, without a service."""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from service.commands import cli
from service.commands.offline_batch.local_run import FileRun, LineEngine, LinePlan, lines_of, measure
from service.commands.offline_batch.results import ResultFiles, errors_path
from service.engine.loading import load_engine
from service.messages.life import StartError
from service.messages.options import ServiceOptions
from service.messages.pipes import ExitCode
from service.workloads.catalog import about

if TYPE_CHECKING:
    from service.commands.offline_batch.cluster_run import ClusterRun

LARGEST_BATCH: Final = 4096


@cli.command
def main(argv: list[str]) -> int:
    """0 if every line has a result, 1 if some were bad, 2 if it cannot be done, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    try:
        return _run(options)
    except OSError as error:
        raise cli.UsageError(f"{error.filename or options.input} can't be used: {error.strerror}.") from error


def _run(options: argparse.Namespace) -> int:
    about(options.workload)  # raises where there is no such thing
    total, last_line = measure(options.input)
    if options.input.resolve() == options.output.resolve():
        raise cli.UsageError("The results cannot go into the file of the inputs; name another file.")
    files = ResultFiles(options.output, resumes=options.resume)
    try:
        if files.last_line > last_line:
            raise cli.UsageError(
                f"{options.output} has a result for line {files.last_line}, but {options.input} ends at {last_line}; "
                "it belongs to another input."
            )
        is_whole = _compute(options, files, total)
    finally:
        files.close()
    bad = f", {files.bad:,} bad lines in {errors_path(options.output)}" if files.bad else ""
    if not is_whole:
        print(f"Stopped; {files.good:,} results in {options.output}{bad}. Go on with --resume.", file=sys.stderr)
        return ExitCode.INTERRUPTED
    print(f"{files.good:,} results in {options.output}{bad}.", file=sys.stderr)
    return ExitCode.INCOMPLETE if files.bad else ExitCode.DONE


def _compute(options: argparse.Namespace, files: ResultFiles, total: int) -> bool:
    """Whether it came to the end of the input."""
    service = ServiceOptions(**{name: getattr(options, name) for name in cli.SERVICE_HELP})
    plan = LinePlan(service=service, batch_size=options.max_batch_size, max_tokens=options.max_tokens)
    make_run = _maker_of_runs(options, plan, after=files.last_line)
    done = itertools.count(files.good + files.bad)
    with cli.ProgressBar(cli.ProgressBar.LINES) as bar:
        bar.show(next(done), total)
        run = make_run(files, lambda: bar.show(next(done), total))
        with _ended_by_ctrl_c(run.stop):
            return run.run()


def _maker_of_runs(options: argparse.Namespace, plan: LinePlan, after: int) -> Callable[..., FileRun | ClusterRun]:
    """Here, or on the cluster that the options name."""
    if options.address is None:
        return partial(FileRun, LineEngine(plan, load_engine(plan.service).engine), lines_of(options.input, after))
    try:
        from service.commands.offline_batch.cluster_run import ClusterRun
    except ModuleNotFoundError as error:
        raise StartError(
            f"Ray Data, which computes on a cluster, cannot be imported: there is no {error.name}. Install it with "
            "pip install 'ray[data]', or leave --address out."
        ) from error
    return partial(ClusterRun, options.address, plan, options.input, after)


@contextmanager
def _ended_by_ctrl_c(stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C stops in order; the second ends the program, as a kill would."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "batch",
        "Compute every line of a file of inputs (JSON Lines) with large batches, without a service. Each result is a "
        'line {"line": N, "output": …}, in the order of the input. Bad lines go to OUT.errors.jsonl, with the reason.',
        "prompts.jsonl results.jsonl --max-batch-size 64",
    )
    add = parser.add_argument
    add("input", type=Path, metavar="IN.jsonl", help="of prompts: texts, or objects with prompt and max_tokens")
    add("output", type=Path, metavar="OUT.jsonl")
    cli.add_service_options(parser, *cli.SERVICE_HELP)
    most = cli.whole(1, LARGEST_BATCH)
    add("--max-batch-size", type=most, default=64, help="lines computed at a time (default: %(default)s)")
    add("--max-tokens", type=most, default=24, help="for prompts that name no number (default: %(default)s)")
    add("--address", metavar="RAY", help="compute on the Ray cluster at this address, or auto; by Ray Data")
    add("--resume", action="store_true", help="go on with the results that are there")
    return parser
