"""How full a service was from the beginning of a recording to its end, for the strip that one scrubs along. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History


@dataclass(frozen=True)
class Profile:
    """
    Attributes:
        start_s, end_s: on the service's clock.
        depth: requests that were waiting, formed or running, at evenly spaced moments between the two.
        changes_s: when other settings were obeyed.
    """

    start_s: float
    end_s: float
    depth: Floats
    changes_s: tuple[float, ...]

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s


def profile(history: History, duration_s: float, points: int) -> Profile:
    """The last `duration_s` of a history."""
    end_s = history.now_s()
    start_s = end_s - duration_s
    at_s = np.linspace(start_s, end_s, points)
    columns = history.requests.columns
    begun, ended = np.sort(columns["queued"]), np.sort(columns["finished"])
    depth = np.searchsorted(begun, at_s, side="right") - np.searchsorted(ended, at_s, side="right")
    changes_s = tuple(mark.at_s for mark in history.batches.marks())
    return Profile(start_s, end_s, np.maximum(depth, 0).astype(np.float64), changes_s)
