"""The load generator sends late or drops arrivals, so the figures describe it rather than the service."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import Facts, Finding
from service.messages.load import spoiling_lag_ms
from service.messages.text import counted, percent

LEAST_REQUESTS = 10
LAG_ALONE_MS = 50.0  # spoils where no latency is known


def find(facts: Facts) -> Finding | None:
    lag_ms, dropped, p50_s = _lag_p99_ms(facts), _dropped(facts), facts.latency_p50_s
    is_late = lag_ms > (spoiling_lag_ms(p50_s) if p50_s else LAG_ALONE_MS)
    if not is_late and not dropped:
        return None
    evidence = []
    if is_late:
        compared = f", {percent(lag_ms / 1e3 / p50_s)} of the median latency" if p50_s else ""
        evidence.append(f"1 of 100 requests was sent {lag_ms:.0f} ms late or more{compared}.")
    if dropped:
        evidence.append(f"{counted(dropped, 'arrival')} were dropped at the cap on outstanding requests.")
    return Finding(
        "generator_lags",
        "warning",
        "The load generator is the bottleneck",
        evidence=" ".join(evidence),
        data={"lag_p99_ms": lag_ms, "dropped": dropped, "latency_p50_ms": 1e3 * (p50_s or 0.0)},
        advice="Lower the rate, raise the cap on outstanding requests, or send from another machine; until then the "
        "figures are better than the truth.",
    )


def _lag_p99_ms(facts: Facts) -> float:
    """The lag of the requests themselves, or the generator's own report where too few are known; 0 where both lack."""
    if len(facts.lag_s) >= LEAST_REQUESTS:
        return float(np.percentile(facts.lag_s, 99.0)) * 1e3
    load = facts.history.statuses.load
    lately = load["lag_ms"][(load["at"] > facts.since_s) & (load["at"] <= facts.at_s) & np.isfinite(load["lag_ms"])]
    return float(lately[-1]) if len(lately) else 0.0


def _dropped(facts: Facts) -> int:
    """Arrivals dropped since the beginning of the span."""
    load = facts.history.statuses.load
    before, until = np.searchsorted(load["at"], [facts.since_s, facts.at_s], "right")
    dropped = load["dropped"][max(before - 1, 0) : until]
    return max(int(dropped[-1] - dropped[0]), 0) if len(dropped) else 0
