"""What the plots have in common whose x axis is not time: header, canvas, axis and pointer."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from gui.look.tokens import PLOT_AXIS, PLOT_BOTTOM, PLOT_GUTTER, PLOT_MARGIN_RIGHT, Palette
from gui.plots.canvas import Canvas
from gui.plots.frame import Layout, Strip
from gui.plots.header import Header
from gui.plots.marks import Marks
from gui.plots.panel import EmptyText
from gui.plots.pointer import Dot
from gui.series.declaration import Declaration
from gui.series.scale import Axis
from gui.series.time_axis import Tick
from gui.series.time_range import TimeRange

NO_MARKS = Marks()


class Chart(QWidget):
    """A plot over an axis from 0, its left edge, to 1, its right one; subclasses say what lies between.

    Attributes:
        canvas, header: its two parts.

    Signals:
        pointed: a place on the axis, or ``None`` when the pointer left.
    """

    pointed = Signal(object)

    def __init__(
        self, plot: Declaration, palette: Palette, parent: QWidget | None = None, has_axis: bool = True
    ) -> None:
        super().__init__(parent)
        self.plot = plot
        self.palette_ = palette
        self.setObjectName(plot.name)
        self.setAccessibleName(plot.title)
        self._below = PLOT_AXIS if has_axis else PLOT_BOTTOM
        self._pointed: float | None = None
        self._layout: Layout | None = None
        self._is_empty = False
        self.header = Header(plot, palette)
        self.canvas = Canvas(palette, strips=1, with_words=False)
        self._empty = EmptyText(plot.empty_text, palette, self.canvas)
        self._empty.hide()
        self._lay_out()
        self.canvas.pointed.connect(self._on_pointed)
        self.canvas.resized.connect(self._on_resized)

    def _lay_out(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.header)
        layout.addWidget(self.canvas, 1)

    # ----------------------------------------------------------------------------------------------- for subclasses

    # Not an ABC: its metaclass and Qt's exclude each other.

    def draw(self) -> None:
        """Show the data once more: room or colours have changed."""
        raise NotImplementedError

    def set_colors(self, palette: Palette) -> None:
        """Give every item of the data its colours."""
        raise NotImplementedError

    def show_readout(self, pointed: float | None) -> None:
        """Bring the legend up to date, for a place on the axis or at rest."""
        raise NotImplementedError

    def chip_at(self, _pointed: float) -> str:
        """What stands on the axis under the pointer."""
        return ""

    def dots_at(self, _layout: Layout, _pointed: float) -> Sequence[Dot]:
        return ()

    # -------------------------------------------------------------------------------------------------------- public

    @property
    def columns(self) -> int:
        """Pixels that the axis is long."""
        return max(int(self.canvas.width()) - PLOT_GUTTER - PLOT_MARGIN_RIGHT, 1)

    @property
    def room(self) -> int:
        """Pixels that the y axis is high."""
        return max(int(self.canvas.height()) - self._below, 1)

    def set_palette(self, palette: Palette) -> None:
        self.palette_ = palette
        self.header.set_palette(palette)
        self.canvas.set_palette(palette)
        self._empty.set_palette(palette)
        self.set_colors(palette)
        self.draw()

    def set_empty(self, is_empty: bool) -> None:
        """Say what will be shown instead of showing it."""
        self._is_empty = is_empty
        self._empty.setVisible(is_empty)
        self.canvas.show_data(not is_empty)
        self.canvas.frame.setVisible(not is_empty)
        if is_empty:
            self.header.show_readout({})
            self.header.forget_widths()

    def laid_out(self, ticks: Sequence[Tick], axis: Axis) -> Layout:
        """Place grid and ticks; where everything lies from now on."""
        strip = Strip(0, self.room, self.plot.axis_units[0], axis)
        ratio = self.canvas.devicePixelRatioF()
        axis_range = TimeRange(0.0, 1.0, int(self.columns * ratio), ratio)
        self._layout = Layout(self.canvas.size(), (strip,), axis_range, tuple(ticks))
        self.canvas.set_layout(self._layout, NO_MARKS)
        self._show_pointer(self._layout)
        return self._layout

    def point_at(self, place: float | None) -> None:
        """Show the pointer's line at a place on the axis, or take it away."""
        self._pointed = place
        if self._layout is not None:
            self._show_pointer(self._layout)

    # --------------------------------------------------------------------------------------------------------- inner

    def _on_pointed(self, place: QPointF | None) -> None:
        layout = self._layout
        is_inside = place is not None and layout is not None and layout.left <= place.x() <= layout.right
        self.point_at(layout.time_at(place.x()) if is_inside and layout is not None and place is not None else None)
        self.pointed.emit(self._pointed)

    def _show_pointer(self, layout: Layout) -> None:
        pointed = None if self._is_empty else self._pointed
        dots = () if pointed is None else self.dots_at(layout, pointed)
        chip = "" if pointed is None else self.chip_at(pointed)
        self.canvas.pointer.point(layout, pointed, dots, chip, self.canvas.frame.tick_rects)
        if not self._is_empty:
            self.show_readout(pointed)

    def _on_resized(self) -> None:
        self._empty.setGeometry(self.canvas.rect())
        self.draw()
