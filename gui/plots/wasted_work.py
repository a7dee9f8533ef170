"""The plot of wasted work."""

from __future__ import annotations

from gui.look.theme import current
from gui.look.tokens import Palette
from gui.plots.columns import ColumnsItem, Ink, plain_layer
from gui.plots.layout import Layout
from gui.plots.paint import blended
from gui.plots.panel import PlotPanel
from gui.series import wasted_work
from gui.series.declaration import Readout
from gui.series.scale import StepScale
from gui.series.scope import present_scope
from gui.series.time_range import TimeRange
from gui.series.wasted_work import WastedOverTime
from service.analysis.observed.history import History


class WastedWorkPanel(PlotPanel):
    """Two areas: places of rows that had ended, and padding on top of them."""

    def __init__(self, history: History) -> None:
        super().__init__(wasted_work.PLOT, [StepScale()], history, has_axis=True)
        self._wasted: WastedOverTime | None = None
        self._areas = ColumnsItem()
        self.canvas.add_data(self._areas)
        self.set_colors(current())

    def set_colors(self, palette: Palette) -> None:
        self._padding, self._vacant = (
            Ink.of(blended(ink, palette.plot, palette.fill_alpha)) for ink in (palette.t2, palette.t3)
        )

    def compute(self, view: TimeRange) -> tuple[float, ...]:
        self._wasted = wasted_work.wasted_over_time(self.history, view)
        return (self._wasted.peak,)

    def draw(self, layout: Layout) -> None:
        assert self._wasted is not None
        self.header.declare(wasted_work.declared(self._wasted))
        pane, found = layout.sharp_pane(), self._wasted
        layers = [
            plain_layer(self._padding, pane, found.vacant + found.padding),
            plain_layer(self._vacant, pane, found.vacant),
        ]
        self._areas.set_layers(layout, pane, layers)

    def readout_now(self) -> Readout:
        view = self.layout_.view if self.layout_ is not None else None
        scope = present_scope(self.history, view.end_s, view.span_s) if view is not None else None
        return wasted_work.readout(wasted_work.wasted(self.history, scope)) if scope is not None else {}

    def readout_at(self, at_s: float) -> Readout:
        if self._wasted is None or self.layout_ is None:
            return {}
        view = self.layout_.view
        column = min(max(int(view.position(at_s)), 0), view.columns - 1)
        found = wasted_work.Wasted(float(self._wasted.vacant[column]), float(self._wasted.padding[column]))
        return wasted_work.readout(found)
