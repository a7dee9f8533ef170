"""What a bench measures, and its result: every run, the medians, the floors, and how they compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from statistics import median
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from service.messages.load import USUAL_PROMPTS
from service.messages.options import ServiceOptions
from service.messages.text import counted

Subject: TypeAlias = Literal["engine", "http", "http_whole", "generate"]

HTTP: Final[Mapping[Subject, bool]] = {"http": True, "http_whole": False}  # through it, and whether answers stream
NAMES: Final[Mapping[Subject, str]] = {
    "engine": "engine",
    "http": "HTTP, streamed",
    "http_whole": "HTTP, in one piece",
    "generate": "generate",
}
CPU_SIZES: Final = (1, 4, 16, 32, 64)
GPU_SIZES: Final = (*CPU_SIZES, 128, 256)
QUICK_SIZES: Final = (1, 16)
WARM_UP_TOKENS: Final = 4


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a bench measures, and how often.

    Attributes:
        sizes: prompts that are decoded at a time; ``None`` for the usual ones of the device.
        tokens: generated for each prompt.
        run_s: how long each run goes on; it ends with a batch. Shorter ones show how a run begins.
    """

    service: ServiceOptions = ServiceOptions()
    sizes: tuple[int, ...] | None = None
    tokens: int = 24
    rounds: int = 3
    run_s: float = 3.0

    def sizes_on(self, device: str) -> tuple[int, ...]:
        """
        >>> BenchPlan().sizes_on("cpu"), BenchPlan(sizes=(2,)).sizes_on("cuda:1")
        ((1, 4, 16, 32, 64), (2,))
        """
        if self.sizes is not None:
            return self.sizes
        return GPU_SIZES if device.startswith("cuda") else CPU_SIZES


class PlannedRun(NamedTuple):
    """One run of a subject, in the round of that number."""

    round: int
    size: int
    subject: Subject

    @property
    def weight(self) -> float:
        """About how long it takes, in an unknown unit: batches before and after the measured ones take time too."""
        return 1.0 + self.size / 30


def interleaved(subjects: tuple[Subject, ...], sizes: tuple[int, ...], rounds: int) -> Iterator[PlannedRun]:
    """Every size in every round; the first subject changes, so that a machine that slows down slows all of them."""
    for number in range(rounds):
        first = number % len(subjects)
        for size in sizes:
            for subject in subjects[first:] + subjects[:first]:
                yield PlannedRun(number, size, subject)


def prompts_for(size: int) -> list[str]:
    """The usual prompts, over and over until there are `size`."""
    return list(islice(cycle(USUAL_PROMPTS), size))


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that each step reads and multiplies by, for any number of rows, and their size in bytes."""

    parameters: int
    bytes: int

    @classmethod
    def of(cls, model: Any) -> Weights:
        """Of a transformers model: all but the table of the input tokens, of which a step reads a line for each row.

        Where that table is the output layer as well, a step does read it.
        """
        output = model.get_output_embeddings()
        table = model.get_input_embeddings().weight
        is_shared = output is not None and output.weight is table
        read = [each for each in model.parameters() if is_shared or each is not table]
        return cls(
            parameters=sum(each.numel() for each in read),
            bytes=sum(each.numel() * each.element_size() for each in read),
        )


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine does at best: bytes of memory and operations of matrix products, a second."""

    bytes_per_s: float
    operations_per_s: float

    def or_better(self, other: Rates) -> Rates:
        """The better of two measurements, each."""
        return Rates(
            bytes_per_s=max(self.bytes_per_s, other.bytes_per_s),
            operations_per_s=max(self.operations_per_s, other.operations_per_s),
        )


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """The shortest time of a step of `size` rows: for reading the weights once, and for multiplying by them."""

    size: int
    memory_s: float
    matrix_s: float

    @property
    def step_s(self) -> float:
        return max(self.memory_s, self.matrix_s)


def floor(weights: Weights, rates: Rates, size: int) -> Floor:
    """
    >>> floor(Weights(parameters=100, bytes=200), Rates(bytes_per_s=2e3, operations_per_s=2e4), size=4)
    Floor(size=4, memory_s=0.1, matrix_s=0.04)
    """
    return Floor(
        size=size,
        memory_s=weights.bytes / rates.bytes_per_s,
        matrix_s=2 * weights.parameters * size / rates.operations_per_s,
    )


class BenchRun(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of one size, one after the other.

    Attributes:
        tokens: generated in all.
        step_s: of a step in which every row gets a token, prompts apart; ``None`` if there was none.
        first_token_s: from the asking to the first token, the median over the batches or requests; ``None`` where
            answers come in one piece.
        memory_bytes: the most that was seen: resident, or on a GPU.
        rows: decoded at a time, on average.
    """

    subject: Subject
    size: int
    tokens: float
    ran_s: float
    step_s: float | None
    first_token_s: float | None
    memory_bytes: int
    rows: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.ran_s


def _median(values: Iterable[float | None]) -> float | None:
    """Of the values that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


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


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the rounds, and their ratios to what they are judged by; ``None`` where that was not measured.

    Attributes:
        spread: half of what lies between the slowest and the fastest round, as a share of the median.
        over_generate, over_engine: tokens/s divided by theirs.
        over_floor: time of a step divided by its floor.
    """

    subject: Subject
    size: int
    rounds: int
    tokens_per_s: float
    spread: float
    step_s: float | None
    first_token_s: float | None
    memory_bytes: int
    rows: float
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
    runs: tuple[BenchRun, ...]

    def at(self, size: int, subject: Subject) -> Reached | None:
        return next((each for each in self.reached if (each.size, each.subject) == (size, subject)), None)


def concluded(
    plan: BenchPlan,
    on: MeasuredOn,
    runs: Sequence[BenchRun],
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
        notes=(*notes, *_remarks(plan, on, runs)),
        runs=tuple(runs),
    )


def _reached(size: int, runs: Sequence[BenchRun], floors: Sequence[Floor]) -> Iterator[Reached]:
    """What each subject reached at that size."""
    by_subject: dict[Subject, list[BenchRun]] = {}
    for run in runs:
        if run.size == size:
            by_subject.setdefault(run.subject, []).append(run)
    rate_of = {subject: median(run.tokens_per_s for run in rounds) for subject, rounds in by_subject.items()}
    floor_s = next((each.step_s for each in floors if each.size == size), None)
    for subject, rounds in by_subject.items():
        rates = [run.tokens_per_s for run in rounds]
        step_s = _median(run.step_s for run in rounds)
        yield Reached(
            subject=subject,
            size=size,
            rounds=len(rounds),
            tokens_per_s=rate_of[subject],
            spread=(max(rates) - min(rates)) / 2 / rate_of[subject],
            step_s=step_s,
            first_token_s=_median(run.first_token_s for run in rounds),
            memory_bytes=max(run.memory_bytes for run in rounds),
            rows=median(run.rows for run in rounds),
            over_generate=_ratio(rate_of[subject], rate_of.get("generate")),
            over_engine=_ratio(rate_of[subject], rate_of.get("engine")),
            over_floor=_ratio(step_s, floor_s),
        )


def _ratio(value: float | None, to: float | None) -> float | None:
    return None if value is None or to is None else value / to


def _remarks(plan: BenchPlan, on: MeasuredOn, runs: Sequence[BenchRun]) -> Iterator[str]:
    """Sentences on what is missing because it was ended early, and on batches that were not full over HTTP."""
    subjects = {run.subject for run in runs}
    missing = len(subjects) * len(plan.sizes_on(on.device)) * plan.rounds - len(runs)
    if missing > 0:
        yield f"It was ended early, with {counted(missing, 'run')} to come."
    small = sorted({run.size for run in runs if run.subject in HTTP and run.rows < FULL * run.size})
    if small:
        yield (
            f"Over HTTP fewer rows were decoded at a time than the batch holds, at {', '.join(map(str, small))}: "
            "prompts were being read, or too few requests had come in time."
        )
