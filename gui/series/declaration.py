"""What a plot is called, what its legend shows (release reasons among it), and its text while it is empty."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from service.analysis.observed.batches import REASONS
from service.analysis.observed.register import REGISTER
from service.messages.settings import ReleaseReason

Swatch: TypeAlias = Literal[
    "square", "circle", "triangle", "diamond", "caret", "area", "line", "dash", "dots", "lane", "none"
]
Readout: TypeAlias = Mapping[str, str]  # a text for each entry of the legend that has one now


@dataclass(frozen=True)
class Entry:
    """A series in the legend.

    Attributes:
        name: as the user reads it.
        color: the role of its colour in the palette.
        tip: what it is, in a sentence.
        has_value: whether one may stand beside it.
    """

    name: str
    swatch: Swatch
    color: str
    tip: str = ""
    has_value: bool = True


@dataclass(frozen=True)
class Declaration:
    """A plot in words.

    Attributes:
        unit: stands beside the title.
        axis_units: stand in the gutter, one a pane.
        empty_text: a sentence on what will be shown.
    """

    name: str
    title: str
    unit: str
    entries: tuple[Entry, ...]
    empty_text: str
    axis_units: tuple[str, ...] = ("",)


SWATCHES: Final[Mapping[ReleaseReason, Swatch]] = {
    "full": "square",
    "timeout": "circle",
    "drained": "triangle",
    "joined": "diamond",
    "left": "caret",
}
OF_WHOLE_BATCHES: Final[tuple[ReleaseReason, ...]] = ("full", "timeout", "drained")


def figure_entry(key: str, swatch: Swatch, color: str, more: str = "") -> Entry:
    """A figure of the register."""
    return Entry(REGISTER[key].name, swatch, color, f"{REGISTER[key].sentence}{more}")


def reason_entries(swatch: Swatch | None = None, seen: Collection[ReleaseReason] = ()) -> tuple[Entry, ...]:
    """The legend's entries: all reasons of whole batches, or only those seen where requests join and leave singly.

    >>> [entry.name for entry in reason_entries(seen=("timeout",))]
    ['full', 'timeout', 'drained']
    >>> [entry.name for entry in reason_entries(seen=("left", "joined", "timeout"))]
    ['timeout', 'joined', 'left']
    """
    is_open = any(reason not in OF_WHOLE_BATCHES for reason in seen)
    shown = [reason for reason in REASONS if reason in seen] if is_open else OF_WHOLE_BATCHES
    return tuple(Entry(reason, swatch or SWATCHES[reason], reason) for reason in shown)


def told_counts(counts: Mapping[ReleaseReason, int]) -> dict[str, str]:
    """The count of each reason as text; a count of none is left out, except for the reasons of whole batches."""
    return {reason: str(count) for reason, count in counts.items() if count or reason in OF_WHOLE_BATCHES}


def with_reasons(plot: Declaration, entries: tuple[Entry, ...]) -> Declaration:
    """A plot with these entries in the place of its release reasons."""
    places = [place for place, entry in enumerate(plot.entries) if entry.name in REASONS]
    return replace(plot, entries=(*plot.entries[: places[0]], *entries, *plot.entries[places[-1] + 1 :]))
