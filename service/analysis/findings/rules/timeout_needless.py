"""Formation `continuous`: a free engine waits for company that could join anyway."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import Facts
from service.analysis.findings.finding import Finding
from service.analysis.findings.rules.timeout_too_long import LEAST_LOSS_S, LEAST_LOSS_SHARE
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
    if held < MANY * begun or not len(facts.latencies_s):
        return None
    p50_s = float(np.median(facts.latencies_s))
    return Finding(
        rule="timeout_needless",
        severity="warning" if timeout_s >= max(LEAST_LOSS_S, LEAST_LOSS_SHARE * p50_s) else "info",
        title="The timeout holds requests for nothing",
        evidence=f"{held} of the last {counted(begun, 'request')} found the engine free and were held up to "
        f"{timeout_s:.3f} s for others.",
        data={"held": held, "begun": begun, "batch_wait_timeout_s": timeout_s, "latency_p50_s": p50_s},
        advice="Set batch_wait_timeout_s to 0: who comes later joins at the next step.",
        control="batch_wait_timeout_s",
    )
