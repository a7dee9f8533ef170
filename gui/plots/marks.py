"""Changes of settings and load, failures and gaps, drawn over the data of a plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.tokens import (
    DASH_CHANGE,
    DASH_LOAD,
    FAILURE_ALPHA,
    FAILURE_EDGE,
    FLAG_HEIGHT,
    FLAG_PADDING,
    FLAG_ROW,
    FONT_CAPTION,
    GAP_1,
    GAP_2,
    GAP_3,
    LINE_MARKER,
    RADIUS_FLAG,
    WEIGHT_MEDIUM,
    Palette,
)
from gui.plots.frame import Layout
from gui.plots.overlay import Overlay
from gui.plots.paint import bold, brush, color, draw_text, font, pen, text_width
from service.analysis.observed.annotations import Outage, OuterMark, SettingsMark

LEAST_WORDS: Final = 24  # pixels; a text that is elided to less says nothing

Mark = TypeVar("Mark", SettingsMark, OuterMark)


@dataclass(frozen=True)
class Marks:
    """What stands in view."""

    settings: Sequence[SettingsMark] = ()
    outer: Sequence[OuterMark] = ()
    outages: Iterable[Outage] = ()


class _MarksItem(Overlay):
    """Paints marks."""

    def __init__(self, palette: Palette, z: float) -> None:
        super().__init__(palette, z)
        self._marks = Marks()

    def set_marks(self, layout: Layout, marks: Marks) -> None:
        self._marks = marks
        self._lie(layout)


class OutageTint(_MarksItem):
    """Behind the data: a tint from a failure to its end, with an edge where it began."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette, z=-5)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        layout = self._layout
        if layout is None:
            return
        for outage in self._marks.outages:
            left = max(round(layout.x_of(outage.start_s)), layout.left)
            right = layout.right if outage.end_s is None else min(round(layout.x_of(outage.end_s)), layout.right)
            if right < layout.left or left > layout.right:
                continue
            is_gap = outage.text == "gap"
            ink = self._palette.t3 if is_gap else self._palette.error
            for strip in layout.strips:
                area = QRectF(left, strip.top, max(right - left, FAILURE_EDGE), strip.height)
                painter.fillRect(area, brush(ink, FAILURE_ALPHA))
                if outage.start_s >= layout.view.start_s:
                    painter.fillRect(QRectF(left, strip.top, FAILURE_EDGE, strip.height), brush(ink))


class MarkLines(_MarksItem):
    """Over the data: lines and flags; in the timeline also what changed, in words."""

    def __init__(self, palette: Palette, with_words: bool) -> None:
        super().__init__(palette, z=20)
        self._with_words = with_words

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        if self._layout is None:
            return
        layout = self._layout
        for outer in self._visible(self._marks.outer):
            self._paint_line(painter, layout, outer.at_s, self._palette.t2, DASH_LOAD, FLAG_ROW)
        settings = self._visible(self._marks.settings)
        for mark in settings:
            self._paint_line(painter, layout, mark.at_s, self._palette.t1, DASH_CHANGE, 0)
        taken = self._paint_flags(painter, layout, settings)
        if self._with_words:
            self._paint_words(painter, layout, taken)

    def _visible(self, marks: Sequence[Mark]) -> list[Mark]:
        assert self._layout is not None
        view = self._layout.view
        return [mark for mark in marks if view.contains(mark.at_s)]

    def _paint_line(
        self, painter: QPainter, layout: Layout, at_s: float, ink: str, dashes: tuple[int, int], below: int
    ) -> None:
        x = int(layout.x_of(at_s)) + 0.5
        painter.setPen(pen(ink, LINE_MARKER, dashes))
        for number, strip in enumerate(layout.strips):
            top = strip.top + (below if number == 0 and not self._with_words else 0)
            painter.drawLine(QLineF(x, top, x, strip.bottom))

    def _paint_flags(self, painter: QPainter, layout: Layout, marks: Sequence[SettingsMark]) -> list[_Flag]:
        """The newest first; one that has no room beside a newer one is left out, its line stands."""
        flags: list[_Flag] = []
        for mark in reversed(marks):
            text = f"v{mark.version}"
            width = round(text_width(text, bold())) + 2 * FLAG_PADDING
            x = int(layout.x_of(mark.at_s))
            left = min(max(x - width // 2, 0), layout.size.width() - width)
            if flags and left + width + 1 > flags[-1].left:
                continue
            flags.append(_Flag(left, left + width, text, mark))
        for flag in flags:
            self._paint_flag(painter, flag, self._palette.primary, self._palette.primary_text)
        return flags

    def _paint_flag(self, painter: QPainter, flag: _Flag, ground: str, ink: str) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color(ground))
        painter.drawRoundedRect(QRectF(flag.left, 1, flag.right - flag.left, FLAG_HEIGHT), RADIUS_FLAG, RADIUS_FLAG)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        draw_text(painter, flag.left + FLAG_PADDING, 1 + FLAG_HEIGHT / 2, flag.text, bold(), ink)

    def _paint_words(self, painter: QPainter, layout: Layout, flags: Sequence[_Flag]) -> None:
        """What changed, each text up to where the next begins."""
        marks = [mark for mark in self._visible(self._marks.outer) if not _is_under(layout.x_of(mark.at_s), flags)]
        outages = self._paint_outage_flags(painter, layout)
        starts = [flag.left for flag in (*flags, *outages)] + [int(layout.x_of(mark.at_s)) for mark in marks]

        def room_after(x: float) -> float:
            following = [start for start in starts if start > x]
            return min((*following, layout.size.width())) - x - GAP_2

        for mark in marks:
            x = int(layout.x_of(mark.at_s)) + GAP_1 + 1
            self._paint_elided(painter, x, room_after(x - 1), mark.text, self._palette.t2)
        for flag in flags:
            start = flag.right + GAP_2 - 2
            room = room_after(flag.left + 1) - (start - flag.left - 1)
            if flag.mark is not None:
                width = self._paint_elided(painter, start, room, flag.mark.text, self._palette.t1)
                self._paint_details(painter, start + width + GAP_3, room - width - GAP_3, flag.mark)

    def _paint_details(self, painter: QPainter, x: float, room: float, mark: SettingsMark) -> None:
        """As much as there is room for, each of them as a whole."""
        briefly = mark.drained.removeprefix("old settings ")
        parts = ((mark.detail, mark.drained), (mark.detail, briefly), (mark.detail,))
        texts = (", ".join(filter(None, part)) for part in parts)
        text = next((text for text in texts if text_width(text, font()) <= room), "")
        draw_text(painter, x, 1 + FLAG_HEIGHT / 2, text, font(), self._palette.t3)

    def _paint_elided(self, painter: QPainter, x: float, room: float, text: str, ink: str) -> float:
        """Paint as much as there is room for; the width, or 0 where that would be next to nothing."""
        used = font(FONT_CAPTION, WEIGHT_MEDIUM)
        if room < min(LEAST_WORDS, text_width(text, used)) or not text:
            return 0.0
        elided = QFontMetricsF(used).elidedText(text, Qt.TextElideMode.ElideRight, room)
        draw_text(painter, x, 1 + FLAG_HEIGHT / 2, elided, used, ink)
        return text_width(elided, used)

    def _paint_outage_flags(self, painter: QPainter, layout: Layout) -> list[_Flag]:
        flags = []
        for outage in self._marks.outages:
            if layout.view.contains(outage.start_s):
                width = round(text_width(outage.text, bold())) + 2 * FLAG_PADDING
                left = min(round(layout.x_of(outage.start_s)), layout.size.width() - width)
                flags.append(_Flag(left, left + width, outage.text, None))
                is_gap = outage.text == "gap"
                ground = self._palette.t3 if is_gap else self._palette.error
                self._paint_flag(painter, flags[-1], ground, self._palette.plot)
        return flags


@dataclass(frozen=True)
class _Flag:
    """A flag and the pixels it takes."""

    left: int
    right: int
    text: str
    mark: SettingsMark | None


def _is_under(x: float, flags: Sequence[_Flag]) -> bool:
    """Whether words that begin there would be covered; those of the flag count for more."""
    return any(flag.left <= x <= flag.right for flag in flags)
