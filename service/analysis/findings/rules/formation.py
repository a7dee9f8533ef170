"""Rules on how batches are formed: too early, too late, or beside places that stand empty."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import MOSTLY, WORTH_IT, Facts, Finding, share
from service.analysis.findings.recent import AT_ONCE_S
from service.messages.settings import LONGEST_WAIT_S
from service.messages.text import counted, per_second, percent, seconds
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
    sealed_s = float(np.median(batches.sealed[waited]))
    previous = facts.previous_batches
    before = f"{previous.mean_size:.1f} → " if previous is not None and len(previous) else ""
    capacity, offered = facts.capacity_per_s(facts.cap), facts.offered_per_s
    headroom = ""
    if capacity is not None and offered is not None and offered < capacity:
        used = percent(offered / capacity)
        headroom = f" At batch {facts.cap} {per_second(offered)} would be {used} of what the engine can do."
    return Finding(
        "sealed_early",
        "warning",
        "Batches are sealed too early",
        evidence=f"{np.count_nonzero(waited)} of {counted(len(batches), 'batch')} were sealed while the engine was "
        f"busy and waited {seconds(sealed_s)} for it, unable to grow. Mean batch {before}{batches.mean_size:.1f} of "
        f"{facts.cap}.",
        data={
            "batches": len(batches),
            "sealed_while_busy": int(np.count_nonzero(waited)),
            "sealed_wait_p50_s": sealed_s,
            "mean_batch": batches.mean_size,
            "waiting": facts.waiting,
        },
        advice=f"Set formation to late: batches then form when the engine is free.{headroom}",
        control="formation",
    )


def held_back(facts: Facts) -> Finding | None:
    """A free engine holds batches back because they may not leave small, or only on a tick."""
    batches, settings = facts.earlier_batches, facts.settings
    if (settings.allow_small_batch and not settings.stride_s) or len(batches) < LEAST_HELD:
        return None
    held_s = float(np.maximum(batches.started - batches.ready, 0.0).mean())
    if not facts.is_felt(held_s):
        return None
    small = int(np.count_nonzero(batches.size < batches.cap))
    if settings.allow_small_batch:
        control, title = "stride_s", "Batches wait for their tick"
        why = f": they leave every {settings.stride_s:g} s at most."
        advice = "Set stride_s to 0, and batches leave as soon as they may."
    else:
        control, title = "allow_small_batch", "Batches wait to be full"
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
        control=control,
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
        advice=f"Set formation to continuous: others then take these places{_gain(facts)}. Else ask for completions of "
        "more equal length (max_tokens).",
        control="formation",
    )


def _gain(facts: Facts) -> str:
    now_per_s = facts.capacity_per_s(facts.cap)
    if facts.cost is None or now_per_s is None:
        return ""
    then_per_s = facts.cost.under("continuous").capacity(facts.cap, facts.replicas).requests_per_s
    if then_per_s <= WORTH_IT * now_per_s:
        return ""
    return f", and the engine could answer {per_second(then_per_s)} instead of {now_per_s:.1f}"


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
    wait_p50_s, first_p50_s = (float(np.median(values[known])) for values in (wait_s, first_s))
    if wait_p50_s < max(LEAST_WAIT_S, LONG_WAIT * first_p50_s):
        return None
    mean_size = batches.mean_size
    generates = facts.history.unit == TEXT.unit
    result = "first token" if generates else "result"
    advice = ""  # for a function, which is called for whole batches: no request can join one that runs
    if generates:
        each = f", of {seconds(facts.cost.step_s + facts.cost.row_s * mean_size)} each" if facts.cost else ""
        advice = f"Set formation to continuous: they then join the running batch at the next step{each}."
    return Finding(
        "waits_for_batch",
        "info",
        "Requests wait for the batch before theirs",
        evidence=f"Half of them waited {seconds(wait_p50_s)} or more for it to end, of {seconds(first_p50_s)} to their "
        f"{result}, while it held {mean_size:.1f} of {facts.cap} requests on average.",
        data={
            "wait_p50_s": wait_p50_s,
            "first_token_p50_s": first_p50_s,
            "mean_batch": mean_size,
            "max_batch_size": facts.cap,
        },
        advice=advice,
        control="formation" if generates else None,
    )
