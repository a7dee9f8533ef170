"""The capacity line: what the engine would reach if all its batches were full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gui.look.tokens import GHOST_REACH
from service.analysis.findings.facts import Facts
from service.analysis.predict.cost import Capacity


@dataclass(frozen=True)
class CapacityLevel:
    """What it is in one strip."""

    per_s: float
    words: str


@dataclass(frozen=True)
class CapacityLine:
    """Its levels in the plot's strips, tokens and requests a second, and since when the settings hold."""

    since_s: float
    levels: tuple[CapacityLevel, CapacityLevel]

    @classmethod
    def of(cls, facts: Facts) -> CapacityLine | None:
        """``None`` as long as the time of full batches is not known well enough."""
        capacity = facts.capacity(facts.settings.max_batch_size)
        return None if capacity is None else cls(facts.regime.start_s, levels(capacity))


def levels(capacity: Capacity) -> tuple[CapacityLevel, CapacityLevel]:
    """
    >>> [level.words for level in levels(Capacity(16, 12.53, 301.0))]
    ['capacity 301 at 16', 'capacity 12.5']
    """
    tokens_per_s, requests_per_s = capacity.tokens_per_s, capacity.requests_per_s
    return (
        CapacityLevel(tokens_per_s, f"capacity {tokens_per_s:.0f} at {capacity.max_batch_size}"),
        CapacityLevel(requests_per_s, f"capacity {requests_per_s:.1f}"),
    )


def with_capacity(peaks: Sequence[float], line: CapacityLine) -> tuple[float, ...]:
    """The peaks that the scales have to reach: those of the data, and a line that is not out of all proportion.

    >>> line = CapacityLine(0.0, levels(Capacity(16, 12.5, 300.0)))
    >>> with_capacity((200.0, 8.0), line), with_capacity((20.0, 0.8), line)
    ((300.0, 12.5), (20.0, 0.8))
    """
    pairs = zip(peaks, line.levels, strict=True)
    return tuple(level.per_s if peak < level.per_s <= GHOST_REACH * peak else peak for peak, level in pairs)
