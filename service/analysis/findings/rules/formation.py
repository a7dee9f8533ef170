"""Rules on how batches are formed: too early, too late, or beside places that stand empty."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from service.analysis.findings.facts import MOSTLY, WORTH_IT, Facts, Finding, share
from service.analysis.findings.mend import Advice, form_late
from service.analysis.findings.recent import AT_ONCE_S, RecentBatches
from service.analysis.findings.rules.queueing import queue_grows
from service.analysis.observed.columns import Bools
from service.messages.settings import LONGEST_WAIT_S
from service.messages.text import counted, percent, seconds
from service.messages.workload import TEXT

LEAST_SEALED = 3
LEAST_HELD = 2  # of half a minute: a batch that waits to be full may take a third of that
LEAST_SHARED = 2
MUCH_VACANT = 0.25
LEAST_REQUESTS = 10
LEAST_WAIT_S = 0.1
LONG_WAIT = 0.4  # of the time to the first token


def sealed_early(facts: Facts) -> Finding | None:
    """Formation `early`: batches are sealed while the engine is busy, and can no longer grow."""
    batches = facts.batches
    if facts.settings.formation != "early" or len(batches) < LEAST_SEALED or facts.full_share >= MOSTLY:
        return None
    waited = batches.sealed > AT_ONCE_S
    if share(waited) < 0.5:
        return None
    sealed_s, is_least = _median_wait(batches, waited)
    previous = facts.previous_batches
    before = f"{previous.mean_size:.1f} → " if previous is not None and len(previous) else ""
    growth = queue_grows(facts)
    grows = "" if growth is None else f" The queue grows by {growth.data['growth_per_s']:.1f} requests a second."
    return Finding(
        "sealed_early",
        "warning",
        "Batches are sealed too early",
        evidence=f"{np.count_nonzero(waited)} of {counted(len(batches), 'batch')} were sealed while the engine was "
        f"busy and waited {'at least ' if is_least else ''}{seconds(sealed_s)} for it (median), unable to grow. Mean "
        f"batch {before}{batches.mean_size:.1f} of {facts.cap}.{grows}",
        data={
            "batches": len(batches),
            "sealed_while_busy": int(np.count_nonzero(waited)),
            "sealed_wait_p50_s": sealed_s,
            "mean_batch": batches.mean_size,
            "waiting": facts.waiting,
        },
        **asdict(form_late(facts)),
    )


def _median_wait(batches: RecentBatches, chosen: Bools) -> tuple[float, bool]:
    """The median of what these batches wait, and whether it is no more than a lower bound.

    A batch that still waits has an age, not yet a wait; Kaplan and Meier's estimate takes both as what they are.
    """
    from scipy.stats import CensoredData, ecdf  # slow to import, and not needed for the window's start

    waits = chosen & (batches.started >= batches.until_s)
    begun = chosen & ~waits
    if not begun.any():
        return float(np.median(batches.sealed[waits])), True
    left = ecdf(CensoredData(uncensored=batches.sealed[begun], right=batches.sealed[waits])).sf
    below = np.flatnonzero(left.probabilities <= 0.5)
    return (float(left.quantiles[below[0]]), False) if len(below) else (float(left.quantiles[-1]), True)


def held_back(facts: Facts) -> Finding | None:
    """A free engine holds batches back because they may not leave small, or only on a tick."""
    batches, settings = facts.earlier_batches, facts.settings
    if (settings.allow_small_batch and not settings.stride_s) or len(batches) < LEAST_HELD:
        return None
    held_s = float(np.maximum(batches.started - batches.ready, 0.0).mean())
    if not facts.is_felt(held_s):
        return None
    small = int(np.count_nonzero(batches.size < batches.cap))
    change: dict[str, object]
    if settings.allow_small_batch:
        change, title = {"stride_s": 0.0}, "Batches wait for their tick"
        why = f": they leave every {settings.stride_s:g} s at most."
        advice = "Set stride_s to 0, and batches leave as soon as they may."
    else:
        change, title = {"allow_small_batch": True}, "Batches wait to be full"
        why = f"; {small} of them were not full after {LONGEST_WAIT_S:g} s." if small else "."
        advice = "Switch allow_small_batch on, or lower max_batch_size to the number of requests that come together."
    return Finding(
        "held_back",
        "warning",
        title,
        evidence=f"The last {counted(len(batches), 'batch')} could have run {seconds(held_s)} earlier, with fewer "
        f"requests{why}",
        data={"batches": len(batches), "small": small, "held_s": held_s, "stride_s": settings.stride_s},
        advice=advice,
        control=next(iter(change)),
        change=change,
        expected=f"Answers about {seconds(held_s)} earlier.",
    )


def stragglers(facts: Facts) -> Finding | None:
    """One long member keeps the places of members that ended before it."""
    batches = facts.earlier_batches
    known = (batches.steps > 0) & (batches.size > 1)
    count = int(np.count_nonzero(known))
    if count < LEAST_SHARED:
        return None
    places = batches.steps[known] * batches.size[known]
    vacant = float(batches.vacant[known].sum() / places.sum())
    if vacant < MUCH_VACANT:
        return None
    lost_s = float((batches.finished - batches.started)[known].sum() * vacant)
    waiting = float(facts.queues.total.mean())
    queued = f" while {waiting:.1f} requests waited" if waiting >= 1 else ""
    return Finding(
        "stragglers",
        "warning" if waiting >= 1 else "info",
        "Stragglers hold their batches",
        evidence=f"In the last {counted(count, 'batch')} {percent(vacant)} of the places stood empty because one "
        f"member ran on{queued}: as much as {seconds(lost_s)} of the engine.",
        data={"batches": count, "vacant_share": vacant, "lost_s": lost_s, "mean_waiting": waiting},
        advice="Set formation to continuous: others then take these places. Else ask for completions of more equal "
        "length (max_tokens).",
        control="formation",
        change={"formation": "continuous"},
        expected=_gain(facts),
    )


def _gain(facts: Facts) -> str:
    now, then = (facts.rate(facts.settings.revised({"formation": name})) for name in ("late", "continuous"))
    if now is None or then is None or then.per_s <= WORTH_IT * now.per_s:
        return "How much that gives is not known before it has run."
    return f"Up to {then.words} instead of {now.per_s:.1f}."


def waits_for_batch(facts: Facts) -> Finding | None:
    """Formation `late`: requests wait for a running batch to end although it had room for them."""
    if not facts.is_late or len(facts.begun) < LEAST_REQUESTS or facts.full_share >= MOSTLY:
        return None
    columns, batches = facts.history.requests.columns, facts.batches
    batch, queued, first_token = (columns[name][facts.begun] for name in ("batch", "queued", "first_token"))
    free = dict(zip(batches.row.tolist(), batches.free.tolist(), strict=True))
    free_s = np.array([free.get(row, np.nan) for row in batch.tolist()])
    wait_s, first_s = np.maximum(free_s - queued, 0.0), first_token - queued  # wait_s: until the engine was free
    known = np.isfinite(wait_s) & np.isfinite(first_s)
    if np.count_nonzero(known) < LEAST_REQUESTS:
        return None
    waits_s, firsts_s = wait_s[known], np.maximum(first_s[known], 1e-9)
    wait_p50_s, part = float(np.median(waits_s)), float(np.median(waits_s / firsts_s))
    if wait_p50_s < LEAST_WAIT_S or part < LONG_WAIT:
        return None
    mean_size = batches.mean_size
    generates = facts.history.unit == TEXT.unit
    result = "first token" if generates else "result"
    advice = Advice("")  # for a function, which is called for whole batches: no request can join one that runs
    if generates:
        step = f", of {seconds(facts.cost.step_s + facts.cost.row_s * mean_size)} each" if facts.cost else ""
        advice = Advice(
            f"Set formation to continuous: they then join the running batch at the next step{step}.",
            "formation",
            {"formation": "continuous"},
            f"Half of the first tokens about {seconds(wait_p50_s)} earlier or more.",
        )
    return Finding(
        "waits_for_batch",
        "info",
        "Requests wait for the batch before theirs",
        evidence=f"Half of them waited {seconds(wait_p50_s)} or more for it to end, and for half this was "
        f"{percent(part)} or more of the time to their {result}. It held {mean_size:.1f} of {facts.cap} requests on "
        "average.",
        data={
            "wait_p50_s": wait_p50_s,
            "wait_share_p50": part,
            "mean_batch": mean_size,
            "max_batch_size": facts.cap,
        },
        **asdict(advice),
    )
