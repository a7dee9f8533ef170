"""Formation `continuous`: a free engine waits for requests that could join a running batch anyway."""

from __future__ import annotations

from service.analysis.findings.facts import Facts, Finding
from service.messages.text import counted

MANY = 0.3
LEAST_REQUESTS = 5


def find(facts: Facts) -> Finding | None:
    timeout_s, begun = facts.timeout_s, len(facts.begun)
    if not facts.is_continuous or not timeout_s or begun < LEAST_REQUESTS:
        return None
    batches = facts.batches
    waited = batches.released("timeout") & (batches.held >= 0.9 * timeout_s)
    held = int(batches.size[waited].sum())
    if held < MANY * begun or facts.latency_p50_s is None:
        return None
    return Finding(
        "timeout_needless",
        "warning" if facts.is_felt(timeout_s) else "info",
        "The timeout holds requests for nothing",
        evidence=f"{held} of the last {counted(begun, 'request')} found the engine free and were held up to "
        f"{timeout_s:.3f} s for others.",
        data={"held": held, "begun": begun, "batch_wait_timeout_s": timeout_s, "latency_p50_s": facts.latency_p50_s},
        advice="Set batch_wait_timeout_s to 0: a later request joins at the next step.",
        control="batch_wait_timeout_s",
    )
