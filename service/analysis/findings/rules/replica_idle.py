"""A replica has nothing to do while requests queue at another."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import Facts, Finding
from service.messages.text import percent

MUCH = 0.2


def find(facts: Facts) -> Finding | None:
    queues = facts.queues
    if np.count_nonzero(queues.is_present) < 2:
        return None
    idle = queues.idle_while_others_queue
    shares = idle.mean(axis=1)
    slot = int(np.argmax(shares))
    if shares[slot] < MUCH:
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
