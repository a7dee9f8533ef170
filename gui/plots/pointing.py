"""What of the plots is pointed at: a place under the pointer, or a batch that was picked by key."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, QPointF, Signal

from gui.plots.panel import PlotPanel
from gui.plots.timeline import TimelinePanel
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import batch_running, batch_summary


class Pointing(QObject):
    """Shown in all plots at once; a place stays while time runs on, a batch takes the pointer along.

    Attributes:
        selected: the row of the batch that was picked by key.
        hovered: the row of the batch that the plots describe, picked or under the pointer.

    Signals:
        batch_hovered: the id of that batch, or ``None``.
    """

    batch_hovered = Signal(object)

    def __init__(
        self,
        history: History,
        panels: Sequence[PlotPanel],
        batch_size: PlotPanel,
        timeline: TimelinePanel,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._history = history
        self._panels = panels
        self._batch_size = batch_size
        self._timeline = timeline
        self._ago_s: float | None = None
        self._panel: PlotPanel | None = None
        self._place = QPointF()
        self._at_s: float | None = None
        self._looked_at: object = None
        self.selected: int | None = None
        self.hovered: int | None = None

    @property
    def is_at_something(self) -> bool:
        return self._ago_s is not None or self.selected is not None

    @property
    def at_s(self) -> float | None:
        """The moment that is pointed at, on the service's clock."""
        if self.selected is not None:
            batch = batch_summary(self._history, self.selected)
            if batch is None or batch.started_s is None:
                return None
            return batch.started_s + (batch.ran_s or 0.0) / 2
        end_s = self._timeline.end_s
        return None if self._ago_s is None or end_s is None else end_s - self._ago_s

    def point(self, panel: PlotPanel, place: QPointF | None) -> None:
        """At a place on the canvas of a plot, or at nothing."""
        at_s = panel.time_at(place) if place is not None else None
        self.selected = None
        end_s = panel.end_s
        if at_s is None or place is None or end_s is None:
            self.forget()
            return
        self._panel, self._place, self._ago_s = panel, place, end_s - at_s
        self.show()

    def move(self, columns: int, window_s: float) -> None:
        """Move by `columns` pixels of the upper plots; from the right edge where nothing was pointed at."""
        step_s = self._batch_size.seconds_per_pixel()
        moved_s = (self._ago_s or 0.0) - columns * step_s
        self.selected, self._panel = None, self._batch_size
        self._ago_s = min(max(moved_s, 0.0), window_s - step_s)
        self.show()

    def forget(self) -> None:
        """Point at nothing."""
        self._ago_s, self._panel, self.selected, self._looked_at = None, None, None, None
        for panel in self._panels:
            panel.point_at(None)
        self._hover(None)

    def show(self) -> None:
        """Bring line, dots and card to where they belong now; costs nothing where they stand there."""
        looked_at = (self._ago_s, self._panel, self._place, self.selected, self._timeline.drawings)
        if looked_at != self._looked_at:
            self._looked_at, self._at_s = looked_at, self.at_s
            if self._at_s is None:
                self.forget()
                return
            self._hover(self._batch_at(self._at_s))
        for panel in self._panels:
            panel.point_at(self._at_s)

    def _batch_at(self, at_s: float) -> int | None:
        if self.selected is not None:
            return self.selected
        if self._panel is self._timeline:
            return self._timeline.batch_at(self._place)
        return batch_running(self._history, at_s) if self._panel is self._batch_size else None

    def _hover(self, row: int | None) -> None:
        self._timeline.highlight(row)
        if row != self.hovered:
            self.hovered = row
            batch = batch_summary(self._history, row) if row is not None else None
            self.batch_hovered.emit(batch.id if batch is not None else None)
