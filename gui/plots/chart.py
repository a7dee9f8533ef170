"""What the plots have in common whose x axis is not time: their axis and their pointer."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, Signal

from gui.look.tokens import PLOT_AXIS, PLOT_BOTTOM, PLOT_GUTTER, PLOT_MARGIN_RIGHT
from gui.plots.layout import Layout, Pane
from gui.plots.marks import Marks
from gui.plots.overlay import Dot
from gui.plots.plot_widget import PlotWidget
from gui.series.declaration import Declaration
from gui.series.scale import Axis
from gui.series.time_axis import Tick
from gui.series.time_range import TimeRange


class Chart(PlotWidget):
    """A plot over an axis from 0, its left edge, to 1, its right one; subclasses say what lies between.

    Signals:
        pointed: a place on the axis, or ``None`` when the pointer left.
    """

    pointed = Signal(object)

    def __init__(self, plot: Declaration, has_axis: bool = True) -> None:
        super().__init__(plot)
        self._below = PLOT_AXIS if has_axis else PLOT_BOTTOM
        self._pointed: float | None = None
        self._layout: Layout | None = None
        self.canvas.pointed.connect(self._on_pointed)

    def show_readout(self, pointed: float | None) -> None:
        """Bring the legend up to date, for a place on the axis or at rest."""
        raise NotImplementedError

    def chip_at(self, _pointed: float) -> str:
        """What stands on the axis under the pointer."""
        return ""

    def dots_at(self, _layout: Layout, _pointed: float) -> Sequence[Dot]:
        return ()

    @property
    def columns(self) -> int:
        """Pixels that the axis is long."""
        return max(int(self.canvas.width()) - PLOT_GUTTER - PLOT_MARGIN_RIGHT, 1)

    @property
    def room(self) -> int:
        """Pixels that the y axis is high."""
        return max(int(self.canvas.height()) - self._below, 1)

    def set_empty(self, is_empty: bool) -> None:
        super().set_empty(is_empty)
        self.canvas.axes.setVisible(not is_empty)

    def laid_out(self, ticks: Sequence[Tick], axis: Axis) -> Layout:
        """Place grid and ticks; where everything lies from now on."""
        pane = Pane(0, self.room, self.plot.axis_units[0], axis)
        ratio = self.canvas.devicePixelRatioF()
        axis_range = TimeRange(0.0, 1.0, int(self.columns * ratio), ratio)
        self._layout = Layout(self.canvas.size(), (pane,), axis_range, tuple(ticks))
        self.canvas.set_layout(self._layout, Marks())
        self._show_pointer(self._layout)
        return self._layout

    def point_at(self, place: float | None) -> None:
        """Show the pointer's line at a place on the axis, or take it away."""
        self._pointed = place
        if self._layout is not None:
            self._show_pointer(self._layout)

    def _on_pointed(self, place: QPointF | None) -> None:
        layout = self._layout
        if place is None or layout is None or not layout.left <= place.x() <= layout.right:
            self.point_at(None)
        else:
            self.point_at(layout.time_at(place.x()))
        self.pointed.emit(self._pointed)

    def _show_pointer(self, layout: Layout) -> None:
        pointed = None if self._is_empty else self._pointed
        dots = () if pointed is None else self.dots_at(layout, pointed)
        chip = "" if pointed is None else self.chip_at(pointed)
        self.canvas.pointer.point(layout, pointed, dots, chip, self.canvas.axes.tick_rects)
        if not self._is_empty:
            self.show_readout(pointed)
