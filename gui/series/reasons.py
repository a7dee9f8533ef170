"""Release reasons as the legends name them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from gui.series.declaration import Declaration, Entry, Swatch
from service.analysis.observed.batches import REASONS
from service.messages.settings import ReleaseReason

SWATCHES: Final[Mapping[ReleaseReason, Swatch]] = {
    "full": "square",
    "timeout": "circle",
    "drained": "triangle",
    "joined": "diamond",
    "left": "caret",
}
OF_WHOLE_BATCHES: Final[tuple[ReleaseReason, ...]] = ("full", "timeout", "drained")


def reason_entries(swatch: Swatch | None = None, seen: Collection[ReleaseReason] = ()) -> tuple[Entry, ...]:
    """Those of whole batches; where requests join and leave one by one, those that are seen.

    >>> [entry.name for entry in reason_entries(seen=("timeout",))]
    ['full', 'timeout', 'drained']
    >>> [entry.name for entry in reason_entries(seen=("left", "joined", "timeout"))]
    ['timeout', 'joined', 'left']
    """
    is_open = any(reason not in OF_WHOLE_BATCHES for reason in seen)
    shown = [reason for reason in REASONS if reason in seen] if is_open else OF_WHOLE_BATCHES
    return tuple(Entry(reason, swatch or SWATCHES[reason], reason) for reason in shown)


def told_counts(counts: Mapping[ReleaseReason, int]) -> dict[str, str]:
    """What the legend says of them; of whole batches also that there were none."""
    return {reason: str(count) for reason, count in counts.items() if count or reason in OF_WHOLE_BATCHES}


def with_reasons(plot: Declaration, entries: tuple[Entry, ...]) -> Declaration:
    """A plot with these entries in the place of its release reasons."""
    places = [place for place, entry in enumerate(plot.entries) if entry.name in REASONS]
    return replace(plot, entries=(*plot.entries[: places[0]], *entries, *plot.entries[places[-1] + 1 :]))
