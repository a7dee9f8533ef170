"""The queue grows without bound: more requests come than leave, all the time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from service.analysis.findings.facts import MOSTLY, Facts, Finding, advise_larger_cap
from service.messages.text import seconds

LEAST_S = 5.0
LEAST_STARTS = 3
LEAST_GROWTH = 6.0
SIGMAS = 2.5  # of the chance difference between arrivals and answers over the span


@dataclass(frozen=True)
class Growth:
    """The change of the queue from `begin` to `end` requests, and its pace."""

    begin: float
    end: float
    span_s: float
    per_s: float


def growth(facts: Facts) -> Growth | None:
    """The growth of the queue; ``None`` where it stays bounded or may do so.

    A bounded queue swings with every batch, and a long batch lets it rise for long. So the measure is the number of
    requests that batches leave behind when they start, since they take all that they can.
    """
    span_s = facts.at_s - facts.steady_since_s
    if facts.is_bounded_load or span_s < LEAST_S:
        return None
    queue = facts.steady_queues.total
    grown = float(queue[-1] - queue[0])
    if grown < max(LEAST_GROWTH, SIGMAS * math.sqrt(facts.steady_arrivals)) or not _leave_more_and_more(facts, grown):
        return None
    return Growth(float(queue[0]), float(queue[-1]), span_s, grown / span_s)


def _leave_more_and_more(facts: Facts, grown: float) -> bool:
    started = np.sort(facts.history.batches.columns["started"])
    begin, end = np.searchsorted(started, [facts.steady_since_s, facts.at_s], "right")
    queues = facts.steady_queues
    moments = np.searchsorted(queues.at_s, started[begin:end]).clip(max=len(queues.at_s) - 1)
    left = queues.total[moments]
    if len(left) < LEAST_STARTS:
        return grown > 2 * facts.settings.max_batch_size * facts.replicas  # more than the next batches can take
    first, second = (float(half.mean()) for half in np.array_split(left, 2))
    return second - first >= grown / 4 and bool(left[-1] >= MOSTLY * left.max())


def find(facts: Facts) -> Finding | None:
    grown = growth(facts)
    if grown is None:
        return None
    limit = facts.settings.max_queued_requests * facts.replicas
    left_s = max(limit - grown.end, 0) / grown.per_s
    end = f"At this pace the limit of {limit} is reached in {seconds(left_s)}." if left_s else "Its limit is reached."
    advice, control = advise_larger_cap(facts)
    if facts.settings.formation == "early":
        advice, control = "Set formation to late, so that batches grow with the queue.", "formation"
    return Finding(
        "queue_grows",
        "warning",
        "The queue grows without bound",
        evidence=f"From {grown.begin:.0f} to {grown.end:.0f} requests in {seconds(grown.span_s)}, by {grown.per_s:.1f} "
        f"a second. {end}",
        data={
            "begin": grown.begin,
            "end": grown.end,
            "span_s": grown.span_s,
            "growth_per_s": grown.per_s,
            "limit": limit,
            "full_in_s": left_s,
        },
        advice=advice,
        control=control,
    )
