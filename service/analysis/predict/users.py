"""Users who wait for their answers: how many there are, and how they come back."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from service.analysis.observed.columns import Floats
from service.analysis.predict.load import Way
from service.analysis.predict.requests import Requests, filled
from service.messages.load import ClosedLoop as ClosedPattern
from service.messages.load import Pattern

TOGETHER_S: Final = 0.005  # answers of one batch are read within less
STEADY_SHARE: Final = 0.75  # users who ask again at once are all there for most of the time


def users_of(pattern: Pattern | None, requests: Requests, at_s: float) -> int:
    """How many users a closed loop has, by what its sender says or by what is seen; 0 for an open loop.

    Seen is a closed loop where as many requests as ever are under way for most of the time, and where they follow the
    answers more regularly than each other.
    """
    if pattern is not None:
        return pattern.users if isinstance(pattern, ClosedPattern) else 0
    begins = requests.intended_s
    ends = np.sort(np.where(np.isnan(requests.answered_s), at_s, requests.answered_s))
    moments = np.concatenate([begins, ends])
    steps = np.concatenate([np.ones(len(begins)), -np.ones(len(ends))])
    order = np.argsort(moments, kind="stable")
    present = np.cumsum(steps[order])[:-1]
    held_s = np.diff(moments[order])
    users = int(present.max())
    settled = np.maximum.accumulate(present) >= users  # while a load begins, users come one by one
    share = held_s[settled & (present >= users)].sum() / max(held_s[settled].sum(), 1e-9)
    if share < STEADY_SHARE or len(requests) < 2 * users:
        return 0
    return users if np.std(_follow_s(requests, users)) < np.std(np.diff(begins)) else 0


def bursts_of(pattern: Pattern | None, requests: Requests, users: int) -> tuple[tuple[Way, ...], ...]:
    """The ways of those who came back at once: as declared, straight from an answer, or as much later as was seen."""
    before_s = filled(requests.before_s)
    if isinstance(pattern, ClosedPattern):
        return _together(requests.intended_s, [Way(0.0, each) for each in before_s.tolist()])
    answers, gaps_s = np.sort(requests.answered_s[np.isfinite(requests.answered_s)]), _follow_s(requests, users)
    ways = [Way(max(gap_s, 0.0), each) for gap_s, each in zip(gaps_s.tolist(), before_s[users:].tolist(), strict=False)]
    return _together(answers[: len(ways)], ways)


def _together(times_s: Floats, ways: list[Way]) -> tuple[tuple[Way, ...], ...]:
    """Groups of `ways` whose times follow one another closely."""
    starts = [0, *(np.flatnonzero(np.diff(times_s) > TOGETHER_S) + 1).tolist(), len(ways)]
    return tuple(tuple(ways[start:end]) for start, end in pairwise(starts))


def _follow_s(requests: Requests, users: int) -> Floats:
    """From each answer to the request that is its successor if so many users ask again and again."""
    answers = np.sort(requests.answered_s[np.isfinite(requests.answered_s)])
    following = requests.intended_s[users : users + len(answers)]
    gaps: Floats = following - answers[: len(following)]
    return gaps


def thinking_s(pattern: Pattern | None) -> tuple[float, ...]:
    if not isinstance(pattern, ClosedPattern):
        return (0.0,)
    if pattern.think == "fixed":
        return (pattern.think_s,)
    shares = (np.arange(64) + 0.5) / 64
    return tuple((-np.log1p(-shares) * pattern.think_s).tolist())
