"""`python -m service bench`: the speed of the engine, alone and through HTTP, beside a reference."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from service.commands import cli
from service.commands.bench.report import (
    CPU_SIZES,
    GPU_SIZES,
    HTTP,
    NAMES,
    QUICK_SIZES,
    BenchPlan,
    BenchReport,
    MeasuredOn,
    Subject,
)
from service.commands.bench.work import BenchWork
from service.commands.runs import TerminalBar, carry_out
from service.messages.options import ServiceOptions
from service.messages.settings import BOUNDS, FORMATIONS, Settings
from service.messages.text import counted, format_figure, format_number

MEASURED: Final[dict[str, tuple[Subject, ...]]] = {
    "engine": ("engine",),
    "http": tuple(HTTP),
    "both": ("engine", *HTTP),
}
MOST_TOKENS: Final = 1024
QUICK_RUN_S: Final = 1.0


@cli.command
def main(argv: list[str]) -> int:
    """0 when it was carried out, 2 if it could not be, 130 if it was interrupted: then the runs so far are reported."""
    options = _parser().parse_args(argv)
    server = None if options.url is None else cli.Server(options.url, options.token)
    cli.check_folders(options.json)
    if server is not None and options.what == "engine":
        raise cli.UsageError("The engine alone has no address. Leave --url out, or measure bench http.")
    work = BenchWork(_plan(options), _subjects(options), server)
    with TerminalBar() as bar:
        code = carry_out(work.carry_out(bar.take), bar.take)
    report = work.report()
    if report is not None:
        print(table(report))
        cli.write_json(options.json, report)
    return code


def _parser() -> argparse.ArgumentParser:
    usual = BenchPlan()
    parser = cli.Parser(
        "bench",
        "Measure the engine alone and through HTTP, beside transformers' generate and the floors that the machine's "
        "memory and matrix products set, all in the same run. Nothing else should run meanwhile. The ratios are what "
        "counts: times are those of this machine at this moment.",
        "--quick",
        "engine --batch-sizes 1,16 --json bench.json",
    )
    add = parser.add_argument
    add("what", nargs="?", choices=MEASURED, default="both", help="(default: both)")
    cli.add_address_options(
        parser, is_required=False, meaning="a service that is up (default: one is started on a free port)"
    )
    add("--batch-sizes", type=_sizes, help=f"(default: {_sizes_text(CPU_SIZES)}; on a GPU {_sizes_text(GPU_SIZES)})")
    tokens = cli.whole(1, MOST_TOKENS)
    add("--tokens", type=tokens, default=usual.tokens, help="generated for each prompt (default: %(default)s)")
    add("--rounds", type=cli.rounds, help=f"runs of each size (default: {usual.rounds})")
    add("--formation", choices=FORMATIONS, default=usual.service.settings.formation, help="(default: %(default)s)")
    quick = f"one round of {_sizes_text(QUICK_SIZES)}, HTTP streamed only: under a minute on two cores"
    add("--quick", action="store_true", help=quick)
    cli.add_service_options(parser, "model", "device", "dtype")
    add("--json", type=Path, help="file for the result: every run, and what they say")
    return parser


def _plan(options: argparse.Namespace) -> BenchPlan:
    service = ServiceOptions(
        model=options.model,
        device=options.device,
        dtype=options.dtype,
        settings=Settings(formation=options.formation),
    )
    plan = BenchPlan(service=service, sizes=options.batch_sizes, tokens=options.tokens)
    if options.quick:
        plan = msgspec.structs.replace(plan, sizes=plan.sizes or QUICK_SIZES, rounds=1, run_s=QUICK_RUN_S)
    return plan if options.rounds is None else msgspec.structs.replace(plan, rounds=options.rounds)


def _subjects(options: argparse.Namespace) -> tuple[Subject, ...]:
    return tuple(subject for subject in MEASURED[options.what] if not (options.quick and subject == "http_whole"))


def _sizes(text: str) -> tuple[int, ...]:
    bounds = BOUNDS["max_batch_size"]
    sizes = [int(part) for part in text.split(",") if part.isascii() and part.isdigit()]
    if len(sizes) != text.count(",") + 1 or not all(bounds.low <= size <= bounds.high for size in sizes):
        raise argparse.ArgumentTypeError(
            f"{text!r} are no sizes such as 1,16,32, whole numbers from {bounds.low:g} to {bounds.high:g}"
        )
    return tuple(sorted(set(sizes)))


def _sizes_text(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))


TITLES = ("batch", "", "tokens/s", "spread", "× generate", "× engine", "step", "× floor", "first token", "memory")
ROW = "{:>5} {:<19}{:>9}{:>8}{:>11}{:>9}{:>9}{:>8}{:>12}{:>9}"


def table(report: BenchReport) -> str:
    lines = [*_heading(report), "", ROW.format(*TITLES)]
    for size in sorted({each.size for each in report.reached}):
        lines += [*_block(report, size), ""]
    return "\n".join(line.rstrip() for line in [*lines, *_legend(report), *report.notes])


def _heading(report: BenchReport) -> Iterator[str]:
    plan = report.plan
    most_rounds = max(each.rounds for each in report.reached)
    yield _place(report.on)
    yield (
        f"{plan.tokens} tokens a request, temperature 0, formation {plan.service.settings.formation}; "
        f"medians of {counted(most_rounds, 'round')} of {plan.run_s:g} s"
    )
    if report.rates is not None and report.weights is not None:
        yield (
            f"memory {report.rates.bytes_per_s / 1e9:.1f} GB/s, "
            f"matrix products {report.rates.operations_per_s / 1e12:.3g} TFLOP/s, "
            f"weights {report.weights.bytes / 1e6:.0f} MB ({report.weights.parameters / 1e6:.1f} M numbers)"
        )


def _place(on: MeasuredOn) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in on.versions.items())
    parts = (on.model, on.device, on.dtype, on.hardware, versions, f"at {on.url}" if on.url else "")
    return ", ".join(part for part in parts if part)


def _block(report: BenchReport, size: int) -> Iterator[str]:
    first = f"{size}"
    for reached in (each for each in report.reached if each.size == size):
        yield ROW.format(
            first,
            NAMES[reached.subject],
            f"{reached.tokens_per_s:.1f}",
            f"±{100 * reached.spread:.0f} %",
            format_number(reached.over_generate, 2),
            format_number(reached.over_engine, 2),
            _step(reached.step_s),
            format_number(reached.over_floor, 2),
            _step(reached.first_token_s),
            f"{reached.memory_bytes / 1e6:.0f} MB",
        )
        first = ""
    for floor in (each for each in report.floors if each.size == size):
        for name, step_s in (("floor, memory", floor.memory_s), ("floor, matrices", floor.matrix_s)):
            yield ROW.format("", name, f"{size / step_s:.0f}", "", "", "", _step(step_s), "", "", "")


def _legend(report: BenchReport) -> Iterator[str]:
    if report.floors:
        yield "Floor: a step that only reads all weights once, and one that only multiplies by them, at those rates."
    if any(each.subject in HTTP for each in report.reached):
        yield "HTTP: twice as many users as a batch has rows, so that it stays full; the first token waits too."
    if any(each.subject == "generate" for each in report.reached):
        yield "generate: transformers' own, on the same weights, the same threads and prompts."


def _step(seconds: float | None) -> str:
    return format_figure(None if seconds is None else 1e3 * seconds, "ms")
