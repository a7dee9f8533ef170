"""A bench's report for a reader: for each size what was reached, beside what it is judged by."""

from __future__ import annotations

from collections.abc import Iterator

from service.analysis.findings.words import counted
from service.commands.bench.floors import Floor
from service.commands.bench.plan import HTTP, NAMES
from service.commands.bench.report import BenchReport, MeasuredOn, Reached
from service.messages.text import spelled_ms

TITLES = ("batch", "", "tokens/s", "spread", "× generate", "× engine", "step", "× floor", "first token", "memory")
WIDTHS = (5, -19, 9, 8, 11, 9, 9, 8, 12, 9)
NOTHING = "–"


def table(report: BenchReport) -> str:
    lines = [*_heading(report), "", _row(*TITLES)]
    for size in sorted({each.size for each in report.reached}):
        lines += [*_block(report, size), ""]
    return "\n".join([*lines, *_legend(report), *report.notes])


def _heading(report: BenchReport) -> Iterator[str]:
    plan = report.plan
    rounds = max(each.rounds for each in report.reached)
    yield _place(report.on)
    yield (
        f"{plan.tokens} tokens a request, temperature 0, formation {plan.service.settings.formation}; "
        f"medians of {counted(rounds, 'round')} of {counted(plan.batches, 'batch')}"
    )
    if report.rates is not None and report.weights is not None:
        yield (
            f"memory {report.rates.bytes_per_s / 1e9:.1f} GB/s, "
            f"matrix products {report.rates.operations_per_s / 1e12:.3g} TFLOP/s, "
            f"weights {report.weights.bytes / 1e6:.0f} MB ({report.weights.parameters / 1e6:.1f} M numbers)"
        )


def _place(on: MeasuredOn) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in on.versions.items())
    told = (on.model, on.device, on.dtype, on.hardware, versions, f"at {on.url}" if on.url else "")
    return ", ".join(part for part in told if part)


def _block(report: BenchReport, size: int) -> Iterator[str]:
    first = f"{size}"
    for reached in (each for each in report.reached if each.size == size):
        yield _reached_row(first, reached)
        first = ""
    for floor in (each for each in report.floors if each.size == size):
        yield from _floor_rows(floor)


def _reached_row(first: str, reached: Reached) -> str:
    return _row(
        first,
        NAMES[reached.subject],
        f"{reached.tokens_per_s:.1f}",
        f"±{100 * reached.spread:.0f} %",
        _ratio(reached.over_generate),
        _ratio(reached.over_engine),
        _step(reached.step_s),
        _ratio(reached.over_floor),
        _step(reached.first_token_s),
        f"{reached.memory_bytes / 1e6:.0f} MB",
    )


def _floor_rows(floor: Floor) -> Iterator[str]:
    for name, step_s in (("floor, memory", floor.memory_s), ("floor, matrices", floor.matrix_s)):
        yield _row("", name, f"{floor.size / step_s:.0f}", "", "", "", spelled_step(step_s), "", "", "")


def _legend(report: BenchReport) -> Iterator[str]:
    if report.floors:
        yield "Floor: a step that only reads all weights once, and one that only multiplies by them, at those rates."
    if any(each.subject in HTTP for each in report.reached):
        yield "HTTP: twice as many users as a batch has rows, so that it stays full; the first token waits too."
    if any(each.subject == "generate" for each in report.reached):
        yield "generate: transformers' own, on the same weights, the same threads and prompts."


def _ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _step(seconds: float | None) -> str:
    return NOTHING if seconds is None else spelled_step(seconds)


def spelled_step(seconds: float) -> str:
    """Three digits that count.

    >>> spelled_step(0.00123), spelled_step(0.0123), spelled_step(0.123), spelled_step(1.23)
    ('1.23 ms', '12.3 ms', '123 ms', '1.2 s')
    """
    milliseconds = 1e3 * seconds
    if milliseconds >= 100:
        return spelled_ms(milliseconds)
    return f"{milliseconds:.{2 if milliseconds < 10 else 1}f} ms"


def _row(*cells: str) -> str:
    """Numbers to the right, names to the left."""
    placed = (
        f" {cell:<{-width}}" if width < 0 else f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True)
    )
    return "".join(placed).rstrip()
