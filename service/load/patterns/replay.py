"""Arrivals that were recorded."""

from __future__ import annotations

from collections.abc import Sequence

from service.messages.load import Pattern, Trace


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
