"""The requests that were seen lately, as the simulation needs to know them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from service.analysis.observed.columns import Bools, Floats, Ints
from service.analysis.observed.history import History
from service.analysis.observed.requests import FIRST_FINAL_CODE


@dataclass(frozen=True)
class Requests:
    """What the simulation needs to know of each observed request, in order of `intended_s`; NaN is unknown.

    Attributes:
        intended_s: from when on its latency counts: when it was to be sent, or else when it was received.
        before_s: from then until it stood in the queue.
        answered_s: when its asker had all of it, or else when it was finished.
        return_s: from its end in the engine until then.
        tokens: that were generated, or may be.
    """

    intended_s: Floats
    before_s: Floats
    answered_s: Floats
    return_s: Floats
    tokens: Ints
    prompt_tokens: Ints

    def __len__(self) -> int:
        return len(self.intended_s)

    def of_calls(self) -> Requests:
        """Of a function, of which each takes one call, whatever that streams."""
        return replace(self, tokens=np.ones_like(self.tokens))


def observed_requests(history: History, start_s: float, end_s: float) -> Requests:
    """Those that were intended from `start_s` until `end_s`."""
    table = history.requests.columns
    has_sender = np.isfinite(table["intended"])
    intended_s = np.where(has_sender, table["intended"], table["received"])
    rows: Ints = np.flatnonzero((intended_s >= start_s) & (intended_s < end_s) & (table["prompt_tokens"] >= 0))
    rows = rows[np.argsort(intended_s[rows], kind="stable")]
    has_ended: Bools = (table["state"][rows] >= FIRST_FINAL_CODE) & (table["tokens"][rows] > 0)
    answered_s = _finite(np.where(has_sender, table["client_finished"], table["finished"])[rows])
    return Requests(
        intended_s=intended_s[rows],
        before_s=_finite(table["queued"][rows]) - intended_s[rows],
        answered_s=answered_s,
        return_s=answered_s - _finite(table["finished"][rows]),
        tokens=np.where(has_ended, table["tokens"][rows], np.maximum(table["max_tokens"][rows], 1)),
        prompt_tokens=table["prompt_tokens"][rows].copy(),
    )


def _finite(values: Floats) -> Floats:
    result: Floats = np.where(np.isfinite(values), values, np.nan)
    return result


def filled(values: Floats) -> Floats:
    """What is not known is as usual."""
    known = values[np.isfinite(values)]
    result: Floats = np.where(np.isfinite(values), values, np.median(known) if len(known) else 0.0)
    return result
