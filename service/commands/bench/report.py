"""The result of a bench: its plan, every run, the medians, the floors, and how they stand to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from service.analysis.findings.words import counted
from service.commands.bench.figures import Figures, Run, figures
from service.commands.bench.floors import Floor, Rates, Weights, floor
from service.commands.bench.plan import HTTP, BenchPlan, Subject

FULL: Final = 0.9


class MeasuredOn(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured on.

    Attributes:
        hardware: of the machine that engine and `generate` computed on; empty where nothing but HTTP was measured.
        versions: of the libraries that compute.
    """

    model: str
    device: str
    dtype: str
    url: str | None = None
    hardware: str = ""
    versions: dict[str, str] = {}


class Reached(Figures, frozen=True, kw_only=True):
    """Figures, and their ratios to what they are judged by; ``None`` where that was not measured.

    Attributes:
        over_generate, over_engine: tokens/s divided by theirs.
        over_floor: time of a step divided by its floor.
    """

    over_generate: float | None
    over_engine: float | None
    over_floor: float | None


class BenchReport(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="bench"):
    """What `bench` measured.

    Attributes:
        measured_at: Unix time of the end.
        rates, weights: what the floors are computed from.
        reached: by subject and size, sizes ascending.
        notes: sentences on what is missing, or spoils the figures.
    """

    version: Literal[1] = 1
    measured_at: float
    on: MeasuredOn
    plan: BenchPlan
    rates: Rates | None
    weights: Weights | None
    floors: tuple[Floor, ...]
    reached: tuple[Reached, ...]
    notes: tuple[str, ...]
    runs: tuple[Run, ...]

    def at(self, size: int, subject: Subject) -> Reached | None:
        return next((each for each in self.reached if (each.size, each.subject) == (size, subject)), None)


def concluded(
    plan: BenchPlan,
    on: MeasuredOn,
    runs: Sequence[Run],
    rates: Rates | None,
    weights: Weights | None,
    notes: Sequence[str],
    measured_at: float,
) -> BenchReport:
    """The report on these runs."""
    sizes = sorted({run.size for run in runs})
    floors = () if rates is None or weights is None else tuple(floor(weights, rates, size) for size in sizes)
    return BenchReport(
        measured_at=measured_at,
        on=on,
        plan=plan,
        rates=rates,
        weights=weights,
        floors=floors,
        reached=tuple(each for size in sizes for each in _reached(size, runs, floors)),
        notes=(*notes, *_unfinished(plan, on, runs), *_small_batches(runs)),
        runs=tuple(runs),
    )


def _reached(size: int, runs: Sequence[Run], floors: Sequence[Floor]) -> list[Reached]:
    """What each subject reached at that size."""
    by_subject: dict[Subject, list[Run]] = {}
    for run in runs:
        if run.size == size:
            by_subject.setdefault(run.subject, []).append(run)
    all_of = {subject: figures(its_runs) for subject, its_runs in by_subject.items()}
    least_s = next((each.step_s for each in floors if each.size == size), None)
    return [
        Reached(
            **msgspec.structs.asdict(each),
            over_generate=_ratio(each.tokens_per_s, _rate(all_of.get("generate"))),
            over_engine=_ratio(each.tokens_per_s, _rate(all_of.get("engine"))),
            over_floor=_ratio(each.step_s, least_s),
        )
        for each in all_of.values()
    ]


def _rate(of: Figures | None) -> float | None:
    return None if of is None else of.tokens_per_s


def _ratio(value: float | None, to: float | None) -> float | None:
    return None if value is None or to is None else value / to


def _unfinished(plan: BenchPlan, on: MeasuredOn, runs: Sequence[Run]) -> list[str]:
    """A sentence where it was ended early."""
    subjects = {run.subject for run in runs}
    missing = len(subjects) * len(plan.sizes_on(on.device)) * plan.rounds - len(runs)
    return [f"It was ended early, with {counted(missing, 'run')} to come."] if missing > 0 else []


def _small_batches(runs: Sequence[Run]) -> list[str]:
    """A sentence where fewer rows were decoded at a time over HTTP than a batch holds."""
    small = sorted({run.size for run in runs if run.subject in HTTP and run.rows < FULL * run.size})
    if not small:
        return []
    return [
        f"Over HTTP fewer rows were decoded at a time than the batch holds, at {', '.join(map(str, small))}: "
        "prompts were being read, or too few requests had come in time."
    ]
