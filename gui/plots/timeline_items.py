"""What the timeline is made of: its bars as one picture, what stands around them, and how to read them, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, scaled
from gui.look.tokens import Palette
from gui.plots.layout import Layout, Overlay
from gui.plots.paint import blended, bold, draw_mark, draw_text, draw_text_before, font, image_of, pen, text_width
from gui.plots.plot_widget import ReadingHelp
from gui.series.declaration import SWATCHES
from gui.series.timeline import FIRST_RUNNING, STAGES, Block, LaneGrid, Lanes
from service.analysis.observed.one_batch import BatchSummary
from service.messages.text import UNKNOWN, format_number


class LanesItem(Overlay):
    """Whole pixels made by numpy: the cost does not grow with the number of requests."""

    _image: QImage | None = None

    def set_colors(self, palette: Palette) -> None:
        inks = [getattr(palette, stage) for stage in STAGES[1:]]
        self._bar = np.array([0, *(colour(ink).rgb() for ink in inks)], np.uint32)
        tints = (blended(ink, palette.plot, palette.bar_alpha).rgb() for ink in inks)
        self._between = np.array([0, *tints], np.uint32)
        self._between[:FIRST_RUNNING] = 0

    def set_stages(self, layout: Layout, stages: NDArray[np.int8], grid: LaneGrid) -> None:
        """Show these lanes, from the top of the plot on."""
        lanes, columns = stages.shape
        pixels = np.empty((lanes, grid.height, columns), np.uint32)
        bar_height = grid.height - tokens.LANE_GAP if grid.height > tokens.LANE_GAP else grid.height
        pixels[:, :bar_height] = self._bar[stages][:, None]
        if bar_height < grid.height:
            pixels[:, bar_height:] = self._between[stages][:, None]
        self._pixels = _stretched(pixels.reshape(lanes * grid.height, columns), layout.ratio)
        self._image = image_of(self._pixels, layout.ratio)
        self._lay_out(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        if self._layout is not None and self._image is not None:
            ratio = self._layout.ratio
            place = (self._layout.left, self._layout.top)
            painter.drawImage(QPointF(*(round(part * ratio) / ratio for part in place)), self._image)


def _stretched(pixels: NDArray[np.uint32], ratio: float) -> NDArray[np.uint32]:
    """As many rows as the screen has for them; lanes are whole pixels of the widget high."""
    if ratio == 1:
        return pixels
    rows = np.arange(round(len(pixels) * ratio))
    return pixels[np.minimum(((rows + 0.5) / ratio).astype(np.int64), len(pixels) - 1)]


class LaneSurroundings(Overlay):
    """Names of the replicas, outlines of the batch under the pointer and of the chosen request, the scroll bar.

    Attributes:
        outline, chosen: where these two stand; nothing where they are out of view.
    """

    def __init__(self) -> None:
        super().__init__(z=25)
        self._lanes: Lanes | None = None
        self._grid = LaneGrid(1, 1, 1)
        self._offset = 0
        self.outline: list[QRectF] = []
        self.chosen: list[QRectF] = []

    def set_lanes(
        self, layout: Layout, lanes: Lanes, grid: LaneGrid, offset: int, block: Block | None, bar: Block | None
    ) -> None:
        self._lanes, self._grid, self._offset = lanes, grid, offset
        self.outline, self.chosen = (self._rects_of(layout, each) if each is not None else [] for each in (block, bar))
        self._lay_out(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        if self._layout is None or self._lanes is None:
            return
        palette = current()
        self._paint_names(painter, self._layout, self._lanes, palette)
        painter.setPen(pen(palette.t1, tokens.LINE_MARKER))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for rect in self.outline:
            painter.drawRect(rect)
        for rect in self.chosen:  # two outlines, so that it stands out from bars of any colour beside it
            painter.setPen(pen(palette.plot, tokens.LINE_MARKER))
            painter.drawRect(rect.adjusted(-2, -2, 2, 1))
            painter.setPen(pen(palette.t1, tokens.LINE_MARKER))
            painter.drawRect(rect.adjusted(-1, -1, 1, 0))
        if self._grid.overflows:
            self._paint_scroll_bar(painter, self._layout, palette)

    def _paint_names(self, painter: QPainter, layout: Layout, lanes: Lanes, palette: Palette) -> None:
        for group in lanes.groups:
            middle = layout.top + (group.first - self._offset) * self._grid.height + tokens.FONT_CAPTION / 2
            if layout.top <= middle <= layout.bottom:
                draw_text_before(painter, layout.left - tokens.GAP_2, middle, group.replica, font(), palette.t3)

    def _paint_scroll_bar(self, painter: QPainter, layout: Layout, palette: Palette) -> None:
        height = layout.bottom - layout.top
        top = layout.top + height * self._offset / self._grid.total
        length = height * self._grid.shown / self._grid.total
        bar = QRectF(layout.far + tokens.GAP_2, top, tokens.LANE_SCROLL_BAR, length)
        painter.fillRect(bar, colour(palette.border))

    def _rects_of(self, layout: Layout, block: Block) -> list[QRectF]:
        left = max(int(layout.x_of(block.start_s)), layout.left) - 0.5
        right = min(int(layout.x_of(min(block.end_s, layout.view.end_s))), layout.right) + 0.5
        rects = []
        for first, last in block.spans():
            top = layout.top + (first - self._offset) * self._grid.height
            bottom = layout.top + (last + 1 - self._offset) * self._grid.height
            if right > left and bottom > layout.top and top < layout.bottom:
                rects.append(QRectF(left, top - 0.5, max(right - left, 2), bottom - top))
        return rects


CARD_HEIGHT: Final = 2 * tokens.CARD_PADDING + 4 * tokens.CARD_LINE


class BatchCard(Overlay):
    """Four lines on the batch under the pointer, beside it; invisible while there is none."""

    def __init__(self) -> None:
        super().__init__(z=40)
        self._batch: BatchSummary | None = None
        self._corner = QPointF()

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """What it says, as pairs of left and right."""
        return lines_of(self._batch) if self._batch is not None else ()

    def describe(self, batch: BatchSummary | None, layout: Layout, outline: Sequence[QRectF]) -> None:
        """Stand beside the outline, on the right where there is room."""
        if self._batch is None and batch is None:
            return
        self._batch = batch if outline else None
        if self._batch is not None:
            self._corner = _card_corner(layout, outline[-1])
        self._lay_out(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        batch, palette = self._batch, current()
        if batch is None:
            return
        card = QRectF(self._corner.x() + 0.5, self._corner.y() + 0.5, tokens.CARD_WIDTH - 1, CARD_HEIGHT - 1)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(pen(palette.border))
        painter.setBrush(colour(palette.raised))
        painter.drawRoundedRect(card, tokens.RADIUS_CONTROL, tokens.RADIUS_CONTROL)
        middle = self._corner.y() + tokens.CARD_PADDING + tokens.CARD_LINE / 2 - 1
        left = self._corner.x() + tokens.CARD_PADDING
        right = self._corner.x() + tokens.CARD_WIDTH - tokens.CARD_PADDING
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour(palette.release_reasons[batch.reason]))
        mark_size = tokens.MARK_SIZES["timeout"]
        draw_mark(painter, SWATCHES[batch.reason], round(left), round(middle), mark_size)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        strong, plain = (bold(tokens.FONT_TEXT), palette.t1), (font(tokens.FONT_TEXT), palette.t2)
        (title, reason), *lines = lines_of(batch)
        draw_text(painter, left + mark_size + tokens.GAP_2, middle, title, *strong)
        draw_text_before(painter, right, middle, reason, *plain)
        middle += 2
        for name, value in lines:
            middle += tokens.CARD_LINE
            draw_text(painter, left, middle, name, *plain)
            draw_text_before(painter, right, middle, value, *strong)


def _card_corner(layout: Layout, beside: QRectF) -> QPointF:
    x = beside.right() + tokens.CARD_DISTANCE
    if x + tokens.CARD_WIDTH > layout.size.width() - tokens.CARD_DISTANCE:
        x = beside.left() - tokens.CARD_DISTANCE - tokens.CARD_WIDTH
    y = max(min(beside.bottom(), layout.bottom) - CARD_HEIGHT, layout.top)
    return QPointF(round(max(x, tokens.CARD_DISTANCE)), round(y))


def lines_of(batch: BatchSummary) -> tuple[tuple[str, str], ...]:
    """The card in words."""
    rate = f", {batch.tokens / batch.ran_s:.0f}/s" if batch.ran_s else ""
    return (
        (f"Batch {batch.number}", f"{batch.reason}, {batch.size} of {batch.cap}"),
        ("waited", _span(batch.waited_s)),
        ("ran" if batch.finished_s is not None else "runs for", format_number(batch.ran_s, 2, "s")),
        (batch.unit, f"{batch.tokens}{rate}"),
    )


def _span(waited_s: tuple[float, float] | None) -> str:
    if waited_s is None:
        return UNKNOWN
    low, high = waited_s
    decimals = 2 if high < 1 else 1
    shortest, longest = f"{low:.{decimals}f}", f"{high:.{decimals}f}"
    return f"{longest} s" if shortest == longest else f"{shortest} to {longest} s"


# (arrival, start, end) as shares of the drawing's width; the last comes later and is a batch of its own
BARS: Final = ((0.0, 0.44, 0.79), (0.09, 0.44, 0.79), (0.22, 0.44, 0.79), (0.35, 0.44, 0.79), (0.70, 0.79, 1.0))
MEMBERS: Final = 4
SENTENCE: Final = (
    "Each request is a bar, each batch a block, coloured by why it was released. In continuous, each ends by itself."
)
REUSED: Final = "A row is used again once its request has ended, so it holds several, one after the other."


class HowToRead(ReadingHelp):
    """How to read the timeline, drawn where it will stand: five requests in two batches, with captions."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(f"{SENTENCE} {REUSED}", parent)

    def paint_help(self, painter: QPainter) -> None:
        width, line = min(scaled(tokens.HOW_TO_WIDTH), self.width() // 2), scaled(tokens.HOW_TO_LINE)
        left = (self.width() - width) // 2 - tokens.GAP_2
        block = len(BARS) * tokens.HOW_TO_PITCH
        caption = 2 * tokens.HOW_TO_PITCH
        top = max((self.height() - block - 2 * caption - line) // 2, tokens.GAP_1)
        self._paint_bars(painter, left, top, width)
        self._paint_captions(painter, left, top, width)
        sentence = font(tokens.FONT_TEXT)
        middle = top + block + caption + tokens.HOW_TO_PITCH
        for number, text in enumerate((SENTENCE, REUSED)):
            if middle + (number + 0.5) * line > self.height():
                break  # a line that is cut says less than none
            start = (self.width() - text_width(text, sentence)) / 2
            draw_text(painter, start, middle + number * line, text, sentence, current().t3)

    def _paint_bars(self, painter: QPainter, left: int, top: int, width: int) -> None:
        palette = current()
        for number, (arrived, started, ended) in enumerate(BARS):
            reason = palette.full if number < MEMBERS else palette.timeout
            y = top + number * tokens.HOW_TO_PITCH
            x0, x1, x2 = (left + round(share * width) for share in (arrived, started, ended))
            waits, runs = (blended(ink, palette.plot, tokens.HOW_TO_ALPHA) for ink in (palette.waiting, reason))
            painter.fillRect(x0, y, x1 - x0, tokens.HOW_TO_BAR, waits)
            painter.fillRect(x1 + 1, y, x2 - x1 - 1, tokens.HOW_TO_BAR, runs)

    def _paint_captions(self, painter: QPainter, left: int, top: int, width: int) -> None:
        started, ended = left + round(BARS[0][1] * width), left + round(BARS[0][2] * width)
        gap, first, ink = tokens.GAP_2, top + tokens.HOW_TO_BAR / 2, current().t2
        last, below = first + MEMBERS * tokens.HOW_TO_PITCH, top + (MEMBERS + 1) * tokens.HOW_TO_PITCH
        painter.fillRect(started, top - tokens.GAP_1, tokens.HAIRLINE, below + gap - top, colour(current().t3))
        draw_text_before(painter, started - gap, below, "waits in the queue", font(), ink)
        draw_text(painter, started + gap, below, "runs in its batch", font(), ink)
        draw_text(painter, ended + gap, first, "full: 4 of 4", font(), ink)
        draw_text(painter, left + width + gap, last, "timeout: 1 of 4", font(), ink)
