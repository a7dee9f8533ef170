"""What stands over the data of a plot: changes and failures, what is under the pointer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look import tokens
from gui.look.theme import colour, current
from gui.plots.layout import Layout, Overlay
from gui.plots.paint import bold, draw_text, font, pen, text_width
from service.analysis.observed.annotations import Outage, OuterMark, SettingsMark, Stretch

LEAST_WORDS: Final = 24  # pixels; a text that is elided to less says nothing
MIDDLE: Final = 1 + tokens.FLAG_HEIGHT / 2  # of flags and words

Mark = TypeVar("Mark", SettingsMark, OuterMark)


@dataclass(frozen=True)
class Marks:
    """What stands in view."""

    settings: Sequence[SettingsMark] = ()
    outer: Sequence[OuterMark] = ()
    outages: Iterable[Outage] = ()
    stretches: Sequence[Stretch] = ()


class _MarksItem(Overlay):
    def __init__(self, z: float) -> None:
        super().__init__(z)
        self._marks = Marks()

    def set_marks(self, layout: Layout, marks: Marks) -> None:
        self._marks = marks
        self._lay_out(layout)


class OutageTint(_MarksItem):
    """Behind the data: a tint from a failure to its end, with an edge where it began."""

    def __init__(self) -> None:
        super().__init__(z=-5)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        layout = self._layout
        if layout is None:
            return
        for outage in self._marks.outages:
            left = max(round(layout.x_of(outage.start_s)), layout.left)
            right = layout.right if outage.end_s is None else min(round(layout.x_of(outage.end_s)), layout.right)
            if right < layout.left or left > layout.right:
                continue
            ink = _outage_ink(outage)
            for pane in layout.panes:
                area = QRectF(left, pane.top, max(right - left, tokens.FAILURE_EDGE), pane.height)
                painter.fillRect(area, colour(ink, tokens.FAILURE_ALPHA))
                if outage.start_s >= layout.view.start_s:
                    painter.fillRect(QRectF(left, pane.top, tokens.FAILURE_EDGE, pane.height), colour(ink))


class StretchLines(_MarksItem):
    """Over the data: a line at both ends of a stretch and a bar on the axis; what was not heard is covered."""

    def __init__(self) -> None:
        super().__init__(z=15)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        layout = self._layout
        if layout is None:
            return
        has_axis = any(tick.text for tick in layout.ticks)
        for stretch in self._marks.stretches:
            if not stretch.overlaps(layout.view.start_s, layout.view.end_s):
                continue
            ends = [
                at_s for at_s in (stretch.start_s, stretch.end_s) if at_s is not None and layout.view.contains(at_s)
            ]
            left = max(round(layout.x_of(stretch.start_s)), layout.left)
            right = layout.right if stretch.end_s is None else min(round(layout.x_of(stretch.end_s)), layout.right)
            for pane in layout.panes:
                if stretch.hides:
                    painter.fillRect(QRectF(left, pane.top, right - left, pane.height), colour(current().panel))
                painter.setPen(pen(current().t3, tokens.LINE_MARKER))
                for at_s in ends:
                    x = int(layout.x_of(at_s)) + 0.5
                    painter.drawLine(QLineF(x, pane.top, x, pane.bottom))
            if has_axis and not stretch.hides:
                painter.fillRect(QRectF(left, layout.bottom, right - left, tokens.STRETCH_BAR), colour(current().t2))


class MarkLines(_MarksItem):
    """Over the data: lines and flags; in the timeline also what changed, in words."""

    def __init__(self, with_words: bool) -> None:
        super().__init__(z=20)
        self._with_words = with_words

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        if self._layout is None:
            return
        layout = self._layout
        for outer in self._visible(self._marks.outer):
            self._paint_line(painter, layout, outer.at_s, current().t2, tokens.DASH_LOAD, tokens.FLAG_ROW)
        settings = self._visible(self._marks.settings)
        for mark in settings:
            self._paint_line(painter, layout, mark.at_s, current().t1, tokens.DASH_CHANGE, 0)
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
        painter.setPen(pen(ink, tokens.LINE_MARKER, dashes))
        for number, pane in enumerate(layout.panes):
            top = pane.top + (below if number == 0 and not self._with_words else 0)
            painter.drawLine(QLineF(x, top, x, pane.bottom))

    def _paint_flags(self, painter: QPainter, layout: Layout, marks: Sequence[SettingsMark]) -> list[_Flag]:
        """The newest first; one that has no room beside a newer one is left out, its line stands."""
        flags: list[_Flag] = []
        for mark in reversed(marks):
            text = f"v{mark.version}"
            width = _flag_width(text)
            left = min(max(int(layout.x_of(mark.at_s)) - width // 2, 0), layout.size.width() - width)
            if not flags or left + width + 1 <= flags[-1].left:
                flags.append(_Flag(left, left + width, text, mark))
                _paint_flag(painter, flags[-1], current().primary, current().primary_text)
        return flags

    def _paint_words(self, painter: QPainter, layout: Layout, flags: Sequence[_Flag]) -> None:
        """What changed, each text up to where the next begins."""
        marks = [mark for mark in self._visible(self._marks.outer) if not _is_under(layout.x_of(mark.at_s), flags)]
        outages = self._paint_outage_flags(painter, layout)
        words = _apart(
            [_Words(_words_left(e, layout), e.text, current().t1) for e in self._marks.stretches if _is_in(e, layout)],
            [_Words(int(layout.x_of(m.at_s)) + tokens.GAP_1 + 1, m.text, current().t2) for m in marks],
        )
        starts = [flag.left for flag in (*flags, *outages)] + [each.left for each in words]

        def room_after(x: float) -> float:
            following = [start for start in starts if start > x]
            return min((*following, layout.size.width())) - x - tokens.GAP_2

        for each in words:
            _paint_elided(painter, each.left, room_after(each.left), each.text, each.ink)
        for flag in flags:
            start = flag.right + tokens.GAP_2 - 2
            room = room_after(flag.left + 1) - (start - flag.left - 1)
            if flag.mark is not None:
                width = _paint_elided(painter, start, room, flag.mark.text, current().t1)
                _paint_details(painter, start + width + tokens.GAP_3, room - width - tokens.GAP_3, flag.mark)

    def _paint_outage_flags(self, painter: QPainter, layout: Layout) -> list[_Flag]:
        flags = []
        for outage in self._marks.outages:
            if layout.view.contains(outage.start_s):
                width = _flag_width(outage.text)
                left = min(round(layout.x_of(outage.start_s)), layout.size.width() - width)
                flags.append(_Flag(left, left + width, outage.text, None))
                _paint_flag(painter, flags[-1], _outage_ink(outage), current().plot)
        return flags


@dataclass(frozen=True)
class _Flag:
    """A flag and the pixels it takes."""

    left: int
    right: int
    text: str
    mark: SettingsMark | None


class _Words(NamedTuple):
    left: int
    text: str
    ink: str


def _apart(*kinds: Sequence[_Words]) -> list[_Words]:
    """Words that have room beside each other, in their order; where two have none, those of the kind named first.

    >>> words = _apart([_Words(100, "silent", "t1")], [_Words(104, "load", "t2"), _Words(180, "stopped", "t2")])
    >>> [each.text for each in words]
    ['silent', 'stopped']
    """
    kept: list[_Words] = []
    for each in chain.from_iterable(kinds):
        if all(abs(each.left - other.left) >= LEAST_WORDS for other in kept):
            kept.append(each)
    return sorted(kept)


def _is_in(stretch: Stretch, layout: Layout) -> bool:
    return stretch.overlaps(layout.view.start_s, layout.view.end_s)


def _words_left(stretch: Stretch, layout: Layout) -> int:
    """Where the words of a stretch begin: with it, or earlier where the plot ends before the words do."""
    end = layout.right - text_width(stretch.text, font(tokens.FONT_CAPTION, tokens.WEIGHT_MEDIUM)) - tokens.GAP_2
    return round(max(min(layout.x_of(stretch.start_s), end), layout.left))


def _is_under(x: float, flags: Sequence[_Flag]) -> bool:
    """Whether words that begin there would be covered; the words of the flag count for more."""
    return any(flag.left <= x <= flag.right for flag in flags)


def _flag_width(text: str) -> int:
    return round(text_width(text, bold())) + 2 * tokens.FLAG_PADDING


def _outage_ink(outage: Outage) -> str:
    return current().t3 if outage.text == "gap" else current().error


def _paint_flag(painter: QPainter, flag: _Flag, ground: str, ink: str) -> None:
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour(ground))
    rect = QRectF(flag.left, 1, flag.right - flag.left, tokens.FLAG_HEIGHT)
    painter.drawRoundedRect(rect, tokens.RADIUS_FLAG, tokens.RADIUS_FLAG)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
    draw_text(painter, flag.left + tokens.FLAG_PADDING, MIDDLE, flag.text, bold(), ink)


def _paint_details(painter: QPainter, x: float, room: float, mark: SettingsMark) -> None:
    """As much as there is room for, each of them as a whole."""
    briefly = mark.drained.removeprefix("old settings ")
    parts = ((mark.detail, mark.drained), (mark.detail, briefly), (mark.detail,))
    texts = (", ".join(filter(None, part)) for part in parts)
    text = next((text for text in texts if text_width(text, font()) <= room), "")
    draw_text(painter, x, MIDDLE, text, font(), current().t3)


def _paint_elided(painter: QPainter, x: float, room: float, text: str, ink: str) -> float:
    """Paint as much as there is room for; the width, or 0 where that would be next to nothing."""
    used = font(tokens.FONT_CAPTION, tokens.WEIGHT_MEDIUM)
    if room < min(LEAST_WORDS, text_width(text, used)) or not text:
        return 0.0
    elided = QFontMetricsF(used).elidedText(text, Qt.TextElideMode.ElideRight, room)
    draw_text(painter, x, MIDDLE, elided, used, ink)
    return text_width(elided, used)


@dataclass(frozen=True)
class Dot:
    """A value under the pointer: where it lies and the colour of its line."""

    y: float
    color: str


class PointerItem(Overlay):
    """A line with dots where it meets the curves; nothing as long as no moment is pointed at."""

    def __init__(self) -> None:
        super().__init__(z=30)
        self._at_s: float | None = None
        self._dots: Sequence[Dot] = ()
        self._chip = ""
        self._ticks: Sequence[QRectF] = ()

    def point(
        self,
        layout: Layout,
        at_s: float | None,
        dots: Sequence[Dot] = (),
        chip: str = "",
        ticks: Sequence[QRectF] = (),
    ) -> None:
        """Stand at `at_s`; `chip` is shown on the axis in place of the `ticks` that it covers."""
        if at_s is None and self._at_s is None:
            return
        self._at_s, self._dots, self._chip, self._ticks = at_s, dots, chip, ticks
        self._lay_out(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        layout, at_s = self._layout, self._at_s
        if layout is None or at_s is None or not layout.view.contains(at_s):
            return
        x = int(layout.x_of(at_s)) + 0.5
        painter.setPen(pen(current().t2, tokens.LINE_MARKER))
        for pane in layout.panes:
            painter.drawLine(QLineF(x, pane.top, x, pane.bottom))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for dot in self._dots:
            painter.setPen(pen(current().plot, tokens.HOVER_EDGE))
            painter.setBrush(colour(dot.color))
            radius = (tokens.MARK_HOVER + tokens.HOVER_EDGE) / 2
            painter.drawEllipse(QPointF(x, dot.y), radius, radius)
        if self._chip:
            self._paint_chip(painter, layout, x)

    def _paint_chip(self, painter: QPainter, layout: Layout, x: float) -> None:
        palette, padding = current(), tokens.CHIP_PADDING
        width = round(text_width(self._chip, bold())) + 2 * padding
        left = round(min(max(x - width / 2, 0), layout.size.width() - width - tokens.GAP_1))
        middle = layout.bottom + (layout.size.height() - layout.bottom) / 2
        chip = QRectF(left + 0.5, round(middle - tokens.CHIP_HEIGHT / 2) + 0.5, width, tokens.CHIP_HEIGHT)
        for tick in self._ticks:
            if tick.intersects(chip):
                painter.fillRect(tick, colour(palette.plot))
        painter.setPen(pen(palette.border))
        painter.setBrush(colour(palette.raised))
        painter.drawRoundedRect(chip, tokens.RADIUS_INNER, tokens.RADIUS_INNER)
        painter.setPen(Qt.PenStyle.NoPen)
        draw_text(painter, left + padding + 0.5, chip.center().y(), self._chip, bold(), palette.t1)
