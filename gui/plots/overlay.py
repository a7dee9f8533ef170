"""What stands over the data of a plot: changes and failures, what is under the pointer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look import tokens
from gui.look.theme import colour, current
from gui.plots.layout import Layout, Overlay
from gui.plots.marks import Flag, Marks, PlacedMarks, placed_marks, settings_flags, visible, words_font
from gui.plots.paint import bold, draw_text, font, pen, text_width
from service.analysis.observed.annotations import Outage, SettingsMark

MIDDLE: Final = 1 + tokens.FLAG_HEIGHT / 2  # of flags and words


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
        self._placed: PlacedMarks | None = None

    def set_marks(self, layout: Layout, marks: Marks) -> None:
        self._placed = None
        super().set_marks(layout, marks)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        layout, marks = self._layout, self._marks
        if layout is None:
            return
        for outer in visible(marks.outer, layout):
            self._paint_line(painter, layout, outer.at_s, current().t2, tokens.DASH_LOAD, tokens.FLAG_ROW)
        for mark in visible(marks.settings, layout):
            self._paint_line(painter, layout, mark.at_s, current().t1, tokens.DASH_CHANGE, 0)
        if self._with_words:
            if self._placed is None:  # not anew for each move of the pointer
                self._placed = placed_marks(layout, marks)
            _paint_placed(painter, self._placed)
        else:
            for flag in settings_flags(layout, marks.settings):
                _paint_flag(painter, flag, 0)

    def _paint_line(
        self, painter: QPainter, layout: Layout, at_s: float, ink: str, dashes: tuple[int, int], below: int
    ) -> None:
        x = int(layout.x_of(at_s)) + 0.5
        painter.setPen(pen(ink, tokens.LINE_MARKER, dashes))
        for number, pane in enumerate(layout.panes):
            top = pane.top + (below if number == 0 and not self._with_words else 0)
            painter.drawLine(QLineF(x, top, x, pane.bottom))


def _outage_ink(outage: Outage) -> str:
    return current().t3 if outage.text == "gap" else current().error


def _paint_placed(painter: QPainter, placed: PlacedMarks) -> None:
    """The flags and words of the timeline; those of row 0 stand lowest."""
    lowest = (placed.rows - 1) * tokens.WORDS_ROW
    for flag in placed.flags:
        _paint_flag(painter, flag, lowest)
    for words in placed.words:
        middle = lowest - words.row * tokens.WORDS_ROW + MIDDLE
        draw_text(painter, words.left, middle, words.text, words_font(), words.ink)
        if words.mark is not None:
            room = placed.room_after(words) - tokens.GAP_3
            _paint_details(painter, words.right + tokens.GAP_3, middle, room, words.mark)


def _paint_flag(painter: QPainter, flag: Flag, top: int) -> None:
    ground, ink = current().primary, current().primary_text
    if isinstance(flag.of, Outage):
        ground, ink = _outage_ink(flag.of), current().plot
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour(ground))
    rect = QRectF(flag.left, top + 1, flag.right - flag.left, tokens.FLAG_HEIGHT)
    painter.drawRoundedRect(rect, tokens.RADIUS_FLAG, tokens.RADIUS_FLAG)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
    draw_text(painter, flag.left + tokens.FLAG_PADDING, top + MIDDLE, flag.text, bold(), ink)


def _paint_details(painter: QPainter, x: float, middle: float, room: float, mark: SettingsMark) -> None:
    """As much as there is room for, each of them as a whole."""
    briefly = mark.drained.removeprefix("old settings ")
    parts = ((mark.detail, mark.drained), (mark.detail, briefly), (mark.detail,))
    texts = (", ".join(filter(None, part)) for part in parts)
    text = next((text for text in texts if text_width(text, font()) <= room), "")
    draw_text(painter, x, middle, text, font(), current().t3)


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

    @property
    def at_s(self) -> float | None:
        """The moment that is pointed at."""
        return self._at_s

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
