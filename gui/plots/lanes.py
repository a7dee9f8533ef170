"""The bars of the timeline as one picture, and what stands around it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.look.tokens import FONT_CAPTION, GAP_2, LANE_GAP, LANE_SCROLL_BAR, LINE_MARKER, Palette
from gui.plots.frame import Layout
from gui.plots.overlay import Overlay
from gui.plots.paint import blended, color, draw_text, font, pen, text_width
from gui.series.lanes import LaneGrid
from gui.series.timeline import FIRST_RUNNING, STAGES, Block, Lanes


class LanesItem(Overlay):
    """Whole pixels made by numpy: the cost does not grow with the number of requests."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._pixels: NDArray[np.uint32] | None = None
        self._image: QImage | None = None
        self.set_palette(palette)

    def set_palette(self, palette: Palette) -> None:
        super().set_palette(palette)
        self._bar = np.array([0] + [QColor(getattr(palette, stage)).rgb() for stage in STAGES[1:]], np.uint32)
        self._between = np.zeros_like(self._bar)
        for stage in range(FIRST_RUNNING, len(STAGES)):
            tint = blended(getattr(palette, STAGES[stage]), palette.plot, palette.bar_alpha)
            self._between[stage] = tint.rgb()

    def set_stages(self, layout: Layout, stages: NDArray[np.int8], grid: LaneGrid) -> None:
        """Show these lanes, from the top of the plot on."""
        lanes, columns = stages.shape
        pixels = np.empty((lanes, grid.height, columns), np.uint32)
        bar_height = grid.height - LANE_GAP if grid.height > LANE_GAP else grid.height
        pixels[:, :bar_height] = self._bar[stages][:, None]
        if bar_height < grid.height:
            pixels[:, bar_height:] = self._between[stages][:, None]
        self._pixels = _stretched(pixels.reshape(lanes * grid.height, columns), layout.ratio)
        kind = QImage.Format.Format_ARGB32_Premultiplied
        self._image = QImage(self._pixels.data, columns, len(self._pixels), 4 * columns, kind)
        self._image.setDevicePixelRatio(layout.ratio)
        self._lie(layout)

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
    """Names of the replicas, outlines of the batch under the pointer and of the chosen request, the scroll bar."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette, z=25)
        self._lanes: Lanes | None = None
        self._grid = LaneGrid(1, 1, 1)
        self._offset = 0
        self._outline: list[QRectF] = []
        self._chosen: list[QRectF] = []

    @property
    def chosen(self) -> list[QRectF]:
        """Where the chosen request stands; nothing where it is out of view."""
        return self._chosen

    @property
    def outline(self) -> list[QRectF]:
        return self._outline

    def set_lanes(
        self, layout: Layout, lanes: Lanes, grid: LaneGrid, offset: int, block: Block | None, bar: Block | None
    ) -> None:
        self._lanes, self._grid, self._offset = lanes, grid, offset
        self._outline, self._chosen = (
            self._rects_of(layout, each) if each is not None else [] for each in (block, bar)
        )
        self._lie(layout)

    def paint(self, painter: QPainter, _option: QStyleOptionGraphicsItem, _widget: QWidget | None = None) -> None:
        if self._layout is None or self._lanes is None:
            return
        self._paint_names(painter, self._layout, self._lanes)
        painter.setPen(pen(self._palette.t1, LINE_MARKER))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for rect in self._outline:
            painter.drawRect(rect)
        self._paint_chosen(painter)
        if self._grid.overflows:
            self._paint_scroll_bar(painter, self._layout)

    def _paint_names(self, painter: QPainter, layout: Layout, lanes: Lanes) -> None:
        used = font()
        for group in lanes.groups:
            middle = layout.top + (group.first - self._offset) * self._grid.height + FONT_CAPTION / 2
            if layout.top <= middle <= layout.bottom:
                left = layout.left - GAP_2 - text_width(group.replica, used)
                draw_text(painter, left, middle, group.replica, used, self._palette.t3)

    def _paint_chosen(self, painter: QPainter) -> None:
        """Two outlines, so that it stands out from bars of any colour beside it."""
        for rect in self._chosen:
            painter.setPen(pen(self._palette.plot, LINE_MARKER))
            painter.drawRect(rect.adjusted(-2, -2, 2, 1))
            painter.setPen(pen(self._palette.t1, LINE_MARKER))
            painter.drawRect(rect.adjusted(-1, -1, 1, 0))

    def _paint_scroll_bar(self, painter: QPainter, layout: Layout) -> None:
        height = layout.bottom - layout.top
        top = layout.top + height * self._offset / self._grid.total
        length = height * self._grid.shown / self._grid.total
        painter.fillRect(QRectF(layout.right + GAP_2, top, LANE_SCROLL_BAR, length), color(self._palette.border))

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
