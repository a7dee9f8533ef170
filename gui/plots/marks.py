"""What stands on every plot over time, and where its flags and words stand above the timeline.

The flags stand in the lowest row. A text stands right of its mark; where room lacks there, left of its flag, or earlier
at the end of the plot; and else in a row above, of which there are two at most. Where no place has room for all of it,
it ends in an ellipsis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetricsF

from gui.look import tokens
from gui.look.theme import current
from gui.plots.layout import Layout
from gui.plots.paint import bold, font, text_width
from service.analysis.observed.annotations import Outage, OuterMark, SettingsMark, Stretch

LEAST_WORDS: Final = 24  # pixels; a text that is elided to less says nothing
APART: Final = tokens.GAP_2 - 2  # pixels between a flag and its words, and between two texts
MOST_ROWS: Final = 3

Mark = TypeVar("Mark", SettingsMark, OuterMark)


@dataclass(frozen=True)
class Marks:
    """What stands in view."""

    settings: Sequence[SettingsMark] = ()
    outer: Sequence[OuterMark] = ()
    outages: Iterable[Outage] = ()
    stretches: Sequence[Stretch] = ()


@dataclass(frozen=True)
class Flag:
    """A flag and the pixels it takes."""

    left: int
    right: int
    text: str
    of: SettingsMark | Outage


@dataclass(frozen=True)
class Words:
    """A text where it stands, as it is shown.

    Attributes:
        row: 0 is that of the flags, 1 and 2 stand above it.
        mark: whose details may follow the text.
    """

    left: float
    right: float
    row: int
    text: str
    ink: str
    mark: SettingsMark | None = None


@dataclass(frozen=True)
class PlacedMarks:
    """The flags and words above a plot, and the pixel before which they end."""

    flags: Sequence[Flag]
    words: Sequence[Words]
    end: int

    @property
    def rows(self) -> int:
        return 1 + max((words.row for words in self.words), default=0)

    def room_after(self, words: Words) -> float:
        """Pixels between a text and what follows it in its row."""
        starts = [other.left for other in self.words if other.row == words.row]
        starts += [flag.left for flag in self.flags if words.row == 0]
        return min((start for start in starts if start > words.left), default=self.end) - words.right - APART


def visible(marks: Sequence[Mark], layout: Layout) -> list[Mark]:
    return [mark for mark in marks if layout.view.contains(mark.at_s)]


def settings_flags(layout: Layout, marks: Sequence[SettingsMark]) -> list[Flag]:
    """The newest first; one that has no room beside a newer one is left out."""
    flags: list[Flag] = []
    for mark in reversed(visible(marks, layout)):
        text = f"v{mark.version}"
        width = _flag_width(text)
        left = min(max(int(layout.x_of(mark.at_s)) - width // 2, 0), layout.size.width() - width)
        if not flags or left + width + 1 <= flags[-1].left:
            flags.append(Flag(left, left + width, text, mark))
    return flags


def spans_taken(layout: Layout, marks: Marks) -> list[tuple[int, int]]:
    """The first and the last pixel of each line and each flag that stands on a plot without words."""
    ends = (at_s for each in marks.stretches for at_s in (each.start_s, each.end_s) if at_s is not None)
    times = (*(each.at_s for each in marks.settings), *(each.at_s for each in marks.outer), *ends)
    lines = [int(layout.x_of(at_s)) for at_s in times if layout.view.contains(at_s)]
    return [*((x, x) for x in lines), *((flag.left, flag.right) for flag in settings_flags(layout, marks.settings))]


def placed_marks(layout: Layout, marks: Marks) -> PlacedMarks:
    """What stands above the timeline; where room lacks, newer settings come first, then stretches and newer loads."""
    outages = [_outage_flag(layout, each) for each in marks.outages if layout.view.contains(each.start_s)]
    flags = [*settings_flags(layout, marks.settings), *outages]
    rows = _Rows(layout, flags)
    words = [placed for text in _texts(layout, marks, flags) if (placed := rows.take(text)) is not None]
    return PlacedMarks(flags, words, rows.end)


class _Text(NamedTuple):
    """What is to be said of a mark: from `x` on, or beside its flag."""

    x: int
    text: str
    ink: str
    flag: Flag | None = None


def _texts(layout: Layout, marks: Marks, flags: Sequence[Flag]) -> Iterator[_Text]:
    palette = current()
    for flag in flags:
        if isinstance(flag.of, SettingsMark):
            yield _Text(flag.left, flag.of.text, palette.t1, flag)
    for stretch in marks.stretches:
        if stretch.overlaps(layout.view.start_s, layout.view.end_s):
            yield _Text(max(round(layout.x_of(stretch.start_s)), layout.left), stretch.text, palette.t1)
    for mark in reversed(visible(marks.outer, layout)):
        yield _Text(int(layout.x_of(mark.at_s)) + tokens.GAP_1 + 1, mark.text, palette.t2)


class _Rows:
    """The rows of words, and what is taken of each."""

    def __init__(self, layout: Layout, flags: Sequence[Flag]) -> None:
        self.end = layout.size.width()
        self._taken: list[list[tuple[float, float]]] = [[] for _ in range(MOST_ROWS)]
        self._taken[0] += [(flag.left, flag.right) for flag in flags]

    def take(self, text: _Text) -> Words | None:
        """Place it where all of it has room, or else as much as a row has room for; ``None`` where that is nothing."""
        used, flag, shown = words_font(), text.flag, text.text
        width = text_width(shown, used)
        last = self.end - APART - width  # the latest place that has room before the end
        beside = [(0, min(text.x, last))] if flag is None else [(0, flag.right + APART), (0, flag.left - APART - width)]
        above = [(row, min(text.x, last)) for row in range(1, MOST_ROWS)]
        found = next((place for place in (*beside, *above) if self._room(*place) >= width > 0), None)
        if found is None:
            places = [beside[0], *((row, float(text.x)) for row in range(1, MOST_ROWS))]
            found = max(places, key=lambda place: self._room(*place))
            room = self._room(*found)
            if room < min(LEAST_WORDS, width) or not width:
                return None
            shown = QFontMetricsF(used).elidedText(shown, Qt.TextElideMode.ElideRight, room)
        row, left = found
        right = left + text_width(shown, used)
        self._taken[row].append((left, right))
        mark = flag.of if flag is not None and isinstance(flag.of, SettingsMark) else None
        return Words(left, right, row, shown, text.ink, mark)

    def _room(self, row: int, left: float) -> float:
        """Pixels from `left` to what is taken next, or to the end; none where that place itself is taken."""
        if left < 0 or any(begin - APART < left < end + APART for begin, end in self._taken[row]):
            return 0.0
        return min((begin for begin, _ in self._taken[row] if begin > left), default=self.end) - APART - left


def words_font() -> QFont:
    return font(tokens.FONT_CAPTION, tokens.WEIGHT_MEDIUM)


def _outage_flag(layout: Layout, outage: Outage) -> Flag:
    width = _flag_width(outage.text)
    left = min(round(layout.x_of(outage.start_s)), layout.size.width() - width)
    return Flag(left, left + width, outage.text, outage)


def _flag_width(text: str) -> int:
    return round(text_width(text, bold())) + 2 * tokens.FLAG_PADDING
