"""The line above a plot: its title on the left, its legend on the right, which is also where values are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Protocol

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QHelpEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from gui.look import glossary, tokens
from gui.look.theme import colour, current
from gui.look.tokens import Palette
from gui.plots.paint import bold, draw_mark, draw_text, draw_text_before, font, pen, swatch_rect, text_width
from gui.series.declaration import Declaration, Entry, Readout

LINES: Final = ("line", "dash", "lane")
USUAL_VALUE: Final = "0.00"
SOFT: Final = ("line", "circle", "triangle", "diamond", "caret")


@dataclass(frozen=True)
class _Placed:
    """An entry of the legend and where it stands."""

    entry: Entry
    value: str
    left: float
    width: float
    is_named: bool = True


class HeaderChoice(Protocol):
    """A widget in a header, by which the user chooses what the plot shows."""

    def setParent(self, parent: QWidget) -> None: ...

    def isHidden(self) -> bool: ...

    def geometry(self) -> QRect: ...

    def take(self, left: int, rooms: Sequence[int], height: int) -> None:
        """Stand at `left` in a header of this height, in the first of these rooms in which that is possible."""


class Header(QWidget):
    """Drops first its unit, then the values and at last the names where it lacks room, never its title or the glyphs.

    It stands closer before it drops values or names.

    A chooser of what the plot shows stands after the title.

    Attributes:
        readout: the values that it shows.
        is_dimmed: whether they are greyed out, since they are out of date.
    """

    help_wanted = Signal()  # or no longer: its title was clicked

    def __init__(self, plot: Declaration) -> None:
        super().__init__()
        self._plot = plot
        self.setMouseTracking(True)
        self.setAccessibleName(plot.title)
        self.readout: Readout = {}
        self.is_dimmed = False
        self._hides_missing = False
        self._widest: dict[str, float] = {}
        self._chooser: HeaderChoice | None = None
        self.setFixedHeight(tokens.HEIGHT_PANEL_HEADER)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)

    def put(self, chooser: HeaderChoice) -> None:
        """Let the user choose there what the plot shows."""
        self._chooser = chooser
        chooser.setParent(self)

    def declare(self, plot: Declaration) -> None:
        """The plot shows other things from now on."""
        if plot != self._plot:
            self._plot = plot
            self.setAccessibleName(plot.title)
            self.forget_widths()
            self._place_chooser()
            self.update()

    def show_readout(self, readout: Readout, hides_missing: bool = False) -> None:
        """Show these values; with `hides_missing` only the entries that have one."""
        if readout != self.readout or hides_missing != self._hides_missing:
            self.readout, self._hides_missing = dict(readout), hides_missing
            self.update()

    def set_dimmed(self, is_dimmed: bool) -> None:
        """Grey the values out, once they are out of date."""
        if is_dimmed != self.is_dimmed:
            self.is_dimmed = is_dimmed
            self.update()

    @property
    def _seen(self) -> list[Entry]:
        return [each for each in self._plot.entries if not self._hides_missing or each.name in self.readout]

    @property
    def shown_names(self) -> list[str]:
        """Those of the names that there is room for."""
        return [placed.entry.name for placed in self._legend() if placed.is_named]

    @property
    def shown_values(self) -> Readout:
        """Those of the values that there is room for."""
        return {placed.entry.name: placed.value for placed in self._legend() if placed.value}

    def forget_widths(self) -> None:
        """Values that were wider before need not keep their room any longer."""
        self._widest.clear()

    def sizeHint(self) -> QSize:
        return QSize(0, tokens.HEIGHT_PANEL_HEADER)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, palette = QPainter(self), current()
        painter.fillRect(self.rect(), colour(palette.plot))
        middle = self.height() / 2
        title, unit = bold(tokens.FONT_TITLE), font()
        draw_text(painter, tokens.PANEL_PADDING, middle, self._plot.title, title, palette.t1)
        title_end = self._title_end()
        legend = self._legend()
        legend_start = legend[0].left if legend else self.width() - tokens.PLOT_MARGIN_RIGHT
        unit_start = title_end + tokens.GAP_2 + tokens.GAP_1 / 2
        if self._plot.unit and unit_start + text_width(self._plot.unit, unit) + tokens.LEGEND_GAP <= legend_start:
            draw_text(painter, unit_start, middle, self._plot.unit, unit, palette.t3)
        for placed in legend:
            _paint_entry(painter, placed, middle, palette, palette.t3 if self.is_dimmed else palette.t1)
        painter.end()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        shapes = Qt.CursorShape.ArrowCursor, Qt.CursorShape.PointingHandCursor
        self.setCursor(shapes[self._is_title(event.position().x())])

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if self._is_title(event.position().x()):
            self.help_wanted.emit()

    def _is_title(self, x: float) -> bool:
        return x <= self._title_end(with_chooser=False)

    def event(self, event: QEvent) -> bool:
        """Say what the entry under the pointer is, or of the title how the plot is read."""
        if event.type() == QEvent.Type.LayoutRequest:  # the chooser's words have become larger or smaller
            self._place_chooser()
        if event.type() != QEvent.Type.ToolTip or not isinstance(event, QHelpEvent):
            return super().event(event)
        QToolTip.showText(event.globalPos(), self.tip_at(event.pos().x()), self)
        return True

    def tip_at(self, x: float) -> str:
        """What is said there on hover."""
        if self._is_title(x):
            return f"{glossary.PLOTS[self._plot.name]}.\nClick to have this in the plot."
        return next((each.entry.tip for each in self._legend() if each.left <= x <= each.left + each.width), "")

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:  # the type may be smaller now
            self.forget_widths()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_chooser()

    def _place_chooser(self) -> None:
        if self._chooser is not None:
            left = round(self._title_end(with_chooser=False)) + tokens.GAP_2
            legends = (True, True), (False, True), (False, False)  # with values, with names
            rooms = [round(self._legend_start(*legend)) - tokens.GAP_2 - left for legend in legends]
            self._chooser.take(left, rooms, self.height())

    def _legend_start(self, with_values: bool, with_names: bool) -> float:
        """Where the legend begins with all that it may name one day, and values of the usual width."""
        entries = self._plot.entries
        placed = self._place(with_values, with_names, gap=tokens.GAP_2, entries=entries, missing=USUAL_VALUE)
        return placed[0].left if placed else float(self.width())

    def _title_end(self, with_chooser: bool = True) -> float:
        """Where the legend may begin at the earliest."""
        if with_chooser and self._chooser is not None and not self._chooser.isHidden():
            return self._chooser.geometry().right()
        return tokens.PANEL_PADDING + text_width(self._plot.title, bold(tokens.FONT_TITLE))

    def _legend(self) -> list[_Placed]:
        """The entries from left to right, with their values and names if there is room."""
        room = self.width() - tokens.PLOT_MARGIN_RIGHT - self._title_end() - tokens.LEGEND_GAP
        for with_values, gap in product((True, False), (tokens.LEGEND_GAP, tokens.GAP_2)):
            placed = self._place(with_values, gap=gap)
            if not placed or self.width() - tokens.PLOT_MARGIN_RIGHT - placed[0].left <= room + tokens.LEGEND_GAP - gap:
                return placed
        return self._place(with_values=False, with_names=False, gap=tokens.GAP_2)

    def _place(
        self,
        with_values: bool,
        with_names: bool = True,
        gap: int = tokens.LEGEND_GAP,
        entries: Sequence[Entry] | None = None,
        missing: str = "",
    ) -> list[_Placed]:
        """The legend at its right end, of these `entries`, or of those that are not hidden.

        `missing` stands where an entry has no value.
        """
        placed: list[_Placed] = []
        right = float(self.width() - tokens.PLOT_MARGIN_RIGHT)
        for entry in reversed(self._seen if entries is None else entries):
            value = self.readout.get(entry.name, missing if entry.has_value else "") if with_values else ""
            is_named = with_names or entry.swatch == "none"
            width = _swatch_width(entry) + (text_width(entry.name, font()) if is_named else 2 - tokens.GAP_2)
            if value:
                width += tokens.GAP_2 - 2 + self._value_width(entry.name, value)
            placed.insert(0, _Placed(entry, value, right - width, width, is_named))
            right -= width + gap
        return placed

    def _value_width(self, name: str, value: str) -> float:
        """The most room that the entry's value has needed so far, so that the legend does not shift as it counts."""
        self._widest[name] = max(self._widest.get(name, 0.0), text_width(value, bold()))
        return self._widest[name]


def _paint_entry(painter: QPainter, placed: _Placed, middle: float, palette: Palette, ink: str) -> None:
    entry = placed.entry
    _paint_swatch(painter, entry, placed.left, middle, getattr(palette, entry.color))
    if placed.is_named:
        draw_text(painter, placed.left + _swatch_width(entry), middle, entry.name, font(), palette.t2)
    draw_text_before(painter, placed.left + placed.width, middle, placed.value, bold(), ink)


def _paint_swatch(painter: QPainter, entry: Entry, x: float, middle: float, ink: str) -> None:
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, entry.swatch in SOFT)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour(ink))
    y = round(middle)
    match entry.swatch:
        case "area":
            painter.drawRect(swatch_rect(x, middle))
        case "line":
            painter.setPen(pen(ink, tokens.LINE_WIDTHS.get(entry.name, tokens.LEGEND_LINE_WIDTH)))
            painter.drawLine(QPointF(x, middle), QPointF(x + tokens.LEGEND_LINE, middle))
        case "lane":
            painter.drawRect(QRectF(x, y - 1, tokens.LEGEND_LINE, tokens.LEGEND_LINE_WIDTH))
        case "dash" | "dots":
            painter.setPen(pen(ink, 1, tokens.DASH_CAP if entry.swatch == "dash" else tokens.DASH_DOTS))
            painter.drawLine(int(x), y, int(x) + tokens.LEGEND_LINE + tokens.GAP_2 // 2, y)
        case _:
            draw_mark(painter, entry.swatch, x, middle, tokens.MARK_SIZES.get(entry.name, tokens.LEGEND_SWATCH))
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)


def _swatch_width(entry: Entry) -> float:
    if entry.swatch == "none":
        return 0.0
    if entry.swatch in ("dash", "dots"):
        return tokens.LEGEND_LINE + tokens.GAP_2
    return (tokens.LEGEND_LINE if entry.swatch in LINES else tokens.LEGEND_SWATCH) + tokens.GAP_2 - 2
