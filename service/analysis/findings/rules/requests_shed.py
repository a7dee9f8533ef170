"""The queue was full, so requests were refused with 503."""

from __future__ import annotations

from service.analysis.findings.facts import Facts, Finding
from service.messages.text import percent


def find(facts: Facts) -> Finding | None:
    if not facts.refused:
        return None
    limit = facts.settings.max_queued_requests
    return Finding(
        "requests_shed",
        "warning",
        "Requests are refused",
        evidence=f"{facts.refused} of the last {facts.received} ({percent(facts.refused / facts.received)}) found the "
        f"queue of {limit} full.",
        data={"refused": facts.refused, "received": facts.received, "max_queued_requests": limit},
        advice="Raise max_queued_requests if these come in bursts. Where more arrive than the engine can do, a longer "
        "queue only makes all wait longer.",
        control="max_queued_requests",
    )
