"""A value that the reader of a lesson guesses: a line with a handle, which is dragged."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look import tokens
from gui.look.theme import colour, current
from gui.plots.layout import Layout, Overlay
from gui.plots.paint import bold, draw_text, pen, text_width


class Guess(NamedTuple):
    """The value, in a pane of a plot, and what is said of it."""

    pane: int
    value: float
    words: str


class GuessItem(Overlay):
    """Right of now, or where nothing is shown there across the plot; nothing as long as there is no guess."""

    def __init__(self) -> None:
        super().__init__(z=25)
        self._guess: Guess | None = None

    def show_guess(self, layout: Layout, guess: Guess | None) -> None:
        if guess is not None or self._guess is not None:
            self._guess = guess
            self._lay_out(layout)

    def is_at(self, place: QPointF) -> bool:
        """Whether the pointer would take hold of it."""
        layout, guess = self._layout, self._guess
        if layout is None or guess is None:
            return False
        is_beside = self._left(layout) <= place.x() <= layout.far
        return is_beside and abs(place.y() - self._y(layout, guess)) <= tokens.GUESS_RING / 2

    def value_at(self, y: float) -> float:
        """The value at a height of the canvas; within the axis."""
        assert self._layout is not None
        assert self._guess is not None
        pane = self._layout.panes[self._guess.pane]
        assert pane.axis is not None
        return min(max((pane.bottom - y) / pane.height, 0.0), 1.0) * pane.axis.top

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        layout, guess = self._layout, self._guess
        if layout is None or guess is None:
            return
        palette, left, y = current(), self._left(layout), self._y(layout, guess)
        painter.setPen(pen(palette.t1, tokens.LINE_GHOST))
        painter.drawLine(QLineF(left, y, layout.far, y))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        middle = QPointF(left + tokens.GUESS_RING, y)
        painter.setBrush(colour(palette.plot))
        painter.drawEllipse(middle, tokens.GUESS_RING / 2, tokens.GUESS_RING / 2)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour(palette.t1))
        painter.drawEllipse(middle, tokens.GUESS_HANDLE / 2, tokens.GUESS_HANDLE / 2)
        self._paint_flag(painter, layout, guess, y)

    def _paint_flag(self, painter: QPainter, layout: Layout, guess: Guess, y: float) -> None:
        """At the far end, above the line, or below it where it would stand out of the plot."""
        width = text_width(guess.words, bold()) + 2 * tokens.FLAG_PADDING
        above = y - tokens.GAP_1 - tokens.FLAG_HEIGHT
        top = above if above >= layout.panes[guess.pane].top else y + tokens.GAP_1
        rect = QRectF(layout.far - width, top, width, tokens.FLAG_HEIGHT)
        painter.setBrush(colour(current().primary))
        painter.drawRoundedRect(rect, tokens.RADIUS_FLAG, tokens.RADIUS_FLAG)
        ink = current().primary_text
        draw_text(painter, rect.left() + tokens.FLAG_PADDING, rect.center().y(), guess.words, bold(), ink)

    def _left(self, layout: Layout) -> int:
        return layout.right if layout.has_ahead else layout.left

    def _y(self, layout: Layout, guess: Guess) -> float:
        pane = layout.panes[guess.pane]
        return min(max(pane.y_of(guess.value), pane.top), pane.bottom)
