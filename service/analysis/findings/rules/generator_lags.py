"""The load generator sends late or drops arrivals, so the figures tell of it rather than of the service."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import Facts
from service.analysis.findings.finding import Finding
from service.messages.load import spoiling_lag_ms
from service.messages.text import counted, percent

LEAST_REQUESTS = 10
LAG_ALONE_MS = 50.0  # spoils where no latency is known


def find(facts: Facts) -> Finding | None:
    lag_ms, dropped = _lag_p99_ms(facts), _dropped(facts)
    p50_ms = float(np.median(facts.latencies_s)) * 1e3 if len(facts.latencies_s) else None
    is_late = lag_ms is not None and lag_ms > (spoiling_lag_ms(p50_ms / 1e3) if p50_ms else LAG_ALONE_MS)
    if not is_late and not dropped:
        return None
    evidence = []
    if is_late and lag_ms is not None:
        compared = f", {percent(lag_ms / p50_ms)} of the median latency" if p50_ms else ""
        evidence.append(f"1 of 100 requests was sent {lag_ms:.0f} ms late or more{compared}.")
    if dropped:
        evidence.append(f"{counted(dropped, 'arrival')} were dropped at the cap on outstanding requests.")
    return Finding(
        rule="generator_lags",
        severity="warning",
        title="The load generator is the bottleneck",
        evidence=" ".join(evidence),
        data={"lag_p99_ms": lag_ms or 0.0, "dropped": dropped, "latency_p50_ms": p50_ms or 0.0},
        advice="Lower the rate, raise the cap on outstanding requests, or send from another machine; until then the "
        "figures are better than the truth.",
    )


def _lag_p99_ms(facts: Facts) -> float | None:
    """From the requests themselves; what the generator says of itself where too few are known."""
    if len(facts.lag_s) >= LEAST_REQUESTS:
        return float(np.percentile(facts.lag_s, 99.0)) * 1e3
    said = facts.history.statuses.load
    lately = said["lag_ms"][(said["at"] > facts.since_s) & (said["at"] <= facts.at_s) & np.isfinite(said["lag_ms"])]
    return float(lately[-1]) if len(lately) else None


def _dropped(facts: Facts) -> int:
    """Arrivals dropped since the beginning of the span."""
    said = facts.history.statuses.load
    before, until = np.searchsorted(said["at"], [facts.since_s, facts.at_s], "right")
    dropped = said["dropped"][max(before - 1, 0) : until]
    return max(int(dropped[-1] - dropped[0]), 0) if len(dropped) else 0
