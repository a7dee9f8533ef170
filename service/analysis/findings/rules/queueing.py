"""Rules on requests that wait, are refused or hang: whether that lasts, and what it comes from."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from service.analysis.findings.facts import LEAST_BATCHES, MOSTLY, Facts, Finding
from service.analysis.findings.mend import Advice, carry_load, form_late
from service.analysis.findings.recent import trend
from service.messages.text import clock_text, counted, percent, seconds

LEAST_GROWTH_S = 5.0
LEAST_GROWTH = 6.0
LEAST_STARTS = 3
MUCH_IDLE = 0.2
FIFTHS = 5  # the queue at the begin and the end is the median of a fifth of the time
AT_LIMIT = 0.95  # of the places in the queue
SIGMAS = 2.5  # of the chance difference between arrivals and answers over the span
LONG_WAIT_S = 5.0


def queue_grows(facts: Facts) -> Finding | None:
    """The queue grows without bound: more requests come than leave, all the time.

    A bounded queue swings with every batch, and a long batch lets it rise for long. So the trend has to show also in
    the number of requests that batches leave behind when they start, since they take all that they can.
    """
    span_s = facts.at_s - facts.steady_since_s
    if facts.is_bounded_load or span_s < LEAST_GROWTH_S:
        return None
    queues, limit = facts.steady_queues, facts.settings.max_queued_requests * facts.replicas
    first, *_, last = np.array_split(np.stack([queues.at_s, queues.total]), FIFTHS, axis=1)
    (begin_s, begin), (end_s, end) = np.median(first, axis=1).tolist(), np.median(last, axis=1).tolist()
    if end >= AT_LIMIT * limit:
        return None  # it cannot grow: further requests are refused
    grown = trend(queues.at_s, queues.total) * span_s
    if grown < max(LEAST_GROWTH, SIGMAS * math.sqrt(facts.steady_arrivals)) or not _leave_more_and_more(facts, grown):
        return None
    growth_per_s = (end - begin) / (end_s - begin_s)
    if growth_per_s <= 0:
        return None
    left_s = max(limit - end, 0) / growth_per_s
    advice = form_late(facts) if facts.settings.formation == "early" else carry_load(facts)
    is_known = not facts.history.server  # another server may have no limit
    full = f" At this pace the limit of {limit} is reached in {seconds(left_s)}." if is_known else ""
    return Finding(
        "queue_grows",
        "warning",
        "The queue grows without bound",
        evidence=f"It grew from {begin:.0f} to {end:.0f} requests in {seconds(end_s - begin_s)}, by {growth_per_s:.1f} "
        f"a second.{full}",
        data={
            "begin": begin,
            "end": end,
            "span_s": end_s - begin_s,
            "growth_per_s": growth_per_s,
            **({"limit": limit, "full_in_s": left_s} if is_known else {}),
        },
        **asdict(advice),
    )


def _leave_more_and_more(facts: Facts, grown: float) -> bool:
    started = np.sort(facts.history.batches.columns["started"])
    begin, end = np.searchsorted(started, [facts.steady_since_s, facts.at_s], "right")
    queues, begun_s = facts.steady_queues, started[begin:end]
    left = queues.total[np.searchsorted(queues.at_s, begun_s).clip(max=len(queues.at_s) - 1)]
    if len(left) < LEAST_STARTS:
        return grown > 2 * facts.settings.max_batch_size * facts.replicas  # more than the next batches can take
    span_s = facts.at_s - facts.steady_since_s
    return trend(begun_s, left) * span_s >= grown / 2 and bool(left[-1] >= MOSTLY * left.max())


def requests_shed(facts: Facts) -> Finding | None:
    """The queue was full, so requests were refused with 503."""
    refused, received = facts.refused
    if not refused:
        return None
    limit = facts.settings.max_queued_requests
    return Finding(
        "requests_shed",
        "warning",
        "Requests are refused",
        evidence=f"{refused} of the last {received} ({percent(refused / received)}) found the queue of {limit} full.",
        data={"refused": refused, "received": received, "max_queued_requests": limit},
        advice="Raise max_queued_requests if these come in bursts. Where more arrive than the engine can do, a longer "
        "queue only makes all wait longer.",
        control="max_queued_requests",
    )


def requests_wait(facts: Facts) -> Finding | None:
    """Requests wait long, and no other rule says what for; often the batches are too few to judge by.

    The sentence stands for a second, in which the queue changes: so it says of which moment it is.
    """
    columns = facts.history.requests.columns
    queued = columns["queued"]
    waits = (queued <= facts.at_s) & (np.minimum(columns["started"], columns["finished"]) > facts.at_s)
    count = int(np.count_nonzero(waits))
    knows_cap = facts.history.knows_cap
    if not count or (facts.has_batches and knows_cap and facts.waiting < facts.cap * facts.places):
        return None
    oldest_s = facts.at_s - float(queued[waits].min())
    if oldest_s < LONG_WAIT_S:
        return None
    batches, title = facts.batches, "Requests wait long"
    held = f"{batches.mean_size:.1f} of {facts.cap}" if knows_cap else f"{batches.mean_size:.1f}"
    known = f"The last {counted(len(batches), 'batch')} held {held} requests on average"
    if not facts.has_batches:
        title = "Requests wait, and why cannot be judged yet"
        known = f"{counted(len(batches), 'batch')} of the {LEAST_BATCHES} that a judgement takes so far"
    return Finding(
        "requests_wait",
        "warning",
        title,
        evidence=f"At {clock_text(facts.history.wall_time(facts.at_s))} {counted(count, 'request')} waited, the oldest "
        f"for {seconds(oldest_s)}. {known}{_still_ran(facts)}.",
        data={"waiting": count, "oldest_s": oldest_s, "batches": len(batches)},
        **asdict(_shorten_wait(facts)),
    )


def _still_ran(facts: Facts) -> str:
    batches = facts.batches
    runs = np.isnan(batches.finished) & (batches.started < facts.at_s)
    if not runs.any():
        return ""
    return f"; {counted(int(runs.sum()), 'batch')} had run for {seconds(float(batches.run_s[runs].max()))} by then"


def _shorten_wait(facts: Facts) -> Advice:
    settings = facts.settings
    if settings.max_batch_tokens and facts.batches.mean_size < facts.cap:
        expected = "Batches then hold as many requests as max_batch_size lets them."
        return Advice.of(facts, settings.revised({"max_batch_tokens": 0}), expected)
    return Advice("Ask for fewer tokens (max_tokens) so that batches take less time, or send less.")


def replica_lost(facts: Facts) -> Finding | None:
    """A replica ended unasked, and nothing has taken its place."""
    lost = [outage for outage in facts.history.outages if outage.is_loss and outage.lasts_at(facts.at_s)]
    if not lost:
        return None
    columns = facts.history.requests.columns
    begun = np.minimum(columns["sent"], columns["received"])
    open_ = (begun <= facts.at_s) & (np.minimum(columns["finished"], columns["client_finished"]) > facts.at_s)
    count, since_s = int(np.count_nonzero(open_)), facts.at_s - min(outage.start_s for outage in lost)
    left = int(np.count_nonzero(facts.queues.is_present))
    rest = f"{counted(left, 'replica')} is left." if left == 1 else f"{left or 'No'} replicas are left."
    hang = f"{counted(count, 'request')} {'is' if count == 1 else 'are'} under way."
    return Finding(
        "replica_lost",
        "warning",
        "A replica is lost" if len(lost) == 1 else f"{len(lost)} replicas are lost",
        evidence=f"{' and '.join(outage.text.removesuffix(' lost') for outage in lost)} ended "
        f"{seconds(since_s)} ago. {rest} {hang}",
        data={"lost": len(lost), "left": left, "under_way": count, "since_s": since_s},
        advice="Ray starts another, which has to load the model first. The log says why it ended.",
    )


def replica_idle(facts: Facts) -> Finding | None:
    """A replica has nothing to do while requests queue at another."""
    queues = facts.queues
    if np.count_nonzero(queues.is_present) < 2:
        return None
    queueing = ((queues.waiting > 0) & (queues.running > 0)).any(axis=0)  # requests behind a batch that runs
    idle = (queues.waiting == 0) & (queues.running == 0) & queues.is_present[:, None] & queueing
    shares = idle.mean(axis=1)
    slot = int(np.argmax(shares))
    if shares[slot] < MUCH_IDLE:
        return None
    longest = queues.waiting[:, idle[slot]].max(axis=1)
    other = int(np.argmax(longest))
    idle_name, busy_name = (facts.history.slots.name_of(n) for n in (slot, other))
    return Finding(
        "replica_idle",
        "warning",
        "A replica idles while another queues",
        evidence=f"{idle_name} had nothing to do {percent(shares[slot])} of the time while up to {longest[other]} "
        f"requests waited at {busy_name}.",
        data={"idle_share": float(shares[slot]), "longest_queue": int(longest[other])},
        advice="A request stays with the replica it was given to. Raise max_batch_size so that the busy one takes its "
        "queue at once, or run one replica on the whole machine.",
        control="max_batch_size",
    )
