"""The token budget of a batch, and how many requests it holds."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History
from service.batching.rules import Rules


class Budget(NamedTuple):
    """How many tokens of prompts and `max_tokens` a batch may have, and what says so."""

    tokens: int
    source: Literal["memory", "max_batch_tokens"]


def budget_now(history: History) -> Budget | None:
    """What the rules in force allow a batch; ``None`` where that is as much as `max_batch_size` of any request need."""
    if history.in_force is None or not history.replicas:
        return None
    settings, columns = history.in_force.settings, history.requests.columns
    tokens = Rules.of(settings, memory_tokens=history.replicas[0].memory_tokens or 0).max_batch_tokens
    most = int((columns["prompt_tokens"] + columns["max_tokens"]).max(initial=0))
    if not tokens or most * settings.max_batch_size <= tokens:
        return None
    return Budget(tokens, "max_batch_tokens" if tokens == settings.max_batch_tokens else "memory")


def requests_held(history: History, tokens: int, moments: Floats) -> Floats:
    """How many requests like those present at each of these moments `tokens` hold; NaN where none is present.

    The moments ascend.
    """
    columns = history.requests.columns
    begun, ended = columns["queued"], columns["finished"]
    chosen = (begun <= moments[-1]) & (ended > moments[0])
    needed = (columns["prompt_tokens"] + columns["max_tokens"])[chosen].astype(np.float64)
    ones = np.ones(len(needed))
    present = _sum_at(moments, begun[chosen], ones) - _sum_at(moments, ended[chosen], ones)
    held = _sum_at(moments, begun[chosen], needed) - _sum_at(moments, ended[chosen], needed)
    rows: Floats = np.divide(tokens * present, held, out=np.full(len(moments), np.nan), where=held > 0)
    return rows


def _sum_at(moments: Floats, times: Floats, values: Floats) -> Floats:
    """The sum of the values whose time has come at each of the moments."""
    order = np.argsort(times, kind="stable")
    sums = np.concatenate(([0.0], np.cumsum(values[order])))
    at: Floats = sums[np.searchsorted(times[order], moments, side="right")]
    return at
