"""The row of figures: the last ten seconds, never across a change of settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from service.analysis.observed.batches import CONTINUOUS, Regime, mean_size
from service.analysis.observed.columns import Bools, Columns, Floats
from service.analysis.observed.history import History
from service.analysis.observed.processor import processor_share
from service.analysis.observed.register import UNKNOWN_FIGURES, Figures
from service.analysis.observed.requests import STATE_CODES, STATES, samples_between
from service.analysis.observed.rolling import STEP_S, WINDOW_S, percentiles, step_of
from service.messages.gaps import Gaps
from service.messages.objectives import TIMES, Objectives

LEAST_SPAN_S: Final = 1.0  # rates over less than this would jump about
SILENCE_S: Final = 2.0  # the figures of a service that is silent for longer stand still
LEAST_SINGLES: Final = 5  # batches of one, below which nothing is compared with them
SINGLES_S: Final = 300.0  # the machine may have been quicker or slower when older ones ran
AS_LONG: Final = 1.5  # prompts and completions are as long up to this factor
FEW_TOKENS: Final = 8.0  # or this difference
JUST_BEFORE_S: Final = 1e-6


def figures(history: History, at_s: float | None = None) -> Figures:
    """The figures of the ten seconds that end at `at_s` (now), without the part before the settings were in force."""
    window = _window(history, at_s)
    if window is None:
        return UNKNOWN_FIGURES
    failed_s = history.outages.failed_since_s or math.inf
    depth_s = min(history.now_s() if at_s is None else at_s, failed_s - JUST_BEFORE_S)  # a failure ends every request
    return _figures(history, *window, depth_s)


def token_gaps(history: History, at_s: float | None = None) -> Gaps:
    """The times between tokens (ITL) of the same ten seconds: mean, percentiles and longest stall; none if unknown."""
    window = _window(history, at_s)
    return Gaps() if window is None else history.gaps.between(*window[:2])


def waited_before(history: History, at_s: float) -> bool:
    """Whether requests that came before the settings were in force make the p95 of these ten seconds what it is.

    Or requests that came until the last of those had ended. Without them it is less than half; and where no other has
    ended yet, less than two thirds without what they waited before.
    """
    window = _window(history, at_s)
    if window is None:
        return False
    start_s, end_s, regime = window
    if regime is None:
        return False
    finished_s, latency_s, regimes = samples_between(history.requests.samples, start_s, end_s)
    counts = regimes == regime.number
    worked_off_s = _worked_off_s(history, regime, end_s)
    since = counts & (finished_s - latency_s >= worked_off_s)
    if not counts.any():
        return False
    p95_s = np.percentile(latency_s[counts], 95)
    if since.any():
        return bool(np.percentile(latency_s[since], 95) < p95_s / 2)
    within_s = np.minimum(latency_s, finished_s - regime.start_s)[counts]
    return bool(np.percentile(within_s, 95) < p95_s * 2 / 3)


def _worked_off_s(history: History, regime: Regime, until_s: float) -> float:
    """When the last of the requests ended that came before the settings were in force, or these were."""
    finished_s, latency_s, regimes = samples_between(history.requests.samples, regime.start_s, until_s)
    came_before = (regimes == regime.number) & (finished_s - latency_s < regime.start_s)
    return float(finished_s[came_before].max(initial=regime.start_s))


def _window(history: History, at_s: float | None) -> tuple[float, float, Regime | None] | None:
    """Begin and end of the ten seconds, and the regime of their end."""
    latest_s = history.now_s() if at_s is None else at_s
    if history.first_s is None or history.last_s is None:
        return None
    end_s = min(latest_s, history.last_s + SILENCE_S, latest_s if history.ended_s is None else history.ended_s)
    regime = history.batches.regime_at(end_s)
    begun_s = history.first_s if regime is None or regime.mark is None else regime.start_s
    return max(end_s - WINDOW_S, begun_s), end_s, regime


def previous_figures(history: History, at_s: float | None = None) -> tuple[int, Figures] | None:
    """The version before the present one and the figures of its last ten seconds; ``None`` if there was none."""
    regime = history.batches.regime_at(history.now_s() if at_s is None else at_s)
    previous = history.batches.regime_before(regime) if regime else None
    if regime is None or previous is None:
        return None
    end_s = history.batches.end_s(previous)
    begun_s = previous.start_s if previous.mark else (history.first_s or previous.start_s)
    return previous.version, _figures(history, max(end_s - WINDOW_S, begun_s), end_s, previous, end_s)


def _figures(history: History, start_s: float, end_s: float, regime: Regime | None, depth_s: float) -> Figures:
    """Of the time from `start_s` to `end_s`; requests in each stage are counted at `depth_s`."""
    rated_from_s = max(start_s, _drained_s(history, regime))
    span_s = end_s - rated_from_s
    number = regime.number if regime else 0
    samples = history.requests.samples
    p50_s, p95_s, p99_s = (
        None if math.isnan(value) else float(value) for value in percentiles(samples, start_s, end_s, number)
    )
    waiting, formed, running = history.depth_at(depth_s)
    is_long_enough = span_s >= LEAST_SPAN_S
    table, begun_s = history.batches.columns, history.service_begun_s(end_s)
    ended = table["finished"] <= end_s
    batches = RanBatches.of_history(history, ended & (table["finished"] > start_s) & (table["regime"] == number))
    recent = ended & (table["started"] >= max(begun_s, end_s - SINGLES_S))
    gain, single_batches = (None, None) if history.server else speedup(batches, RanBatches.of_history(history, recent))
    return Figures(
        **(_rates(history, rated_from_s, end_s, number) if is_long_enough else {}),
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        mean_batch=mean_size(batches.size, batches.run_s, batches.is_open),
        queue=float(waiting + formed),
        speedup_over_batch_1=gain,
        waiting=waiting,
        formed=formed,
        running=running,
        offered_per_s=history.load_timeline.offered_at(depth_s),
        single_batches=single_batches,
        processor_share=processor_share(history, start_s, end_s),
        **_outcomes(history, start_s, end_s),
    )


def _rates(history: History, start_s: float, end_s: float, regime: int) -> dict[str, Any]:
    """Requests and tokens a second, and requests that met the objectives where there are any.

    An answer of the settings before may arrive after their last batch has ended, and counts for these no more.
    """
    span_s = end_s - start_s
    samples = history.requests.samples
    within = (samples["finished"] > start_s) & (samples["finished"] <= end_s) & (samples["regime"] == regime)
    rates = {
        "requests_per_s": np.count_nonzero(within) / span_s,
        "tokens_per_s": _tokens_per_s(history, start_s, end_s),
    }
    if history.objectives:
        rates["goodput_per_s"] = np.count_nonzero(within & are_good(samples, history.objectives)) / span_s
    return rates


def are_good(samples: Columns, objectives: Objectives) -> Bools:
    """Which of these requests met the objectives; a time that does not exist, as that between tokens of one, is met."""
    good: Bools = np.ones(len(samples), np.bool_)
    for name, field in TIMES.items():
        most_s = getattr(objectives, field)
        if most_s is not None:
            good &= (samples[name] <= most_s) | np.isinf(samples[name])
    return good


def _outcomes(history: History, start_s: float, end_s: float) -> dict[str, Any]:
    """How many requests ended in (start, end], what became of them, and the share that was denied an answer."""
    ended_s, states = history.requests.ends()
    counts = np.bincount(states[(ended_s > start_s) & (ended_s <= end_s)], minlength=len(STATES)).tolist()
    done, failed, refused, cancelled = (counts[STATE_CODES[s]] for s in ("done", "failed", "refused", "cancelled"))
    ended = done + failed + refused + cancelled
    share = (failed + refused) / ended if ended else None
    return {"failed_share": share, "ended": ended, "failed": failed, "refused": refused, "cancelled": cancelled}


def _drained_s(history: History, regime: Regime | None) -> float:
    """The moment from which on every batch that ended was formed under these settings."""
    drain = history.batches.drain(regime) if regime is not None else None
    if drain is None:
        return -math.inf
    return math.inf if drain.end_s is None else drain.end_s


@dataclass(frozen=True)
class RanBatches:
    """Batches that ran to their end and generated something, one entry each; `prompts` were read, padding included."""

    size: Floats
    tokens: Floats
    prompts: Floats
    run_s: Floats
    is_open: Bools

    @classmethod
    def of_history(cls, history: History, chosen: Bools) -> RanBatches:
        """The chosen batches of the table, as far as they ran."""
        columns = history.batches.columns
        chosen = chosen & np.isfinite(columns["started"]) & (columns["tokens"] > 0)
        run_s = columns["finished"][chosen] - columns["started"][chosen]
        size, tokens, prompts = (columns[name][chosen].astype(np.float64) for name in ("size", "tokens", "prompts"))
        return cls(size, tokens, prompts, run_s, columns["formation"][chosen] == CONTINUOUS)

    @property
    def tokens_per_s(self) -> float:
        return float(self.tokens.sum() / self.run_s.sum())

    def singles_like(self, others: RanBatches) -> RanBatches:
        """The batches of one that can be compared with `others`: formed alike, with prompts and completions as long.

        The segments of a continuous batch end when a request joins or leaves, so their lengths say nothing.
        """
        are_open = bool(others.is_open.mean() > 0.5)
        alike = (self.size == 1) & (self.is_open == are_open) & (self.run_s > 0)
        if not are_open:
            for lengths, wanted in ((self.tokens, others.tokens), (self.prompts, others.prompts)):
                mean = float(wanted.sum() / others.size.sum())
                is_near = np.abs(lengths - mean) <= FEW_TOKENS
                alike &= is_near | ((lengths <= AS_LONG * mean) & (mean <= AS_LONG * lengths))
        return RanBatches(*(getattr(self, each.name)[alike] for each in fields(self)))


def speedup(batches: RanBatches, recent: RanBatches) -> tuple[float | None, int]:
    """Tokens a second of the engine while it ran `batches`, relative to `recent` batches of one, and their number.

    Only like is compared with like, see `RanBatches.singles_like`; with less than `LEAST_SINGLES` it is unknown.

    >>> def ran(count: int, size: float, run_s: float) -> RanBatches:
    ...     sizes = np.full(count, size)
    ...     return RanBatches(sizes, 24 * sizes, 7 * sizes, np.full(count, run_s), np.zeros(count, np.bool_))
    >>> speedup(ran(1, 4.0, 0.8), ran(5, 1.0, 0.6)), speedup(ran(1, 4.0, 0.8), ran(4, 1.0, 0.6))
    ((3.0, 5), (None, 4))
    """
    if not len(batches.size) or not batches.run_s.sum():
        return None, 0
    singles = recent.singles_like(batches)
    count = len(singles.size)
    return (batches.tokens_per_s / singles.tokens_per_s if count >= LEAST_SINGLES else None), count


def _tokens_per_s(history: History, start_s: float, end_s: float) -> float:
    """Tokens a second, from whole steps of time, each counted for the part of it that lies within."""
    first, last = step_of(start_s), step_of(end_s)
    edges = np.arange(first, last + 2) * STEP_S
    covered = np.clip(np.minimum(edges[1:], end_s) - np.maximum(edges[:-1], start_s), 0.0, STEP_S) / STEP_S
    return max(float((history.batches.tokens.read(first, last) * covered).sum()) / (end_s - start_s), 0.0)
