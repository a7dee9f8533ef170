"""The line above a plot: its title on the left, its legend on the right, which is also where values are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look.tokens import (
    DASH_CAP,
    FONT_TITLE,
    GAP_1,
    GAP_2,
    HEIGHT_PANEL_HEADER,
    LEGEND_GAP,
    LEGEND_LINE,
    LEGEND_LINE_WIDTH,
    LEGEND_SWATCH,
    LINE_WIDTHS,
    MARK_SIZES,
    PANEL_PADDING,
    PLOT_MARGIN_RIGHT,
    Palette,
)
from gui.plots.paint import bold, caret, diamond, draw_text, font, pen, text_width, triangle
from gui.series.declaration import Declaration, Entry, Readout

LINES: Final = ("line", "dash", "lane")
SLANTED: Final = ("circle", "triangle", "diamond", "caret")


@dataclass(frozen=True)
class _Placed:
    """An entry of the legend and where it stands."""

    entry: Entry
    value: str
    left: float
    width: float


class Header(QWidget):
    """Drops first its unit and then the values where it lacks room, never its title or the glyphs."""

    def __init__(self, plot: Declaration, palette: Palette, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._plot = plot
        self.setAccessibleName(plot.title)
        self._palette = palette
        self._readout: Readout = {}
        self._hides_missing = False
        self._widest: dict[str, float] = {}
        self.setFixedHeight(HEIGHT_PANEL_HEADER)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)

    @property
    def readout(self) -> Readout:
        return self._readout

    def set_palette(self, palette: Palette) -> None:
        self._palette = palette
        self.update()

    def declare(self, plot: Declaration) -> None:
        """The plot shows other things from now on."""
        if plot != self._plot:
            self._plot = plot
            self.setAccessibleName(plot.title)
            self.forget_widths()
            self.update()

    def show_readout(self, readout: Readout, hides_missing: bool = False) -> None:
        """Show these values; with `hides_missing` only the entries that have one."""
        if readout != self._readout or hides_missing != self._hides_missing:
            self._readout, self._hides_missing = dict(readout), hides_missing
            self.update()

    def forget_widths(self) -> None:
        """Values that were wider before need not keep their room any longer."""
        self._widest.clear()

    def sizeHint(self) -> QSize:
        return QSize(0, HEIGHT_PANEL_HEADER)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._palette.plot))
        middle = self.height() / 2
        title, unit = bold(FONT_TITLE), font()
        draw_text(painter, PANEL_PADDING, middle, self._plot.title, title, self._palette.t1)
        title_end = PANEL_PADDING + text_width(self._plot.title, title)
        legend = self._legend(self.width() - PLOT_MARGIN_RIGHT - title_end - LEGEND_GAP)
        legend_start = legend[0].left if legend else self.width() - PLOT_MARGIN_RIGHT
        unit_start = title_end + GAP_2 + GAP_1 / 2
        if self._plot.unit and unit_start + text_width(self._plot.unit, unit) + LEGEND_GAP <= legend_start:
            draw_text(painter, unit_start, middle, self._plot.unit, unit, self._palette.t3)
        for placed in legend:
            self._paint_entry(painter, placed, middle)
        painter.end()

    def _legend(self, room: float) -> list[_Placed]:
        """The entries from left to right, with their values if there is room."""
        with_values = self._place(with_values=True)
        if not with_values or self.width() - PLOT_MARGIN_RIGHT - with_values[0].left <= room:
            return with_values
        return self._place(with_values=False)

    def _place(self, with_values: bool) -> list[_Placed]:
        placed: list[_Placed] = []
        right = float(self.width() - PLOT_MARGIN_RIGHT)
        for entry in reversed(self._plot.entries):
            if self._hides_missing and entry.name not in self._readout:
                continue
            value = self._readout.get(entry.name, "") if with_values else ""
            width = _swatch_width(entry) + text_width(entry.name, font())
            if value:
                width += GAP_2 - 2 + self._value_width(entry.name, value)
            placed.insert(0, _Placed(entry, value, right - width, width))
            right -= width + LEGEND_GAP
        return placed

    def _value_width(self, name: str, value: str) -> float:
        """The most room that the entry's value has needed so far, so that the legend does not shift as it counts."""
        self._widest[name] = max(self._widest.get(name, 0.0), text_width(value, bold()))
        return self._widest[name]

    def _paint_entry(self, painter: QPainter, placed: _Placed, middle: float) -> None:
        x = placed.left
        self._paint_swatch(painter, placed.entry, x, middle)
        x += _swatch_width(placed.entry)
        draw_text(painter, x, middle, placed.entry.name, font(), self._palette.t2)
        if placed.value:
            start = placed.left + placed.width - text_width(placed.value, bold())
            draw_text(painter, start, middle, placed.value, bold(), self._palette.t1)

    def _paint_swatch(self, painter: QPainter, entry: Entry, x: float, middle: float) -> None:
        ink = QColor(getattr(self._palette, entry.color))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, entry.swatch in SLANTED)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(ink)
        y = round(middle)
        match entry.swatch:
            case "square" | "area":
                size = MARK_SIZES.get(entry.name, LEGEND_SWATCH) if entry.swatch == "square" else LEGEND_SWATCH
                painter.drawRect(QRectF(x, y - size // 2, size, size))
            case "circle":
                painter.drawEllipse(QPointF(x + LEGEND_SWATCH / 2, middle), LEGEND_SWATCH / 2, LEGEND_SWATCH / 2)
            case "triangle":
                painter.drawPolygon(triangle(x, middle, MARK_SIZES[entry.name]))
            case "diamond":
                painter.drawPolygon(diamond(x, middle, MARK_SIZES[entry.name]))
            case "caret":
                painter.drawPolygon(caret(x, middle, MARK_SIZES[entry.name]))
            case "line":
                width = LINE_WIDTHS.get(entry.name, LEGEND_LINE_WIDTH)
                painter.setRenderHint(QPainter.RenderHint.Antialiasing)
                painter.setPen(pen(ink.name(), width))
                painter.drawLine(QPointF(x, middle), QPointF(x + LEGEND_LINE, middle))
            case "lane":
                painter.drawRect(QRectF(x, y - 1, LEGEND_LINE, LEGEND_LINE_WIDTH))
            case "dash":
                painter.setPen(pen(ink.name(), 1, DASH_CAP))
                painter.drawLine(int(x), y, int(x) + LEGEND_LINE + GAP_2 // 2, y)
            case _:
                pass
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)


def _swatch_width(entry: Entry) -> float:
    if entry.swatch == "none":
        return 0.0
    if entry.swatch == "dash":
        return LEGEND_LINE + GAP_2
    return (LEGEND_LINE if entry.swatch in LINES else LEGEND_SWATCH) + GAP_2 - 2
