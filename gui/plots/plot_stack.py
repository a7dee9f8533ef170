"""The centre of the window: four plots and the timeline on one time axis."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from PySide6.QtCore import QPoint, QPointF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QVBoxLayout, QWidget

from gui.look import tokens
from gui.look.theme import colour, current
from gui.plots.batch_size import BatchSizePanel
from gui.plots.guess import Guess
from gui.plots.latency import LatencyPanel
from gui.plots.marks import Marks
from gui.plots.paint import forget_fonts
from gui.plots.panel import Moment, PlotPanel
from gui.plots.pointing import Pointing
from gui.plots.queue_depth import QueueDepthPanel
from gui.plots.throughput import ThroughputPanel
from gui.plots.timeline import TimelinePanel
from gui.series.prediction import CapacityLine, GhostLevel
from gui.series.time_range import Viewport
from gui.series.timeline import neighbour
from service.analysis.observed.contention import Contention
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import companions_of, members_of
from service.analysis.observed.register import REGISTER, Figures

WHEEL_NOTCH: Final = 120.0
SCROLL_SHARE: Final = 0.1  # of the window, a notch of the wheel
KEY_SHARE: Final = 0.25  # of the window, a press of Page Up
ZOOM: Final = 1.25
LANES_A_NOTCH: Final = 24
GUESSED_IN: Final[Mapping[str, tuple[str, int]]] = {  # the plot of a figure, and the pane
    **dict.fromkeys(("p50_s", "p95_s"), ("latency", 0)),
    "mean_batch": ("batch-size", 0),
    "tokens_per_s": ("throughput", 0),
    "requests_per_s": ("throughput", 1),
}


class PlotStack(QWidget):
    """Follows now until it is frozen or scrolled back; a moment pointed at in one plot is shown in all.

    Signals:
        batch_hovered: the id of the batch under the pointer, or ``None``.
        scrolled_back: whether the right edge has left the newest moment.
        window_changed: seconds that the plots show, after the user zoomed.
        live_requested: the user asked for now while frozen.
        request_chosen: the row of the request that the user picked in the timeline, or ``None`` for none.
        guessed: the value to which a guess was dragged.
    """

    batch_hovered = Signal(object)
    scrolled_back = Signal(bool)
    window_changed = Signal(float)
    live_requested = Signal()
    request_chosen = Signal(object)
    guessed = Signal(float)

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self._viewport = Viewport()
        self._stood_s = 0.0
        self._contentions: tuple[Contention, ...] = ()
        self._seen_s = float("-inf"), time.monotonic()
        forget_fonts()
        self._create_panels()
        self._lay_out()
        self._connect()

    def _create_panels(self) -> None:
        self.batch_size = BatchSizePanel(self._history)
        self.queue_depth = QueueDepthPanel(self._history)
        self.latency = LatencyPanel(self._history)
        self.throughput = ThroughputPanel(self._history)
        self.timeline = TimelinePanel(self._history)
        upper = (self.batch_size, self.queue_depth, self.latency, self.throughput)
        self.panels: tuple[PlotPanel, ...] = (*upper, self.timeline)
        self._turns = deque(self.panels)
        self._pointing = Pointing(self._history, self.panels, self.batch_size, self.timeline, self)

    def _lay_out(self) -> None:
        self._grid = _Focusable("Plots", self)
        self._grid.setLayout(grid_of(self.panels[:4]))
        self._below = _Focusable("Timeline", self)
        below = QVBoxLayout(self._below)
        below.setContentsMargins(0, 0, 0, 0)
        below.addWidget(self.timeline)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(tokens.HAIRLINE)
        self._layout.addWidget(self._grid, 1)
        self._layout.addWidget(self._below)

    def _connect(self) -> None:
        for panel in self.panels:
            canvas = panel.canvas
            canvas.pointed.connect(partial(self._pointing.point, panel))
            canvas.dragged.connect(partial(self._on_dragged, panel))
            canvas.wheeled.connect(partial(self._on_wheeled, panel))
            canvas.double_clicked.connect(self._on_double_clicked)
            panel.guessed.connect(self.guessed)
        self._pointing.batch_hovered.connect(self.batch_hovered)
        self.timeline.canvas.clicked.connect(self._on_timeline_clicked)
        self._grid.key_pressed.connect(self._on_key_pressed)
        self._below.key_pressed.connect(self._on_timeline_key_pressed)

    @property
    def is_live(self) -> bool:
        return self._viewport.is_live

    @property
    def window_s(self) -> float:
        return self._viewport.window_s

    def view_end_s(self) -> float:
        """The moment at the right edge, on the service's clock."""
        return self._viewport.end_s(self._history.now_s())

    def refresh(self, within_s: float = math.inf) -> None:
        """Paint what changed; to be called at the pace of the curves.

        A panel is begun only within this time; those that are left come first at the next call.
        """
        begun_s = time.monotonic()
        moment, marks = self.moment(), self.marks()
        for _ in self.panels:
            self._turns[0].follow(moment, marks)
            self._turns.rotate(-1)
            if time.monotonic() - begun_s >= within_s:
                break
        if self._pointing.is_at_something:
            self._pointing.show()

    def show_figures(self, figures: Figures, is_dimmed: bool = False) -> None:
        """Show the figures of the moment at the right edge in the legends at rest, greyed out if out of date."""
        for panel in self.panels:
            panel.header.set_dimmed(is_dimmed)
            panel.show_figures(figures)

    def show_contentions(self, contentions: tuple[Contention, ...]) -> None:
        """Mark the stretches in which the engine was slowed."""
        if contentions != self._contentions:
            self._contentions = contentions
            self.draw_anew()

    def draw_anew(self) -> None:
        """Something else is marked than before."""
        for panel in self.panels:
            panel.draw_anew()

    def set_window_s(self, window_s: float) -> None:
        """Show the last `window_s` seconds."""
        if window_s != self._viewport.window_s:
            self._viewport.window_s = window_s
            self._release_scales()

    def set_frozen(self, is_frozen: bool) -> None:
        """Stand still at this moment, or follow now again."""
        if is_frozen != self._viewport.is_frozen:
            self._change_view(
                (lambda: self._viewport.freeze(self._history.now_s())) if is_frozen else self._viewport.thaw
            )

    def set_empty(self, is_empty: bool) -> None:
        """Say what the plots will show, as long as there is nothing to show."""
        for panel in self.panels:
            panel.set_empty(is_empty)
        self.refresh()

    def begin_anew(self) -> None:
        """The history has become another one: forget what was pointed at, and show its newest moment."""
        self._pointing.forget()
        self._viewport = Viewport(self._viewport.window_s)
        self._viewport.kept_s = self._history.kept_s
        self.timeline.follow_lanes()
        self._release_scales()

    def show_until(self, end_s: float) -> None:
        """Scroll so that this moment stands at the right edge, as far as there is anything to show."""
        self._scroll(end_s - self.view_end_s())

    def let_begin(self, least_s: float) -> None:
        """Let the view go back to where no more than this is in it, left of which it is empty."""
        self._viewport.least_s = least_s

    def play_on(self, by_s: float) -> None:
        """Scroll towards the newest moment, to be drawn with the next frame."""
        self._viewport.scroll(by_s, self._history.now_s())

    def back_to_live(self) -> None:
        """Show the newest moment again; while frozen, the one it stands still at."""
        self.timeline.follow_lanes()
        self._change_view(self._viewport.to_live)

    def choose_request(self, row: int | None) -> None:
        """Mark this request in the timeline; where it is out of view, go there."""
        self.timeline.choose(row)
        bar, layout = self.timeline.bar_of_chosen(), self.timeline.layout_
        if bar is not None and layout is not None:
            end_s = min(bar.end_s, self._history.now_s())
            if end_s < layout.view.start_s or bar.start_s > layout.view.end_s:
                self._scroll((bar.start_s + end_s) / 2 - layout.view.end_s + self.window_s / 2)

    def set_ghost(self, levels: Mapping[str, tuple[GhostLevel, ...]], since_s: float) -> None:
        """Show what was predicted at `since_s` in the plots of these names, right of now, and nothing in the others."""
        for panel in self.panels:
            before = panel.ghost
            panel.set_ghost(levels.get(panel.plot.name, ()), since_s)
            if panel.ghost != before:
                self._show_at_once(panel)

    def ask(self, figure: str | None, value: float = 0.0) -> None:
        """Let this figure be guessed, right of now, from this value on; ``None``: none any more."""
        place = None if figure is None else GUESSED_IN[figure]
        for panel in self.panels:
            guess = None
            if figure is not None and place is not None and panel.plot.name == place[0]:
                entry = REGISTER[figure]
                guess = Guess(place[1], value, f"{entry.name}, your guess: {entry.with_unit(value)}")
            if guess != panel.guess:
                panel.guess = guess
                self._show_at_once(panel)

    def show_capacity(self, line: CapacityLine | None) -> None:
        """Show what the engine can do at most, or no longer."""
        if line != self.throughput.capacity:
            self.throughput.capacity = line
            self._show_at_once(self.throughput)

    def _show_at_once(self, panel: PlotPanel) -> None:
        """Draw what is said elsewhere too, such as in the verdict, where it is painted before the next frame."""
        panel.follow(self.moment(), self.marks())

    def _on_timeline_clicked(self, place: QPointF) -> None:
        self._choose(self.timeline.request_at(place))

    def _choose(self, row: int | None) -> None:
        self.timeline.choose(row)
        self.request_chosen.emit(row)

    def _choose_member(self, step: int) -> None:
        """From the chosen request to its neighbour in the same batch."""
        chosen, columns = self.timeline.chosen, self._history.requests.columns
        if chosen is None or not columns.has(chosen):
            return
        rows = companions_of(self._history, chosen)
        place = rows.index(chosen) + step if chosen in rows else -1
        if 0 <= place < len(rows):
            self._choose(rows[place])

    def _on_dragged(self, panel: PlotPanel, pixels: float) -> None:
        self._scroll(-pixels * panel.seconds_per_pixel())

    def _on_wheeled(self, panel: PlotPanel, place: QPointF, angle: QPoint, modifiers: Qt.KeyboardModifier) -> None:
        notches = angle.y() / WHEEL_NOTCH
        if modifiers & Qt.KeyboardModifier.ControlModifier:
            at_s = panel.time_at(place)
            self._zoom(ZOOM**-notches, self.view_end_s() if at_s is None else at_s)
        elif angle.x():
            self._scroll(-angle.x() / WHEEL_NOTCH * SCROLL_SHARE * self.window_s)
        elif panel is self.timeline and self.timeline.overflows:
            if self.timeline.scroll_lanes(-round(notches * LANES_A_NOTCH)):
                self.refresh()
        else:
            self._scroll(-notches * SCROLL_SHARE * self.window_s)

    def _on_double_clicked(self) -> None:
        if self._viewport.is_frozen and not self._viewport.is_scrolled:
            self.live_requested.emit()
        self.back_to_live()

    def _on_key_pressed(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
        step = steps.get(Qt.Key(event.key()))
        if step is not None and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self._pointing.move(step, self.window_s)
        else:
            self._handle_common_key(event)

    def _on_timeline_key_pressed(self, event: QKeyEvent) -> None:
        is_shifted = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        match event.key():
            case Qt.Key.Key_Left | Qt.Key.Key_Right if not is_shifted:
                self._select_neighbour(-1 if event.key() == Qt.Key.Key_Left else 1)
            case Qt.Key.Key_Return | Qt.Key.Key_Enter if self._pointing.hovered is not None:
                self._choose(next(iter(members_of(self._history, self._pointing.hovered)), None))
            case Qt.Key.Key_Up | Qt.Key.Key_Down if self.timeline.chosen is not None:
                self._choose_member(-1 if event.key() == Qt.Key.Key_Up else 1)
            case Qt.Key.Key_Up | Qt.Key.Key_Down if self.timeline.overflows:
                self.timeline.scroll_lanes(-LANES_A_NOTCH if event.key() == Qt.Key.Key_Up else LANES_A_NOTCH)
                self.refresh()
            case _:
                self._handle_common_key(event)

    def _handle_common_key(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Left | Qt.Key.Key_PageUp:
                self._scroll(-KEY_SHARE * self.window_s)
            case Qt.Key.Key_Right | Qt.Key.Key_PageDown:
                self._scroll(KEY_SHARE * self.window_s)
            case Qt.Key.Key_Home:
                self._scroll(float("-inf"))
            case Qt.Key.Key_End:
                self._on_double_clicked()
            case Qt.Key.Key_Plus | Qt.Key.Key_Equal:
                self._zoom(1 / ZOOM, self._pointing.at_s or self.view_end_s())
            case Qt.Key.Key_Minus:
                self._zoom(ZOOM, self._pointing.at_s or self.view_end_s())
            case Qt.Key.Key_Escape:
                self._pointing.forget()
            case _:
                event.ignore()

    def _select_neighbour(self, step: int) -> None:
        view = self.timeline.layout_
        if view is None:
            return
        row = neighbour(self._history, self._pointing.hovered, step, view.view)
        if row is None:
            return
        self._pointing.selected = row
        at_s = self._pointing.at_s
        if at_s is not None and not view.view.contains(at_s):
            self._scroll(at_s - view.view.end_s + self.window_s / 2)
        self._pointing.show()

    def _scroll(self, by_s: float) -> None:
        self._change_view(lambda: self._viewport.scroll(by_s, self._history.now_s()))

    def _zoom(self, factor: float, at_s: float) -> None:
        before_s, now_s = self.window_s, self._history.now_s()
        self._viewport.window_s = self.moment().window_s
        self._change_view(lambda: self._viewport.zoom(factor, at_s, now_s))
        if self.window_s != before_s:
            self._release_scales()
            self.window_changed.emit(self.window_s)

    def _change_view(self, change: Callable[[], object]) -> None:
        was_scrolled = self._viewport.is_scrolled
        change()
        if self._viewport.is_scrolled != was_scrolled:
            self.scrolled_back.emit(self._viewport.is_scrolled)
        self.refresh()

    def _release_scales(self) -> None:
        for panel in self.panels:
            panel.release_scales()
        self.refresh()

    def marks(self) -> Marks:
        """What stands on every plot over time."""
        history = self._history
        silences = history.silences_until(history.now_s())
        ends_s = [(each.start_s, math.inf if each.end_s is None else each.end_s) for each in silences]
        # Where a replica stood still its steps took long, too: that it was silent says why.
        slowed = (each for each in self._contentions if not any(each.overlaps(*ends) for ends in ends_s))
        return Marks(history.batches.marks(), history.marks_beside_settings(), history.outages, (*silences, *slowed))

    def moment(self) -> Moment:
        """What the common time axis shows."""
        now_s = self._history.now_s()
        is_live = self._viewport.is_live
        offset_s = None if is_live else self._history.wall_time(now_s) - now_s
        end_s = self._viewport.end_s(now_s)
        window_s = self._viewport.span_s(self._age_s(end_s))
        ahead_s = tokens.AHEAD_S if is_live and any(panel.ghost or panel.guess for panel in self.panels) else 0.0
        return Moment(end_s, window_s, self._pace_s(now_s), offset_s, self._viewport.is_frozen, ahead_s)

    def _age_s(self, at_s: float) -> float:
        """How long before that the first batch was formed after the one of the start's own request."""
        formed_s = self._history.batches.columns["formed"]
        return at_s - float(formed_s[1]) if len(formed_s) > 1 else 0.0

    def _pace_s(self, now_s: float) -> float:
        """The history's clock; while that stands still, as in a recording, real time is added."""
        (seen_s, real_s), self._seen_s = self._seen_s, (now_s, time.monotonic())
        if now_s == seen_s:
            self._stood_s += self._seen_s[1] - real_s
        return now_s + self._stood_s

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._below.setFixedHeight(timeline_height(event.size().height()))
        self._layout.activate()  # at once, or a strip of the ground stays below the timeline until the next event
        super().resizeEvent(event)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """The hairlines between the plots are what of this ground remains visible."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), colour(current().line))
        painter.end()

    def sizeHint(self) -> QSize:
        return QSize(tokens.PLOTS_HEIGHT, tokens.PLOTS_HEIGHT)


class _Focusable(QWidget):
    """One stop of the Tab key, which hands on what is pressed there."""

    key_pressed = Signal(QKeyEvent)

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        self.key_pressed.emit(event)


def grid_of(plots: Iterable[QWidget]) -> QGridLayout:
    """Two in a row, a hairline apart, all of one size."""
    grid = QGridLayout()
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setSpacing(tokens.HAIRLINE)
    for place, plot in enumerate(plots):
        grid.addWidget(plot, place // 2, place % 2)
    for line in (0, 1):
        grid.setColumnStretch(line, 1)
        grid.setRowStretch(line, 1)
    return grid


def timeline_height(available: int) -> int:
    """What the timeline gets: a third on tall screens, else what `gui.look.tokens` gives for two heights, and between.

    >>> timeline_height(709), timeline_height(609), timeline_height(926)
    (266, 236, 308)
    """
    if available >= tokens.PLOTS_HEIGHT_TALL:
        return available // 3
    slope = (tokens.HEIGHT_TIMELINE - tokens.HEIGHT_TIMELINE_SMALL) / (tokens.PLOTS_HEIGHT - tokens.PLOTS_HEIGHT_SMALL)
    return round(tokens.HEIGHT_TIMELINE_SMALL + slope * (available - tokens.PLOTS_HEIGHT_SMALL))
