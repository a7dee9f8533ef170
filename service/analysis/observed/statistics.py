"""The row of figures: the last ten seconds, never across a change of settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from service.analysis.observed.batches import CONTINUOUS, Regime, mean_size
from service.analysis.observed.columns import Bools, Floats
from service.analysis.observed.history import History
from service.analysis.observed.rolling import STEP_S, WINDOW_S, percentiles, step_of

LEAST_SPAN_S: Final = 1.0  # rates over less than this would jump about


@dataclass(frozen=True)
class Figures:
    """What the service did lately; ``None`` is unknown.

    Attributes:
        requests_per_s, tokens_per_s: of what was answered and generated, once what was formed under older settings
            has drained.
        queue: requests that wait or are sealed but do not run.
        speedup_over_batch_1: how many times the tokens a second that batches of one request reach; see `speedup`.
    """

    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    mean_batch: float | None = None
    queue: float | None = None
    speedup_over_batch_1: float | None = None


SILENCE_S: Final = 2.0  # a service that says nothing for longer is not one that does nothing
UNKNOWN: Final = Figures()


def figures(history: History, at_s: float | None = None) -> Figures:
    """The figures of the ten seconds that end at `at_s` (now), or of what part of them the settings were in force."""
    latest_s = history.now_s() if at_s is None else at_s
    if history.first_s is None or history.last_s is None:
        return UNKNOWN
    end_s = min(latest_s, history.outages.failed_since_s or latest_s, history.last_s + SILENCE_S)
    regime = history.regime_at(end_s)
    begun_s = history.first_s if regime is None or regime.mark is None else regime.start_s
    return _figures(history, max(end_s - WINDOW_S, begun_s), end_s, regime)


def previous_figures(history: History, at_s: float | None = None) -> tuple[int, Figures] | None:
    """The version before the present one and its last ten seconds; ``None`` if there was none."""
    regime = history.regime_at(history.now_s() if at_s is None else at_s)
    previous = history.batches.regime_before(regime) if regime else None
    if regime is None or previous is None:
        return None
    end_s = regime.start_s
    begun_s = previous.start_s if previous.mark else (history.first_s or previous.start_s)
    return previous.version, _figures(history, max(end_s - WINDOW_S, begun_s), end_s, previous)


def _figures(history: History, start_s: float, end_s: float, regime: Regime | None) -> Figures:
    rated_from_s = max(start_s, _drained_s(history, regime))
    span_s = end_s - rated_from_s
    number = regime.number if regime else 0
    samples = history.requests.samples
    p50_s, p95_s, p99_s = (_known(value) for value in percentiles(samples, start_s, end_s, number))
    waiting, formed, _ = history.depth_at(end_s)
    is_long_enough = span_s >= LEAST_SPAN_S
    finished = samples["finished"]
    answered = np.count_nonzero((finished > rated_from_s) & (finished <= end_s))
    batches = _Executed.between(history, start_s, end_s, number)
    return Figures(
        requests_per_s=float(answered) / span_s if is_long_enough else None,
        tokens_per_s=_tokens_per_s(history, rated_from_s, end_s) if is_long_enough else None,
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        mean_batch=mean_size(batches.size, batches.run_s, batches.is_open),
        queue=float(waiting + formed),
        speedup_over_batch_1=speedup(batches.size, batches.tokens, batches.run_s, *_Executed.so_far(history, end_s)),
    )


def _drained_s(history: History, regime: Regime | None) -> float:
    """From when on all that ended was formed under these settings: before that, no rate is theirs alone."""
    drain = history.batches.drain(regime) if regime is not None else None
    if drain is None:
        return -math.inf
    return math.inf if drain.end_s is None else drain.end_s


def speedup(
    size: Floats, tokens: Floats, run_s: Floats, sizes: Floats, all_tokens: Floats, all_run_s: Floats
) -> float | None:
    """Tokens a second of the engine while it ran these batches, relative to what it reaches with batches of one.

    The rate at batch 1 is measured where batches of one request have run. Otherwise it follows from the straight line
    through the time of a decode step over the size of the batch, ``step = a + b · size``, fitted to all batches that
    ran; that needs two different sizes. (A step's time is the batch's time over the tokens per member, so requests
    that end earlier than their batch make it look longer than it is.) Else it is unknown.

    >>> one, four = np.array([1.0]), np.array([4.0])
    >>> speedup(four, 96 * one, 0.8 * one, *(np.array(x) for x in ([1.0, 4.0], [24.0, 96.0], [0.6, 0.8])))
    3.0
    """
    if not len(size) or not run_s.sum():
        return None
    rate = float(tokens.sum() / run_s.sum())
    alone = sizes == 1
    if alone.any():
        rate_alone = float(all_tokens[alone].sum() / all_run_s[alone].sum())
    elif len(np.unique(sizes)) >= 2:
        step_s = all_run_s * sizes / all_tokens
        slope, base = np.polyfit(sizes, step_s, 1)
        rate_alone = 1.0 / float(base + slope) if base + slope > 0 else 0.0
    else:
        return None
    return rate / rate_alone if rate_alone > 0 else None


@dataclass(frozen=True)
class _Executed:
    """Batches that ran to their end and generated something."""

    size: Floats
    tokens: Floats
    run_s: Floats
    is_open: Bools

    @classmethod
    def between(cls, history: History, start_s: float, end_s: float, regime: int) -> _Executed:
        """Those of one regime that ended in (start, end]."""
        columns = history.batches.columns
        finished = columns["finished"]
        return cls._chosen(history, (finished > start_s) & (finished <= end_s) & (columns["regime"] == regime))

    @classmethod
    def so_far(cls, history: History, end_s: float) -> tuple[Floats, Floats, Floats]:
        """Those that the service that ran then had executed by then."""
        columns, begun_s = history.batches.columns, history.service_begun_s(end_s)
        executed = cls._chosen(history, (columns["finished"] <= end_s) & (columns["started"] >= begun_s))
        return executed.size, executed.tokens, executed.run_s

    @classmethod
    def _chosen(cls, history: History, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> _Executed:
        columns = history.batches.columns
        chosen = chosen & np.isfinite(columns["started"]) & (columns["tokens"] > 0)
        run_s = columns["finished"][chosen] - columns["started"][chosen]
        size, tokens = (columns[name][chosen].astype(np.float64) for name in ("size", "tokens"))
        return cls(size, tokens, run_s, columns["formation"][chosen] == CONTINUOUS)


def _tokens_per_s(history: History, start_s: float, end_s: float) -> float:
    """From whole steps of time, each counted for the part of it that lies within."""
    first, last = step_of(start_s), step_of(end_s)
    edges = np.arange(first, last + 2) * STEP_S
    covered = np.clip(np.minimum(edges[1:], end_s) - np.maximum(edges[:-1], start_s), 0.0, STEP_S) / STEP_S
    return max(float((history.batches.tokens.read(first, last) * covered).sum()) / (end_s - start_s), 0.0)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
