"""Work is always waiting when the engine comes free, so nobody waits for the timeout."""

from __future__ import annotations

from service.analysis.findings.facts import MOSTLY, Facts, share
from service.analysis.findings.finding import Finding
from service.analysis.findings.recent import AT_ONCE_S


def find(facts: Facts) -> Finding | None:
    timeout_s = facts.timeout_s
    if not facts.has_batches or timeout_s <= AT_ONCE_S or facts.settings.formation != "late":
        return None
    at_once = share(facts.batches.held <= AT_ONCE_S)
    if at_once < MOSTLY or not facts.full_share:
        return None
    return Finding(
        rule="timeout_without_effect",
        severity="info",
        title="batch_wait_timeout_s has no effect",
        evidence="A full batch was waiting whenever the engine came free.",
        data={"at_once_share": at_once, "full_share": facts.full_share},
    )
