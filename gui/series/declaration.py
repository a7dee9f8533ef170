"""What a plot is called, what stands in its legend and what it says as long as it is empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Swatch: TypeAlias = Literal["square", "circle", "triangle", "diamond", "caret", "area", "line", "dash", "lane", "none"]
Readout: TypeAlias = Mapping[str, str]  # a text for each entry of the legend that has one now


@dataclass(frozen=True)
class Entry:
    """A series in the legend.

    Attributes:
        name: as the user reads it.
        color: the role of its colour in the palette.
    """

    name: str
    swatch: Swatch
    color: str


@dataclass(frozen=True)
class Declaration:
    """A plot in words.

    Attributes:
        unit: stands beside the title.
        axis_units: stand in the gutter, one a strip.
        empty_text: a sentence on what will be shown.
    """

    name: str
    title: str
    unit: str
    entries: tuple[Entry, ...]
    empty_text: str
    axis_units: tuple[str, ...] = ("",)
