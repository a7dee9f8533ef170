"""One measured run of load under one setting, and the figures that are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np

from service.analysis.observed.batches import mean_size
from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History
from service.analysis.observed.register import ENTRIES, Entry
from service.analysis.observed.requests import STATE_CODES
from service.analysis.observed.statistics import RanBatches
from service.messages.load import spoiling_lag_ms

FigureName: TypeAlias = Literal[
    "p50_s",
    "p95_s",
    "p99_s",
    "mean_s",
    "ttft_p50_s",
    "ttft_p95_s",
    "tpot_p50_s",
    "tpot_p95_s",
    "requests_per_s",
    "tokens_per_s",
    "goodput_per_s",
    "mean_batch",
]


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run under load, measured from an idle service to an idle service.

    Attributes:
        seed: of the arrivals, prompts and lengths; two runs of one seed and one load are sent the same requests.
        began_s: when its first request was to be sent, on the monotonic clock of the machine that sent it; 0 where that
            is not known, as of files written before.
        ran_s: from the start to the last answer.
        latencies_s: from the intended send time to the last token, in order of the intended send times; of a request
            that was broken off, the time until then.
        ttfts_s, tpots_s: TTFT and TPOT of the answered requests that have one: an answer in one piece has neither, one
            token has no TPOT.
        tokens: generated.
        good: answered requests that met the plan's objectives; ``None`` without any.
        broken_off, refused, failed, dropped: requests without an answer; see `ClientTotals`.
        mean_batch: mean size of the batches; ``None`` if none ran.
        lag_p99_ms: lag of the load generator itself.
    """

    seed: int
    ran_s: float
    latencies_s: tuple[float, ...]
    ttfts_s: tuple[float, ...] = ()
    tpots_s: tuple[float, ...] = ()
    tokens: int = 0
    good: int | None = None
    broken_off: int = 0
    refused: int = 0
    failed: int = 0
    dropped: int = 0
    mean_batch: float | None = None
    lag_p99_ms: float | None = None
    began_s: float = 0.0

    @property
    def answered(self) -> int:
        return len(self.latencies_s) - self.broken_off

    @property
    def sent(self) -> int:
        return len(self.latencies_s) + self.refused + self.failed


def recorded_run(history: History) -> MeasuredRun | None:
    """All that a history holds as one run, from its first request to its last answer; ``None`` without an answer.

    Its seed is not known, and stands at 0. Nothing is counted as good.
    """
    samples, table = history.requests.samples, history.batches.columns
    in_order = np.argsort(samples["finished"] - samples["latency"])
    begun_s, _ = history.requests.spans()
    if not len(samples) or not np.isfinite(begun_s).any():
        return None
    began_s = float(begun_s[np.isfinite(begun_s)].min())
    _, ends = history.requests.ends()
    counts = {name: int((ends == STATE_CODES[name]).sum()) for name in ("refused", "failed")}
    batches = RanBatches.of_history(history, np.isfinite(table["finished"]))
    ttfts_s, tpots_s = (samples[name][np.isfinite(samples[name])] for name in ("ttft", "tpot"))
    return MeasuredRun(
        seed=0,
        began_s=began_s,
        ran_s=float(samples["finished"].max()) - began_s,
        latencies_s=tuple(samples["latency"][in_order].tolist()),
        ttfts_s=tuple(ttfts_s.tolist()),
        tpots_s=tuple(tpots_s.tolist()),
        tokens=int(history.requests.columns["tokens"].clip(min=0).sum()),
        mean_batch=mean_size(batches.size, batches.run_s, batches.is_open),
        **counts,
    )


@dataclass(frozen=True)
class Figure:
    """A figure of one or more runs, called as in the register of figures.

    Attributes:
        of: returns its value over several runs as one; ``None`` where it is unknown.
    """

    name: FigureName
    of: Callable[[Sequence[MeasuredRun]], float | None]

    @property
    def entry(self) -> Entry:
        return ENTRIES[self.name]

    @property
    def title(self) -> str:
        """For use within a sentence."""
        return self.entry.name

    @property
    def unit(self) -> str:
        """Stands after the number; a rate has it in its name."""
        return self.entry.unit

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return self.name.removesuffix("_s") if self.unit == "s" else self.name


Of: TypeAlias = Callable[[Sequence[MeasuredRun]], float | None]
Times: TypeAlias = Callable[[MeasuredRun], tuple[float, ...]]


def _latencies_s(run: MeasuredRun) -> tuple[float, ...]:
    return run.latencies_s


def _percentile(level: int, times_s: Times) -> Of:
    return _over(times_s, lambda pooled_s: np.percentile(pooled_s, level))


def _over(times_s: Times, statistic: Callable[[Floats], np.floating[Any]]) -> Of:
    def of(runs: Sequence[MeasuredRun]) -> float | None:
        pooled_s = pooled(runs, times_s)
        return float(statistic(pooled_s)) if len(pooled_s) else None

    return of


def _rate(count: Callable[[MeasuredRun], int | None]) -> Of:
    def of(runs: Sequence[MeasuredRun]) -> float | None:
        ran_s = sum(run.ran_s for run in runs)
        counts = [counted for run in runs if (counted := count(run)) is not None]
        return sum(counts) / ran_s if ran_s > 0 and len(counts) == len(runs) else None

    return of


def _mean_batch(runs: Sequence[MeasuredRun]) -> float | None:
    known = [run.mean_batch for run in runs if run.mean_batch is not None]
    return float(np.mean(known)) if known else None


def pooled(runs: Sequence[MeasuredRun], times_s: Times = _latencies_s) -> Floats:
    """All latencies of these runs, or other times of them, in seconds."""
    return np.fromiter((time_s for run in runs for time_s in times_s(run)), dtype=np.float64)


FIGURES: Final[tuple[Figure, ...]] = (
    Figure("p50_s", _percentile(50, _latencies_s)),
    Figure("p95_s", _percentile(95, _latencies_s)),
    Figure("p99_s", _percentile(99, _latencies_s)),
    Figure("mean_s", _over(_latencies_s, np.mean)),
    Figure("ttft_p50_s", _percentile(50, lambda run: run.ttfts_s)),
    Figure("ttft_p95_s", _percentile(95, lambda run: run.ttfts_s)),
    Figure("tpot_p50_s", _percentile(50, lambda run: run.tpots_s)),
    Figure("tpot_p95_s", _percentile(95, lambda run: run.tpots_s)),
    Figure("requests_per_s", _rate(lambda run: run.answered)),
    Figure("tokens_per_s", _rate(lambda run: run.tokens)),
    Figure("goodput_per_s", _rate(lambda run: run.good)),
    Figure("mean_batch", _mean_batch),
)
FIGURE_BY_NAME: Final = {figure.name: figure for figure in FIGURES}
FIGURE_BY_OPTION: Final = {figure.option: figure for figure in FIGURES}


def spoiling(runs: Sequence[MeasuredRun]) -> list[str]:
    """Sentences on what distorts the latencies of these runs."""
    sent = sum(run.sent for run in runs)
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
