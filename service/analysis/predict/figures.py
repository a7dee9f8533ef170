"""The figures of a simulated run, counted as the window counts those of a real one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from service.analysis.observed.batches import mean_size
from service.analysis.observed.columns import Floats
from service.analysis.predict.replicas import SimulatedRequest, SimulatedRun

GROWTH: Final = 0.05  # a queue that keeps this share of the arrivals grows without bound
REFUSALS: Final = 0.01
STEP_S: Final = 1.0  # of a course
AROUND_S: Final = 5.0
BATCHES_AROUND: Final = 2.0
MOMENTS: Final = 100
SHORTEST_S: Final = 1e-9


class SimulatedFigures(NamedTuple):
    """The figures of a span of time; see `Prediction`. NaN where there was nothing to count."""

    p50_s: float
    p95_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    tpot_p50_s: float
    tpot_p95_s: float
    requests_per_s: float
    tokens_per_s: float
    mean_batch: float
    refused_share: float


def figures_of(run: SimulatedRun, begin_s: float, end_s: float) -> SimulatedFigures:
    """Latencies of the requests answered within that time, and rates and batches of that time."""
    answered = [r for r in run.requests if not r.refused and begin_s <= _answered_s(r) < end_s]
    intended = [r for r in run.requests if begin_s <= r.arrival.intended_s < end_s]
    ran = [batch for batch in run.batches if begin_s <= batch.started_s < end_s]
    run_s = np.array([batch.finished_s - batch.started_s for batch in ran])
    mean_batch = mean_size(np.array([len(b.members) for b in ran]), run_s, np.array([b.is_open for b in ran], np.bool_))
    times = list(map(times_of, answered))
    return SimulatedFigures(
        *percentiles([each.latency_s for each in times]),
        *percentiles([each.ttft_s for each in times if each.ttft_s is not None]),
        *percentiles([each.tpot_s for each in times if each.tpot_s is not None]),
        requests_per_s=len(answered) / (end_s - begin_s),
        tokens_per_s=sum(r.arrival.tokens for r in answered) / (end_s - begin_s),
        mean_batch=math.nan if mean_batch is None else mean_batch,
        refused_share=sum(request.refused for request in intended) / len(intended) if intended else 0.0,
    )


def served_rates(run: SimulatedRun, begin_s: float, end_s: float) -> tuple[float, float]:
    """Requests and tokens a second, where each request counts in the share of its run that lies within that time.

    Answers come a whole batch at a time. So their number depends on where the time begins: of batches of 48 that take
    3.6 s, ten seconds hold two or three, which are 9.6 or 14.4 requests a second and never the 13.3 that are served.
    """
    ended = (each for each in run.requests if each.started_s is not None and each.finished_s is not None)
    ran = [(each.started_s, each.finished_s, each.arrival.tokens) for each in ended]
    started_s, finished_s, tokens = np.array(ran, np.float64).reshape(-1, 3).T
    within_s = np.minimum(finished_s, end_s) - np.maximum(started_s, begin_s)
    shares = np.clip(within_s / np.maximum(finished_s - started_s, SHORTEST_S), 0.0, 1.0)
    return float(shares.sum()) / (end_s - begin_s), float(shares @ tokens) / (end_s - begin_s)


def percentiles(values: Sequence[float] | Floats) -> tuple[float, float]:
    """The median and the 95th percentile; NaN for no values."""
    if not len(values):
        return math.nan, math.nan
    p50, p95 = np.percentile(values, (50.0, 95.0)).tolist()
    return p50, p95


def _answered_s(request: SimulatedRequest) -> float:
    return math.inf if request.answered_s is None else request.answered_s


class RequestTimes(NamedTuple):
    """The times that objectives are about; ``None`` where an answer has no such time."""

    latency_s: float
    ttft_s: float | None
    tpot_s: float | None


def times_of(request: SimulatedRequest) -> RequestTimes:
    """The times of an answered request; its first token takes as long to the client as the last."""
    latency_s = _answered_s(request) - request.arrival.intended_s
    if request.first_s is None or request.finished_s is None:
        return RequestTimes(latency_s, None, None)
    decoding_s = max(request.finished_s - request.first_s, 0.0)
    more = request.arrival.tokens - 1
    return RequestTimes(
        latency_s, latency_s + request.first_s - request.finished_s, decoding_s / more if more else None
    )


def is_growing(run: SimulatedRun, until_s: float) -> bool:
    """Whether the last two thirds of the arrivals left more requests than they found, or many were refused."""
    intended_s = np.array([request.arrival.intended_s for request in run.requests])
    ends_s = np.array([np.inf if r.answered_s is None else r.answered_s for r in run.requests])
    refused = np.array([request.refused for request in run.requests])

    def present(at_s: float) -> int:
        return int(np.count_nonzero((intended_s <= at_s) & (ends_s > at_s)))

    since_s = until_s / 3
    arrived = np.count_nonzero(intended_s > since_s)
    grown = present(until_s) - present(since_s)
    return bool(grown > GROWTH * arrived or refused.mean() > REFUSALS) if arrived else False


@dataclass(frozen=True)
class Course:
    """A run in steps of `STEP_S`, from its beginning on; a latency is NaN where no request was answered.

    Answers come a whole batch at a time. So what is said of them at a moment is of a span around it, of a whole number
    of the longest batches: two or more, and `AROUND_S` at least.

    Attributes:
        p50_s, p95_s: of the requests answered around then.
        waiting: in the queue or sealed at that moment.
        present: these and those that run.
        requests_per_s, tokens_per_s: answered around then.
    """

    p50_s: Floats
    p95_s: Floats
    waiting: Floats
    present: Floats
    requests_per_s: Floats
    tokens_per_s: Floats

    @classmethod
    def of(cls, run: SimulatedRun, until_s: float) -> Course:
        moments = np.arange(0.0, until_s + STEP_S / 2, STEP_S)
        answered = [r for r in run.requests if not r.refused and r.answered_s is not None]
        answered_s = np.array([_answered_s(r) for r in answered])
        latency_s = answered_s - np.array([r.arrival.intended_s for r in answered])
        tokens = np.array([r.arrival.tokens for r in answered], float)
        longest_s = max((batch.finished_s - max(batch.started_s, 0.0) for batch in run.batches), default=0.0)
        batches = math.ceil(max(BATCHES_AROUND, AROUND_S / longest_s)) if longest_s else 0
        half_s = (batches * longest_s or AROUND_S) / 2
        begins, stops = np.maximum(moments - half_s, 0.0), np.maximum(moments, STEP_S) + half_s
        around = (answered_s > begins[:, None]) & (answered_s <= stops[:, None])
        p50_s, p95_s = np.array([percentiles(latency_s[each]) for each in around]).T
        rates = (around @ each / (stops - begins) for each in (np.ones(len(answered)), tokens))
        return cls(p50_s, p95_s, waiting_at(run, moments), present_at(run, moments), *rates)


def waiting_at(run: SimulatedRun, times_s: Floats) -> Floats:
    """How many requests stood in the queue or in a sealed batch at these times."""
    return _between(run, times_s, lambda request: request.started_s)


def present_at(run: SimulatedRun, times_s: Floats) -> Floats:
    """How many requests waited or ran at these times."""
    return _between(run, times_s, lambda request: request.finished_s)


def _between(run: SimulatedRun, times_s: Floats, end_of: Callable[[SimulatedRequest], float | None]) -> Floats:
    """How many requests had been enqueued and had not come to their `end_of`."""
    accepted = [request for request in run.requests if not request.refused]
    ends = (end_of(request) for request in accepted)
    begun_s = np.sort([request.enqueued_s for request in accepted])
    ended_s = np.sort([math.inf if end_s is None else end_s for end_s in ends])
    within = np.searchsorted(begun_s, times_s, "right") - np.searchsorted(ended_s, times_s, "right")
    result: Floats = within.astype(float)
    return result


def waiting_of_nine_tenths(run: SimulatedRun, begin_s: float, end_s: float) -> float:
    """How many wait at most in nine tenths of that time."""
    return float(np.percentile(waiting_at(run, np.linspace(begin_s, end_s, MOMENTS)), 90.0))
