"""Arrivals that do not wait for answers: when each is due, in seconds of the load's own time, with no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from service.load.patterns.intervals import Intervals, intervals_of
from service.load.patterns.rates import Rate, rate_of
from service.messages.load import Burst, Pattern, Trace


class OpenArrivals(Protocol):
    """What decides when the next request of an open loop is due."""

    @property
    def due_s(self) -> float | None:
        """Of the next arrival, from the start of the load; ``None`` when there are no more."""

    def advance(self) -> None:
        """The next has arrived: on to the one after it."""

    def retune(self, pattern: Pattern, at_s: float) -> bool:
        """Go on as `pattern` from `at_s`; false if that takes other arrivals."""


class RatedArrivals:
    """Intervals drawn for a rate of one, run through at the rate in force (time rescaling).

    The n-th arrival is due when the rate, summed up over time, has come to the n-th sum of the intervals. So the same
    seed gives the same sequence at every rate, and a change of rate rescales what is left of the interval that is
    running: arrivals neither pause nor bunch up while a slider is dragged.
    """

    def __init__(self, pattern: Pattern, intervals: Intervals, rate: Rate) -> None:
        self._pattern = pattern
        self._intervals = intervals
        self._rate = rate
        self._due_s = 0.0
        self.advance()

    @property
    def due_s(self) -> float:
        return self._due_s

    def advance(self) -> None:
        self._due_s = self._rate.when(self._rate.expected(self._due_s) + self._intervals.draw())

    def retune(self, pattern: Pattern, at_s: float) -> bool:
        if type(pattern) is not type(self._pattern) or not self._intervals.retune(pattern):
            return False
        left = self._rate.expected(self._due_s) - self._rate.expected(at_s)
        self._pattern, self._rate = pattern, rate_of(pattern)
        if self._due_s > at_s:
            self._due_s = self._rate.when(self._rate.expected(at_s) + left)
        return True


def rated_arrivals(pattern: Pattern, seed: int) -> RatedArrivals:
    """The arrivals of a pattern that has a rate."""
    return RatedArrivals(pattern, intervals_of(pattern, seed), rate_of(pattern))


class BurstArrivals:
    """All at once, then nothing; another burst while one goes out adds to it."""

    def __init__(self, count: int) -> None:
        self._left = count

    @property
    def due_s(self) -> float | None:
        return 0.0 if self._left else None

    def advance(self) -> None:
        self._left -= 1

    def retune(self, pattern: Pattern, at_s: float) -> bool:
        if not isinstance(pattern, Burst):
            return False
        self._left += pattern.count
        return True


class ReplayArrivals:
    """The offsets of a trace, times its scale; another scale holds from the moment it is chosen."""

    def __init__(self, trace: Trace, offsets_s: Sequence[float]) -> None:
        self._trace = trace
        self._offsets_s = offsets_s
        self._next = 0
        self._due_s = offsets_s[0] * trace.time_scale

    @property
    def due_s(self) -> float | None:
        return self._due_s if self._next < len(self._offsets_s) else None

    def advance(self) -> None:
        self._next += 1
        if self._next < len(self._offsets_s):
            gap_s = self._offsets_s[self._next] - self._offsets_s[self._next - 1]
            self._due_s += gap_s * self._trace.time_scale

    def retune(self, pattern: Pattern, at_s: float) -> bool:
        if not isinstance(pattern, Trace) or pattern.path != self._trace.path:
            return False
        if self._due_s > at_s:
            self._due_s = at_s + (self._due_s - at_s) * pattern.time_scale / self._trace.time_scale
        self._trace = pattern
        return True
