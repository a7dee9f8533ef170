"""What the engine's time went into: reading prompts, decoding, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gui.series.declaration import Entry, Readout
from gui.series.scope import Scope
from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History

ENTRIES: Final = tuple(Entry(name, "none", "t2") for name in ("engine reads prompts", "decodes", "idle"))


@dataclass(frozen=True)
class EngineTime:
    """Shares of the time of all engines; what is left is idle."""

    prefill: float
    decode: float

    @property
    def idle(self) -> float:
        return max(1.0 - self.prefill - self.decode, 0.0)

    @property
    def readout(self) -> Readout:
        """
        >>> EngineTime(0.18, 0.7).readout
        {'engine reads prompts': '18 %', 'decodes': '70 %', 'idle': '12 %'}
        """
        shares = (self.prefill, self.decode, self.idle)
        return {entry.name: f"{100 * share:.0f} %" for entry, share in zip(ENTRIES, shares, strict=True)}


def engine_time(history: History, scope: Scope) -> EngineTime | None:
    """Of a scope; ``None`` where engines do not tell it, as in older recordings."""
    columns = history.batches.columns
    rows = np.flatnonzero(scope.contains(columns["finished"], columns["regime"]) & np.isfinite(columns["prefill_s"]))
    started, finished, prefill_s = (columns[name][rows] for name in ("started", "finished", "prefill_s"))
    total_s = scope.span_s * max(len(history.replicas), 1)
    if total_s <= 0 or not prefill_s.any():
        return None
    run_s: Floats = finished - started
    within = (finished - np.maximum(started, scope.start_s)) / np.maximum(run_s, 1e-9)
    read_s = float((np.minimum(prefill_s, run_s) * within).sum())
    return EngineTime(read_s / total_s, (float((run_s * within).sum()) - read_s) / total_s)
