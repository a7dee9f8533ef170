"""One measured run of load under one setting, and the figures that are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np

from service.analysis.observed.columns import Floats
from service.messages.load import spoiling_lag_ms

FigureName: TypeAlias = Literal["p50_s", "p95_s", "p99_s", "mean_s", "requests_per_s", "tokens_per_s", "mean_batch"]


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run under load, measured from an idle service to an idle service.

    Attributes:
        seed: of the arrivals, prompts and lengths; two runs of one seed and one load are sent the same requests.
        ran_s: from the start to the last answer.
        latencies_s: from the intended send time to the last token, in order of the intended send times; of a request
            that was broken off, the time until then.
        tokens: generated.
        broken_off, refused, failed, dropped: requests without an answer; see `ClientTotals`.
        mean_batch: mean size of the batches; ``None`` if none ran.
        lag_p99_ms: lag of the load generator itself.
    """

    seed: int
    ran_s: float
    latencies_s: tuple[float, ...]
    tokens: int = 0
    broken_off: int = 0
    refused: int = 0
    failed: int = 0
    dropped: int = 0
    mean_batch: float | None = None
    lag_p99_ms: float | None = None

    @property
    def answered(self) -> int:
        return len(self.latencies_s) - self.broken_off


@dataclass(frozen=True)
class Figure:
    """A figure of one or more runs.

    Attributes:
        title: for use within a sentence.
        option: name on the command line.
        of: returns its value over several runs as one; ``None`` where it is unknown.
    """

    name: FigureName
    title: str
    unit: str
    of: Callable[[Sequence[MeasuredRun]], float | None]

    @property
    def is_latency(self) -> bool:
        return self.unit == "s"

    @property
    def option(self) -> str:
        return self.name.removesuffix("_s") if self.is_latency else self.name


def _of_latencies(statistic: Callable[[Floats], np.floating[Any]]) -> Callable[[Sequence[MeasuredRun]], float | None]:
    def of(runs: Sequence[MeasuredRun]) -> float | None:
        latencies_s = pooled_latencies_s(runs)
        return float(statistic(latencies_s)) if len(latencies_s) else None

    return of


def _rate(count: Callable[[MeasuredRun], int]) -> Callable[[Sequence[MeasuredRun]], float | None]:
    def of(runs: Sequence[MeasuredRun]) -> float | None:
        ran_s = sum(run.ran_s for run in runs)
        return sum(count(run) for run in runs) / ran_s if ran_s > 0 else None

    return of


def _mean_batch(runs: Sequence[MeasuredRun]) -> float | None:
    known = [run.mean_batch for run in runs if run.mean_batch is not None]
    return float(np.mean(known)) if known else None


def pooled_latencies_s(runs: Sequence[MeasuredRun]) -> Floats:
    """All latencies of these runs, in seconds."""
    return np.fromiter((latency_s for run in runs for latency_s in run.latencies_s), dtype=np.float64)


FIGURES: Final[tuple[Figure, ...]] = (
    Figure("p50_s", "p50", "s", _of_latencies(lambda latencies_s: np.percentile(latencies_s, 50))),
    Figure("p95_s", "p95", "s", _of_latencies(lambda latencies_s: np.percentile(latencies_s, 95))),
    Figure("p99_s", "p99", "s", _of_latencies(lambda latencies_s: np.percentile(latencies_s, 99))),
    Figure("mean_s", "mean latency", "s", _of_latencies(np.mean)),
    Figure("requests_per_s", "throughput", "req/s", _rate(lambda run: run.answered)),
    Figure("tokens_per_s", "tokens a second", "tok/s", _rate(lambda run: run.tokens)),
    Figure("mean_batch", "mean batch", "", _mean_batch),
)
FIGURE_BY_NAME: Final = {figure.name: figure for figure in FIGURES}
FIGURE_BY_OPTION: Final = {figure.option: figure for figure in FIGURES}


def spoiling(runs: Sequence[MeasuredRun]) -> list[str]:
    """Sentences on what distorts the latencies of these runs."""
    sent = sum(len(run.latencies_s) + run.refused + run.failed for run in runs)
    counts = (
        ("were refused (503), so the latencies are of those that got in", sum(run.refused for run in runs)),
        ("failed", sum(run.failed for run in runs)),
        ("were broken off unanswered and count with the time until then", sum(run.broken_off for run in runs)),
        ("were never sent, as too many were outstanding", sum(run.dropped for run in runs)),
    )
    sentences = [f"{count:,} of {sent:,} requests {what}." for what, count in counts if count]
    lag_ms = max((run.lag_p99_ms for run in runs if run.lag_p99_ms is not None), default=0.0)
    p50_s = FIGURE_BY_NAME["p50_s"].of(runs)
    if p50_s is not None and lag_ms > spoiling_lag_ms(p50_s):
        late = f"The load generator itself sent late (p99 {lag_ms:.0f} ms), so part of the latency is its own."
        sentences.append(late)
    return sentences
