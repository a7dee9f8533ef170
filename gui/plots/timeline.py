"""The timeline: lanes of requests, the batch under the pointer and its card."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QPointF, Qt

from gui.look.theme import current
from gui.look.tokens import FLAG_ROW, LANE_REACH, PLOT_AXIS, WORDS_ROW, Palette
from gui.plots.layout import Layout, Pane
from gui.plots.marks import Marks, placed_marks
from gui.plots.panel import Moment, PlotPanel
from gui.plots.plot_widget import ReadingHelp
from gui.plots.timeline_items import BatchCard, HowToRead, LanesItem, LaneSurroundings
from gui.series import timeline
from gui.series.declaration import Declaration
from gui.series.time_axis import chip_text
from gui.series.time_range import TimeRange
from gui.series.timeline import Bars, Block, LaneChoice, LaneGrid, Lanes
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import batch_running, batch_summary
from service.messages.text import clock_text


class TimelinePanel(PlotPanel):
    """Has no y axis: its lanes are dealt out anew when more are needed.

    Attributes:
        chosen: the row of the request that is marked.
    """

    def __init__(self, history: History) -> None:
        self._choice = LaneChoice()
        self._lanes = Lanes.dealt(history, 1)
        self._offset = 0
        self._follows = True
        self._highlighted: int | None = None
        self._title: tuple[str, str] | None = None
        self._words_top = 0  # pixels that words take above the row of flags
        self._marks = Marks()
        self.chosen: int | None = None
        super().__init__(timeline.PLOT, [], history, has_axis=True, with_words=True)
        self._bars = LanesItem()
        self._surroundings = LaneSurroundings()
        self.card = BatchCard()
        self._how_to_read = HowToRead(self.canvas)  # also as long as it is empty
        self._how_to_read.covers = False
        self._how_to_read.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._how_to_read.hide()
        self.canvas.add_data(self._bars)
        for item in (self._surroundings, self.card):
            self.canvas.addItem(item)
        self.set_colors(current())

    def set_colors(self, palette: Palette) -> None:
        self._bars.set_colors(palette)

    def follow(self, moment: Moment, marks: Marks) -> None:
        self._marks = marks
        super().follow(moment, marks)

    def compute(self, view: TimeRange) -> tuple[float, ...]:
        has_ahead = self._moment is not None and bool(self._moment.ahead_s)
        above = placed_marks(Layout(self.canvas.size(), (), view, has_ahead=has_ahead), self._marks)
        self._words_top = (above.rows - 1) * WORDS_ROW
        top, bottom = self._pane_edges()[0]
        bars = Bars.in_view(self.history, view)
        replicas = max(len(self.history.slots), 1)
        now_s = self._moment.pace_s if self._moment is not None else 0.0
        grid = self._choice.choose(bars.lanes_needed, replicas, bottom - top, now_s)
        self._lanes = Lanes.dealt(self.history, grid.total)
        self._offset = self._offset_to_follow(grid) if self._follows else self._offset
        self._offset = max(min(self._offset, grid.total - grid.shown), 0)
        shown = range(self._offset, min(self._offset + grid.shown, grid.total))
        self._stages = bars.stages(view, self._lanes, shown)
        self._declare(timeline.declared(bars.reasons_seen))
        return ()

    def draw(self, layout: Layout) -> None:
        self._bars.set_stages(layout, self._stages, self._choice.grid)
        self._show_highlight(layout)

    def show_title(self, title: str, remark: str) -> None:
        """Call it what it shows, where there is more than one."""
        if (title, remark) != self._title:
            self._title = title, remark
            self._declare(timeline.PLOT)
            self.draw_anew()

    def _declare(self, plot: Declaration) -> None:
        title, unit = self._title or (plot.title, plot.unit)
        self.header.declare(replace(plot, title=title, unit=unit))

    def batch_at(self, position: QPointF) -> int | None:
        """The row of the batch at a position on the canvas."""
        at_s, lane = self.time_at(position), self._lane_at(position)
        return None if at_s is None or lane is None else timeline.batch_at(self.history, at_s, lane, self._lanes)

    def highlight(self, row: int | None) -> None:
        """Outline this batch and describe it on the card."""
        if row != self._highlighted:
            self._highlighted = row
            if self.layout_ is not None:
                self._show_highlight(self.layout_)

    def request_at(self, position: QPointF) -> int | None:
        """The row of the request at a position on the canvas, or of the nearest one above or below it."""
        at_s, lane = self.time_at(position), self._lane_at(position)
        if at_s is None or lane is None:
            return None
        reach = LANE_REACH // self._choice.grid.height
        near = sorted(range(lane - reach, lane + reach + 1), key=lambda other: abs(other - lane))
        found = (timeline.request_at(self.history, at_s, other, self._lanes) for other in near)
        return next((row for row in found if row is not None), None)

    def choose(self, row: int | None) -> None:
        """Mark this request."""
        self.chosen = row
        bar = self.bar_of_chosen()
        grid = self._choice.grid
        if bar is not None and grid.overflows and not self._offset <= bar.lanes[0] < self._offset + grid.shown:
            self.scroll_lanes(bar.lanes[0] - grid.shown // 2 - self._offset)
        if self.layout_ is not None:
            self._show_highlight(self.layout_)

    def bar_of_chosen(self) -> Block | None:
        """Where the chosen request stands, in view or not."""
        return timeline.bar_of(self.history, self.chosen, self._lanes) if self.chosen is not None else None

    def scroll_lanes(self, by: int) -> bool:
        """Show other lanes, where there are more than fit; true if they moved."""
        grid = self._choice.grid
        offset = max(min(self._offset + by, grid.total - grid.shown), 0)
        if offset == self._offset:
            return False
        self._offset, self._follows = offset, False
        self.draw_anew()
        return True

    def follow_lanes(self) -> None:
        """Show the lanes of what runs again."""
        self._follows = True

    @property
    def overflows(self) -> bool:
        return self._choice.grid.overflows

    def _lane_at(self, position: QPointF) -> int | None:
        layout = self.layout_
        if layout is None or not layout.top <= position.y() < layout.bottom:
            return None
        return int(position.y() - layout.top) // self._choice.grid.height + self._offset

    def _offset_to_follow(self, grid: LaneGrid) -> int:
        """The lanes of the batch that started last, moved by whole pages since continuous motion cannot be read."""
        end_s = self._moment.end_s if self._moment is not None else 0.0
        row = batch_running(self.history, end_s) if grid.overflows else None
        block = timeline.block_of(self.history, row, self._lanes) if row is not None else None
        if block is None:
            return self._offset
        first, last = min(block.lanes), max(block.lanes)
        is_in_view = self._offset <= first and last < self._offset + grid.shown
        return self._offset if is_in_view else first - grid.shown // 8

    def set_empty(self, is_empty: bool) -> None:
        super().set_empty(is_empty)
        self._empty.hide()
        self._how_to_read.setVisible(is_empty)
        for item in (self._surroundings, self.card):
            item.setVisible(not is_empty)

    def _made_help(self) -> ReadingHelp:
        return HowToRead(self.canvas)

    def _pane_edges(self) -> list[tuple[int, int]]:
        top = FLAG_ROW + self._words_top
        return [(top, max(self.canvas.height() - PLOT_AXIS, top + 1))]

    def _layout_at(self, moment: Moment) -> Layout:
        view = self._view(moment)
        top, bottom = self._pane_edges()[0]
        return Layout(self.canvas.size(), (Pane(top, bottom),), view, self._ticks(view, moment), bool(moment.ahead_s))

    def _show_highlight(self, layout: Layout) -> None:
        row = self._highlighted
        block = timeline.block_of(self.history, row, self._lanes) if row is not None else None
        self._surroundings.set_lanes(layout, self._lanes, self._choice.grid, self._offset, block, self.bar_of_chosen())
        batch = batch_summary(self.history, row) if row is not None else None
        self.card.describe(batch, layout, self._surroundings.outline)

    def _show_pointer(self, layout: Layout) -> None:
        at_s = self._pointed_s
        chip = "" if at_s is None else self._chip(layout.view, at_s)
        self.canvas.pointer.point(layout, at_s, (), chip, self.canvas.axes.tick_rects)

    def _chip(self, view: TimeRange, at_s: float) -> str:
        if self._moment is not None and self._moment.origin_s is not None:
            return f"{at_s - self._moment.origin_s:.1f} s"
        offset_s = self._moment.wall_offset_s if self._moment is not None else None
        return chip_text(at_s, view) if offset_s is None else clock_text(at_s + offset_s, decimals=1)

    def _show_empty_axes(self, view: TimeRange) -> None:
        self.canvas.axes.set_layout(Layout(self.canvas.size(), (Pane(0, 0),), view))

    def _on_canvas_resized(self) -> None:
        super()._on_canvas_resized()
        self._how_to_read.setGeometry(self.canvas.rect())
