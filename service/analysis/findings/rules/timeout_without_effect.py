"""Requests are always waiting when the engine comes free, so the timeout never runs out."""

from __future__ import annotations

from service.analysis.findings.facts import MOSTLY, Facts, Finding, share
from service.analysis.findings.recent import AT_ONCE_S


def find(facts: Facts) -> Finding | None:
    if not facts.has_batches or facts.timeout_s <= AT_ONCE_S or not facts.is_late:
        return None
    at_once = share(facts.batches.held <= AT_ONCE_S)
    if at_once < MOSTLY or not facts.full_share:
        return None
    return Finding(
        "timeout_without_effect",
        "info",
        "batch_wait_timeout_s has no effect",
        evidence="A full batch was waiting whenever the engine came free.",
        data={"at_once_share": at_once, "full_share": facts.full_share},
    )
