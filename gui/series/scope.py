"""What the distributions count: the window of the plots, cut at changes of settings so that its sides never mix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.observed.batches import Regime
from service.analysis.observed.columns import Bools, Floats, Ints
from service.analysis.observed.history import History
from service.analysis.observed.requests import samples_between


@dataclass(frozen=True)
class Scope:
    """A span of time and the one version of the settings that counts in it."""

    start_s: float
    end_s: float
    regime: int
    version: int | None

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s

    def contains(self, times: Floats, regimes: Ints) -> Bools:
        """Which of these moments lie in (start, end] and under its settings."""
        within: Bools = (times > self.start_s) & (times <= self.end_s) & (regimes == self.regime)
        return within


def present_scope(history: History, end_s: float, window_s: float) -> Scope | None:
    """What of the window that ends at `end_s` was under the settings that held at its end."""
    if history.first_s is None or history.last_s is None:
        return None
    end_s = min(end_s, history.outages.failed_since_s or end_s, history.last_s)
    regime = history.batches.regime_at(end_s)
    if regime is None:
        return Scope(max(end_s - window_s, history.first_s), end_s, 0, None)
    return _scope(history, regime, end_s, window_s)


def scope_before(history: History, scope: Scope, window_s: float) -> Scope | None:
    """As much of the settings before as the window is long; ``None`` where these were the first."""
    regime = next((each for each in history.batches.regimes if each.number == scope.regime), None)
    previous = history.batches.regime_before(regime) if regime is not None else None
    if regime is None or previous is None:
        return None
    return _scope(history, previous, regime.start_s, window_s)


def latencies_in(history: History, scope: Scope, name: str = "latency") -> Floats:
    """Seconds from intended send to answer, or the time of that name, of the requests answered there, rising."""
    _, values, regime = samples_between(history.requests.samples, scope.start_s, scope.end_s, name)
    return np.sort(values[regime == scope.regime])


def _scope(history: History, regime: Regime, end_s: float, window_s: float) -> Scope:
    begun_s = regime.start_s if regime.mark is not None else history.first_s or regime.start_s
    return Scope(max(end_s - window_s, begun_s), end_s, regime.number, regime.version)
