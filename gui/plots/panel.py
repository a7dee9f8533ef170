"""What the plots over time have in common: they follow the common time axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import QPointF, Signal

from gui.look.tokens import (
    AHEAD_S,
    GUESS_REACH,
    PANE_GAP,
    PLOT_AXIS,
    PLOT_BOTTOM,
    PLOT_GUTTER,
    PLOT_MARGIN_RIGHT,
    TICK_DISTANCE,
    TICK_WIDTH,
)
from gui.plots.guess import Guess
from gui.plots.layout import Layout, Pane
from gui.plots.marks import Marks
from gui.plots.overlay import Dot
from gui.plots.plot_widget import PlotWidget
from gui.series.declaration import Declaration, Readout
from gui.series.prediction import GhostLevel, from_now_on, with_ghost
from gui.series.scale import StepScale
from gui.series.time_axis import Tick, ahead_ticks, clock_ticks, relative_ticks, ticks_since
from gui.series.time_range import TimeRange
from service.analysis.observed.history import History
from service.analysis.observed.register import UNKNOWN_FIGURES, Figures

MOST_TICKS_Y: Final = 5
LEAST_TICKS_Y: Final = 3
SHARE_OF_PIXEL: Final = 0.5  # of the time that a pixel lasts: news may come to be seen that late
SLOWEST_S: Final = 0.1  # and at most that late
SETTLED_S: Final = 1.0  # what happened longer ago has been reported


@dataclass(frozen=True)
class Moment:
    """What the time axis shows.

    Attributes:
        pace_s: a clock that never stands still, for the pace of scales and numbers.
        origin_s: from which ticks count, where that is neither now nor a time of day.
        wall_offset_s: leads to seconds since 1970; ``None`` where ticks count back from now.
        ahead_s: that are shown after `end_s`, for a prediction.
        is_frozen: what comes to be known later is not shown, not even at the edge.
    """

    end_s: float
    window_s: float
    pace_s: float
    wall_offset_s: float | None
    is_frozen: bool = False
    ahead_s: float = 0.0
    origin_s: float | None = None

    @property
    def is_live(self) -> bool:
        return self.wall_offset_s is None


class PlotPanel(PlotWidget):
    """A plot over time; subclasses say what its data are.

    Attributes:
        figures: of the moment at the right edge, for the legend at rest.
        ghost: the levels that are predicted.
        guess: what the reader of a lesson guesses here.
        layout_: where everything was drawn last; ``None`` before that, and as long as there is nothing to show.
        drawings: how often it has been drawn.
        hides_missing_under_pointer: whether its legend then names only what has a value there.
    """

    hides_missing_under_pointer = False
    guessed = Signal(float)  # a value, dragged by its handle

    def __init__(
        self,
        plot: Declaration,
        scales: Sequence[StepScale],
        history: History,
        has_axis: bool,
        with_words: bool = False,
    ) -> None:
        super().__init__(plot, max(len(scales), 1), with_words)
        self.history = history
        self.scales = scales
        self._has_axis = has_axis
        self._shown: object = None
        self._shown_revision = -1
        self._computed_s = -math.inf
        self._moment: Moment | None = None
        self._pointed_s: float | None = None
        self._is_read = True
        self.figures = UNKNOWN_FIGURES
        self.layout_: Layout | None = None
        self.drawings = 0
        self.ghost: tuple[GhostLevel, ...] = ()
        self._ghost_since_s = 0.0
        self.guess: Guess | None = None
        self.canvas.guess_dragged.connect(lambda y: self.guessed.emit(self.canvas.guess.value_at(y)))

    # ----------------------------------------------------------------------------------------------- for subclasses

    def compute(self, view: TimeRange) -> tuple[float, ...]:
        """Gather what is to be shown in `view`; returns the peak of each pane."""
        raise NotImplementedError

    def draw(self, layout: Layout) -> None:
        """Set what was computed last into the items."""
        raise NotImplementedError

    def readout_now(self) -> Readout:
        """What the legend says at rest: by default what it says for the right edge, or for what was heard last."""
        return self.readout_at(self.edge_s)

    def readout_at(self, _at_s: float) -> Readout:
        """What the legend says for the moment under the pointer."""
        return {}

    def dots_at(self, _layout: Layout, _at_s: float) -> Sequence[Dot]:
        return ()

    @property
    def besides(self) -> object:
        """What is drawn besides the history: the plot is drawn anew when it changes."""
        return None

    # ---------------------------------------------------------------------------------------------------- following

    def declare(self, plot: Declaration) -> None:
        """Show what another declaration names from now on."""
        if plot != self.plot:
            self.plot = plot
            self.header.declare(plot)
            self._empty.set_text(plot.empty_text)
            self.draw_anew()

    def draw_anew(self) -> None:
        """Let the next `follow` draw, and the pointer read, whatever has changed."""
        self._shown, self._is_read = None, False

    def set_empty(self, is_empty: bool) -> None:
        super().set_empty(is_empty)
        self.draw_anew()
        if is_empty:
            self.layout_ = None

    def set_ghost(self, levels: tuple[GhostLevel, ...], since_s: float) -> None:
        """Show what was predicted at `since_s`, right of what is measured, as long as the plot follows now."""
        self.ghost, self._ghost_since_s = levels, since_s

    def release_scales(self) -> None:
        for scale in self.scales:
            scale.release()
        self.header.forget_widths()

    def follow(self, moment: Moment, marks: Marks) -> None:
        """Show this moment; costs nothing if that would look as it does now."""
        if self.width() <= 1 or not self.isVisible():
            return
        self._moment = moment
        view = self._view(moment)
        states = (self._is_empty, moment.is_frozen, moment.is_live)
        looks = (view, self.canvas.size(), *states, self.ghost, self.guess, self.besides)
        if looks == self._shown and not self._has_news(view, moment):
            return
        self._shown, self._shown_revision, self._computed_s = looks, self.history.revision, moment.pace_s
        if self._is_empty:
            self._show_empty_axes(view)
            return
        ghost = self.ghost if moment.is_live else ()
        self._fit_scales(self._with_guess(with_ghost(self.compute(view), ghost)), moment.pace_s)
        layout = self._layout_at(moment)
        self.canvas.set_layout(layout, marks)
        passed = max(moment.end_s - self._ghost_since_s, 0.0) / AHEAD_S
        self.canvas.ghost.set_levels(layout, [from_now_on(level, passed) for level in ghost])
        self.canvas.guess.show_guess(layout, self.guess)
        self.draw(layout)
        self.drawings += 1
        if self._pointed_s is not None and (layout != self.layout_ or not self._is_settled(self._pointed_s)):
            self._is_read = False
        self.layout_ = layout

    def point_at(self, at_s: float | None) -> None:
        """Show the pointer's line at `at_s`, or take it away."""
        if at_s != self._pointed_s:
            self._pointed_s, self._is_read = at_s, False
        self.read()

    def read(self) -> None:
        """Bring the pointer and what it reads up to date; costs nothing where that would be the same."""
        if self._is_read or self.layout_ is None:
            return
        self._is_read = True
        self._show_pointer(self.layout_)
        if self._pointed_s is None:
            self.show_numbers()
        else:
            readout = self.readout_at(self._pointed_s) if self._is_heard(self._pointed_s) else {}
            self.header.show_readout(readout, self.hides_missing_under_pointer)

    def show_figures(self, figures: Figures) -> None:
        """Show these at rest, as every place does that shows figures of this moment."""
        self.figures = figures
        self.show_numbers()

    def show_numbers(self) -> None:
        """Bring the legend up to date, unless it is what the pointer reads."""
        if self._pointed_s is None and not self._is_empty:
            self.header.show_readout(self.readout_now())

    def time_at(self, position: QPointF) -> float | None:
        """The moment at a position on the canvas, if it is on the plot."""
        layout = self.layout_
        if layout is None or not layout.left <= position.x() <= layout.right:
            return None
        return layout.time_at(position.x())

    @property
    def edge_s(self) -> float:
        """The latest moment in view of which anything can be known."""
        now_s = self.history.now_s()
        heard_s = self.history.heard_until_s(now_s)
        return heard_s if self.end_s is None else min(self.end_s, heard_s)

    def _is_heard(self, at_s: float) -> bool:
        """Whether a service runs at that moment, and what it reported of it has come."""
        return at_s <= self.history.heard_until_s(self.history.now_s()) and not self.history.has_ended_at(at_s)

    @property
    def end_s(self) -> float | None:
        return self._view(self._moment).end_s if self._moment is not None else None

    def seconds_per_pixel(self) -> float:
        return self._view(self._moment).pixel_s if self._moment is not None else 0.0

    def _has_news(self, view: TimeRange, moment: Moment) -> bool:
        """Whether this view would look other than before; where a column lasts long, that is asked less often."""
        if any(scale.is_due for scale in self.scales) and moment.pace_s - self._computed_s >= SLOWEST_S:
            return True
        if moment.is_frozen or self.history.revision == self._shown_revision:
            return False
        if self._is_settled(view.end_s):
            return False
        return not 0 <= moment.pace_s - self._computed_s < min(view.pixel_s * SHARE_OF_PIXEL, SLOWEST_S)

    def _is_settled(self, at_s: float) -> bool:
        """Whether no later frame can still change what is drawn at that moment."""
        last_s = self.history.last_s
        return last_s is not None and at_s < last_s - SETTLED_S

    def _view(self, moment: Moment) -> TimeRange:
        ratio = self.canvas.devicePixelRatioF()
        room = self.canvas.width() - PLOT_GUTTER - PLOT_MARGIN_RIGHT
        columns = int(room * moment.window_s / (moment.window_s + moment.ahead_s)) * ratio
        return TimeRange.ending_at(moment.end_s, moment.window_s, int(columns), ratio)

    def _layout_at(self, moment: Moment) -> Layout:
        view = self._view(moment)
        panes = tuple(
            Pane(top, bottom, unit, scale.axis)
            for (top, bottom), unit, scale in zip(self._pane_edges(), self.plot.axis_units, self.scales, strict=True)
        )
        return Layout(self.canvas.size(), panes, view, self._ticks(view, moment), bool(moment.ahead_s))

    def _ticks(self, view: TimeRange, moment: Moment) -> tuple[Tick, ...]:
        most = max(2, min(6, int(view.columns / view.ratio) // TICK_WIDTH))
        ticks: tuple[Tick, ...]
        if moment.origin_s is not None:
            ticks = ticks_since(view, moment.origin_s, most)
        elif moment.wall_offset_s is None:
            ticks = (*relative_ticks(view, most), *ahead_ticks(view, moment.ahead_s))
        else:
            ticks = clock_ticks(view, moment.wall_offset_s, most)
        return ticks if self._has_axis else tuple(Tick(tick.at_s, "") for tick in ticks)

    def _pane_edges(self) -> list[tuple[int, int]]:
        count = len(self.scales)
        bottom = self.canvas.height() - (PLOT_AXIS if self._has_axis else PLOT_BOTTOM)
        height = max((bottom - (count - 1) * PANE_GAP) // count, 1)
        return [(n * (height + PANE_GAP), n * (height + PANE_GAP) + height) for n in range(count)]

    def _fit_scales(self, peaks: Sequence[float], now_s: float) -> None:
        edges = self._pane_edges() if self.scales else []
        for scale, peak, (top, bottom) in zip(self.scales, peaks, edges, strict=True):
            room = (bottom - top) // TICK_DISTANCE
            scale.allow(min(max(room, LEAST_TICKS_Y), MOST_TICKS_Y))
            scale.fit(peak, now_s)

    def _with_guess(self, peaks: Sequence[float]) -> Sequence[float]:
        """The peaks that the scales have to reach, that of a guess included as long as it is in proportion."""
        if self.guess is None:
            return peaks
        pane, value, _words = self.guess
        return [max(peak, min(value, GUESS_REACH * peak)) if n == pane else peak for n, peak in enumerate(peaks)]

    def _show_pointer(self, layout: Layout) -> None:
        at_s = self._pointed_s
        dots = self.dots_at(layout, at_s) if at_s is not None and self._is_heard(at_s) else ()
        self.canvas.pointer.point(layout, at_s, dots)

    def _show_empty_axes(self, view: TimeRange) -> None:
        edges = self._pane_edges() or [(0, self.canvas.height() - PLOT_AXIS)]
        self.canvas.axes.set_layout(Layout(self.canvas.size(), (Pane(*edges[-1], axis=None),), view))

    def _on_canvas_resized(self) -> None:
        super()._on_canvas_resized()
        self.release_scales()
