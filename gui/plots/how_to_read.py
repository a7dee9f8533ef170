"""How to read the timeline, drawn where it will stand."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gui.look.tokens import (
    FONT_TEXT,
    GAP_1,
    GAP_2,
    HAIRLINE,
    HOW_TO_ALPHA,
    HOW_TO_BAR,
    HOW_TO_PITCH,
    HOW_TO_WIDTH,
    Palette,
)
from gui.plots.paint import blended, draw_text, font, text_width

# (arrival, start, end) as shares of the drawing's width; the last comes later and is a batch of its own
BARS: Final = ((0.0, 0.44, 0.79), (0.09, 0.44, 0.79), (0.22, 0.44, 0.79), (0.35, 0.44, 0.79), (0.70, 0.79, 1.0))
MEMBERS: Final = 4
SENTENCE: Final = (
    "Each request is a bar, each batch a block, coloured by why it was released. In continuous, each ends by itself."
)


class HowToRead(QWidget):
    """Five requests in two batches, with captions."""

    def __init__(self, palette: Palette, parent: QWidget) -> None:
        super().__init__(parent)
        self._palette = palette
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAccessibleName(SENTENCE)

    def set_palette(self, palette: Palette) -> None:
        self._palette = palette
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        width = min(HOW_TO_WIDTH, self.width() // 2)
        left = (self.width() - width) // 2 - GAP_2
        block = len(BARS) * HOW_TO_PITCH
        caption = 2 * HOW_TO_PITCH
        top = max((self.height() - block - 2 * caption) // 2, GAP_1)
        self._paint_bars(painter, left, top, width)
        self._paint_captions(painter, left, top, width)
        sentence = font(FONT_TEXT)
        middle = top + block + caption + HOW_TO_PITCH
        start = (self.width() - text_width(SENTENCE, sentence)) / 2
        draw_text(painter, start, middle, SENTENCE, sentence, self._palette.t3)
        painter.end()

    def _paint_bars(self, painter: QPainter, left: int, top: int, width: int) -> None:
        for number, (arrived, started, ended) in enumerate(BARS):
            reason = self._palette.full if number < MEMBERS else self._palette.timeout
            y = top + number * HOW_TO_PITCH
            x0, x1, x2 = (left + round(share * width) for share in (arrived, started, ended))
            painter.fillRect(x0, y, x1 - x0, HOW_TO_BAR, self._muted(self._palette.waiting))
            painter.fillRect(x1 + 1, y, x2 - x1 - 1, HOW_TO_BAR, self._muted(reason))

    def _paint_captions(self, painter: QPainter, left: int, top: int, width: int) -> None:
        started, ended = left + round(BARS[0][1] * width), left + round(BARS[0][2] * width)
        used = font()
        below = top + MEMBERS * HOW_TO_PITCH + HOW_TO_PITCH
        painter.fillRect(started, top - GAP_1, HAIRLINE, below + GAP_2 - top, QColor(self._palette.t3))
        waits = "waits in the queue"
        draw_text(painter, started - GAP_2 - text_width(waits, used), below, waits, used, self._palette.t2)
        draw_text(painter, started + GAP_2, below, "runs in its batch", used, self._palette.t2)
        draw_text(painter, ended + GAP_2, top + HOW_TO_BAR / 2, "full: 4 of 4", used, self._palette.t2)
        later = QPointF(left + width + GAP_2, top + MEMBERS * HOW_TO_PITCH + HOW_TO_BAR / 2)
        draw_text(painter, later.x(), later.y(), "timeout: 1 of 4", used, self._palette.t2)

    def _muted(self, ink: str) -> QColor:
        return blended(ink, self._palette.plot, HOW_TO_ALPHA)
