"""Two or three settings on the same arrivals: their timelines above each other, and their curves in one plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from PySide6.QtCore import QPointF, Signal
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.comparing.setup import DURATION, SWEEP_ROUNDS, RunControls, field
from gui.comparing.table import TextTable
from gui.look import tokens
from gui.look.theme import current
from gui.look.tokens import Palette
from gui.plots.canvas import Curve
from gui.plots.layout import Layout
from gui.plots.marks import Marks
from gui.plots.paint import pen
from gui.plots.panel import Moment, PlotPanel
from gui.plots.timeline import TimelinePanel
from gui.series import latency, queue_depth
from gui.series.declaration import Declaration, Entry, Swatch
from gui.series.scale import StepScale
from gui.series.time_range import TimeRange
from gui.series.timeline import NOTHING
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import box, column, hairline, row, scrolled
from gui.widgets.number_field import NumberField
from service.analysis.compare.progress import Progress
from service.analysis.compare.run import FIGURE_BY_NAME, FigureName, MeasuredRun
from service.analysis.compare.run_plan import SweepPlan
from service.analysis.compare.sweep import Sweep
from service.analysis.observed.columns import Floats
from service.analysis.observed.descriptions import load_text, settings_text
from service.analysis.observed.history import History
from service.messages.load import RunLoad
from service.messages.objectives import Objectives
from service.messages.settings import FORMATIONS, Settings
from service.messages.text import format_figure

MOST: Final = 3
AFTER: Final = 0.25  # of the time in which requests are sent, that is shown besides
SWATCHES: Final[tuple[Swatch, ...]] = ("line", "dash", "dots")
TOLD: Final = ("max_batch_size", "batch_wait_timeout_s")
FIGURES: Final[tuple[FigureName, ...]] = (
    "p50_s",
    "p95_s",
    "ttft_p95_s",
    "tokens_per_s",
    "goodput_per_s",
    "mean_batch",
)
NOTHING_YET: Final = "The same arrivals for each of the settings, one after the other; then they stand side by side."
RECORDED: Final = "Recordings, each from its first request on. Their arrivals and machines need not be the same."
PADDING: Final = tokens.PANEL_PADDING
LEAST_STEP_S: Final = 0.01


class SideBySideSetup(QWidget):
    """The settings, at most three, and how long each gets the load."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._points: tuple[Settings, ...] | None = None  # as chosen; else each formation of the present settings
        self._present = Settings()
        self._generates = True
        self._list = column(gap=tokens.GAP_2)
        self.rows: list[_PointRow] = []
        self.add = Button("Add the present settings", "ph.plus")
        self.rounds = NumberField(SWEEP_ROUNDS, "rounds")
        self.duration = NumberField(DURATION, "seconds a run", unit="s")
        self.load = label("", "caption", wrap=True)
        self.controls = RunControls("Run side by side")
        self.recordings = Button("Open recordings…", "ph.folder-open", tip="Show up to three recordings side by side")
        for number, usual in ((self.rounds, 1), (self.duration, 20)):
            number.set_number(usual)
            number.entered.connect(lambda _: self.changed.emit())
        fields = (field("rounds", self.rounds), field("seconds a run", self.duration))
        numbers = column(*fields, self.load, gap=tokens.GAP_2)
        self.setLayout(column(self._list, self.add, numbers, self.controls, self.recordings, None, gap=tokens.GAP_4))
        self.add.clicked.connect(lambda: self._choose((*self.points, self._present)))
        self._show()

    @property
    def points(self) -> tuple[Settings, ...]:
        """The settings that are to stand side by side."""
        if self._points is not None:
            return self._points
        kinds = FORMATIONS if self._generates else [each for each in FORMATIONS if each != "continuous"]
        return tuple([self._present.revised({"formation": each}) for each in kinds][:MOST])

    def show_present(self, settings: Settings, load: RunLoad, *, generates: bool) -> None:
        """The settings that can be added, and what all of them get."""
        self.load.setText(f"Load: {load_text(load)}")
        if (settings, generates) != (self._present, self._generates):
            self._present, self._generates = settings, generates
            self._show()

    def plan(self, load: RunLoad, objectives: Objectives, seed: int) -> SweepPlan:
        return SweepPlan(
            points=self.points,
            load=load,
            duration_s=self.duration.number,
            rounds=int(self.rounds.number),
            seed=seed,
            objectives=objectives,
        )

    def _choose(self, points: Sequence[Settings]) -> None:
        self._points = tuple(dict.fromkeys(points))[:MOST]
        self._show()
        self.changed.emit()

    def _show(self) -> None:
        for old in self.rows:
            self._list.removeWidget(old)
            old.deleteLater()
        points = self.points
        self.rows = [_PointRow(each) for each in points]
        for place, each in enumerate(self.rows):
            each.remove.clicked.connect(partial(self._remove, place))
            each.remove.setEnabled(len(points) > 1)
            self._list.addWidget(each)
        self.add.setEnabled(len(points) < MOST and self._present not in points)

    def _remove(self, place: int) -> None:
        points = self.points
        self._choose((*points[:place], *points[place + 1 :]))


class _PointRow(QWidget):
    """Settings, and a button that takes them away."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.remove = Button(icon="ph.x", role="icon", tip="Take it away", name=f"Remove {settings.formation}")
        brief = label(settings_text(settings, TOLD), "caption", wrap=True)
        words = column(label(settings.formation, "strong"), brief, gap=0)
        self.setLayout(row(words, self.remove, stretch=words))


def names_of(points: Sequence[Settings]) -> list[str]:
    """What sets them apart: their formations, or all settings in which they differ.

    >>> names_of([Settings(), Settings(formation="early")]), names_of([Settings(), Settings(max_batch_size=4)])
    (['late', 'early'], ['max_batch_size 16', 'max_batch_size 4'])
    """
    formations = [each.formation for each in points]
    if len(set(formations)) == len(points):
        return list(formations)
    fields = Settings.__struct_fields__
    varied = tuple(name for name in fields if len({getattr(each, name) for each in points}) > 1)
    return [settings_text(each, varied) for each in points]


class RunTimeline(TimelinePanel):
    """One of several, which need not all say how they are read."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._ends_s = math.inf
        self.set_empty(True)

    def compute(self, view: TimeRange) -> tuple[float, ...]:
        """What comes after the run belongs to the next one."""
        peaks = super().compute(view)
        self._stages[:, max(math.ceil(min(view.position(self._ends_s), view.columns)), 0) :] = NOTHING
        return peaks

    def set_empty(self, is_empty: bool) -> None:
        super().set_empty(is_empty)
        self._how_to_read.hide()

    @property
    def besides(self) -> object:
        return super().besides, id(self.history)

    def show_run(self, run: Run | None, span_s: float, pace_s: float) -> None:
        """Show a run from its first request on, or that there is none yet."""
        if (run is None) != self._is_empty:
            self.set_empty(run is None)
        if run is not None:
            self.history, self._ends_s = run.history, min(run.ends_s, run.heard_until_s)
            self.follow(_moment(run.began_s, span_s, pace_s), Marks())


@dataclass(frozen=True)
class Run:
    """A run in a history, on whose clock it began and ends; one that goes on ends at infinity."""

    history: History
    place: int
    began_s: float
    ends_s: float = math.inf

    @property
    def heard_until_s(self) -> float:
        return self.history.heard_until_s(self.history.now_s())


@dataclass(frozen=True)
class Recorded:
    """A recording that stands beside others, as one run."""

    name: str
    history: History
    run: MeasuredRun


class SideBySideResults(QWidget):
    """The latest run of each of the settings, or recordings."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self._recorded: tuple[Recorded, ...] = ()
        self._sweep: Sweep | None = None
        self._live: Run | None = None
        self._plan: SweepPlan | None = None
        self.verdict = label(NOTHING_YET, "title", wrap=True)
        self.timelines = [RunTimeline(history) for _ in range(MOST)]
        self.queue, self.latency = RunLines(history, QUEUE, "t1", _waiting), RunLines(history, P95, "p95", _p95_s)
        self.figures = TextTable(("", *("",) * MOST), "What differs")
        self.apply = Button("Apply the best", "ph.check")
        self.report = Button("Save report…", "ph.file-text")
        words = column(self.verdict, margins=(PADDING, PADDING, PADDING, tokens.GAP_2))
        for each in self.timelines:
            _let_grow(each, tokens.HEIGHT_RUN)
        for lines in (self.queue, self.latency):
            _let_grow(lines, tokens.HEIGHT_RUN_CURVES)
        self._rows = [box(column(each, hairline(), gap=0)) for each in self.timelines]
        curves = box(row(self.queue, hairline(vertical=True), self.latency, gap=0))
        actions = row(self.apply, self.report, None)
        self.figures.setMaximumWidth(tokens.WIDTH_SIDE_TABLE)
        table = column(self.figures, actions, gap=tokens.GAP_3, margins=(PADDING, tokens.GAP_2, PADDING, PADDING))
        layout = column(words, hairline(), *self._rows, curves, hairline(), table, gap=0)
        for part in (*self._rows, curves):  # they share what the view leaves
            layout.setStretchFactor(part, 1)
        self.setLayout(column(scrolled(box(layout))))
        for panel in (*self.timelines, self.queue, self.latency):
            panel.canvas.pointed.connect(partial(self._point_at, panel))
        self.show_sweep(None)

    @property
    def sweep(self) -> Sweep | None:
        return self._sweep

    def show_sweep(self, sweep: Sweep | None) -> None:
        """Show what was measured so far."""
        self._sweep, self._live, self._recorded = sweep, None, ()
        is_known = sweep is not None and any(point.runs for point in sweep.points)
        self.verdict.setText(sweep.verdict() if sweep is not None and is_known else NOTHING_YET)
        self._show_figures()

    def show_recordings(self, recorded: Sequence[Recorded]) -> None:
        """Show these instead, at most `MOST`."""
        self.show_sweep(None)
        self._plan, self._recorded = None, tuple(recorded[:MOST])
        self.verdict.setText(RECORDED)
        self._show_figures()

    def show_progress(self, progress: Progress) -> None:
        """The run that is made at present is shown as it goes on."""
        if progress.point is not None and progress.began_s is not None:
            self._live = Run(self._history, progress.point, progress.began_s)

    def begin(self, plan: SweepPlan) -> None:
        """Nothing of this plan is measured yet."""
        self._plan = plan
        self.show_sweep(None)

    @property
    def best(self) -> Settings | None:
        """The best of what was measured."""
        place = None if self._sweep is None else self._sweep.best()
        return None if self._sweep is None or place is None else self._sweep.points[place].settings

    def set_can_apply(self, can_apply: bool) -> None:
        self.apply.setEnabled(can_apply and self.best is not None)
        self.report.setEnabled(self._sweep is not None)

    def follow(self, pace_s: float) -> None:
        """Draw what is known by now."""
        if not self.isVisible():
            return
        runs, names, span_s = self.runs, self._names, self._span_s
        for place, panel in enumerate(self.timelines):
            run = next((each for each in runs if each.place == place), None)
            self._rows[place].setVisible(place < len(names))
            if place < len(names):
                panel.show_title(names[place], self._p95(place))
                panel.show_run(run, span_s, pace_s)
        for lines in (self.queue, self.latency):
            lines.show_runs(runs, names)
            lines.follow(_moment(0.0, span_s, pace_s), Marks())

    def _point_at(self, panel: PlotPanel, place: QPointF | None) -> None:
        """One line through all of them, as long after each run's begin."""
        began_s: dict[PlotPanel, float] = {self.timelines[run.place]: run.began_s for run in self.runs}
        pointed_s = None if place is None else panel.time_at(place)
        since_s = None if pointed_s is None else pointed_s - began_s.get(panel, 0.0)
        for other in (*began_s, self.queue, self.latency):
            other.point_at(None if since_s is None else since_s + began_s.get(other, 0.0))

    def _p95(self, place: int) -> str:
        measured = self._measured
        value = FIGURE_BY_NAME["p95_s"].of(measured[place]) if measured else None
        return "" if value is None else f"p95 {format_figure(value, 's')}"

    @property
    def runs(self) -> list[Run]:
        """The latest of each, by place."""
        latest = [(place, runs[-1]) for place, runs in enumerate(self._measured) if runs]
        of = [each.history for each in self._recorded] or [self._history] * MOST
        runs = {place: Run(of[place], place, each.began_s, each.began_s + each.ran_s) for place, each in latest}
        if self._live is not None:
            runs[self._live.place] = self._live
        return [runs[place] for place in sorted(runs)]

    @property
    def _measured(self) -> list[Sequence[MeasuredRun]]:
        """What is known of each place."""
        if self._recorded:
            return [(each.run,) for each in self._recorded]
        return [] if self._sweep is None else [point.runs for point in self._sweep.points]

    @property
    def _shown_plan(self) -> SweepPlan | None:
        return self._plan if self._sweep is None else self._sweep.plan

    @property
    def _names(self) -> list[str]:
        plan = self._shown_plan
        return [each.name for each in self._recorded] if plan is None else names_of(plan.points)

    @property
    def _span_s(self) -> float:
        plan = self._shown_plan
        lasted_s = [each.run.ran_s for each in self._recorded] if plan is None else [plan.duration_s]
        return (1 + AFTER) * max(lasted_s, default=1.0)

    def _show_figures(self) -> None:
        measured = self._measured
        self.figures.setVisible(bool(measured))
        if not measured:
            return
        rows = [["", *self._names]]
        for name in FIGURES:
            figure = FIGURE_BY_NAME[name]
            values = [figure.of(runs) for runs in measured]
            if any(value is not None for value in values):
                rows.append([figure.title, *(format_figure(value, figure.unit) for value in values)])
        lost = [sum(run.failed + run.refused for run in runs) for runs in measured]
        rows.append(["failed or refused", *map(str, lost)])
        missing = [""] * (MOST - len(measured))
        self.figures.show_rows([[*each, *missing] for each in rows], strong={0})


def _let_grow(panel: PlotPanel, least_height: int) -> None:
    """Take what there is, but never make the view scroll for more than this height."""
    panel.setMinimumHeight(least_height)
    panel.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)


def _moment(began_s: float, span_s: float, pace_s: float) -> Moment:
    """The axis of a run, which begins with its first request."""
    return Moment(began_s + span_s, span_s, pace_s, None, is_frozen=False, origin_s=began_s)


QUEUE: Final = Declaration(
    name="queue-depth", title="Queue depth", unit="waiting or formed", entries=(), empty_text="How many requests wait"
)
P95: Final = Declaration(
    name="latency",
    title="Latency",
    unit="p95 of the last 10 s",
    entries=(),
    empty_text="How long requests take",
    axis_units=("s",),
)
Line = tuple[Floats, Floats]


class RunLines(PlotPanel):
    """A line for each run, over the time since it began; each of the settings has a dash of its own."""

    def __init__(
        self, history: History, plot: Declaration, ink: str, line: Callable[[History, TimeRange], Line]
    ) -> None:
        """`ink` names a colour of the palette, `line` returns times and values of what is drawn of a stretch."""
        super().__init__(plot, [StepScale(least_step=LEAST_STEP_S)], history, has_axis=True)
        self._line, self._ink = line, ink
        self._runs: list[Run] = []
        self._drawn: list[tuple[int, Line]] = []
        self._lines = [Curve() for _ in range(MOST)]
        for each in self._lines:
            self.canvas.add_data(each)
        self.set_colors(current())
        self.set_empty(True)

    def show_runs(self, runs: list[Run], names: Sequence[str]) -> None:
        self._runs = runs
        if self._is_empty == bool(names):
            self.set_empty(not names)
        entries = [Entry(name, swatch, self._ink) for name, swatch in zip(names, SWATCHES, strict=False)]
        self.declare(replace(self.plot, entries=tuple(entries)))
        self.header.show_readout({}, hides_missing=False)

    def set_colors(self, palette: Palette) -> None:
        for curve, dash in zip(self._lines, tokens.DASHES_OF_RUNS, strict=True):
            curve.setPen(pen(getattr(palette, self._ink), tokens.LINE_WIDTHS["p95"], dash))

    def compute(self, view: TimeRange) -> tuple[float, ...]:
        self._drawn = []
        for run in self._runs:
            there = replace(view, start_s=view.start_s + run.began_s, end_s=view.end_s + run.began_s)
            times, values = self._line(run.history, there)
            is_known = times <= min(run.ends_s, run.heard_until_s)
            self._drawn.append((run.place, (times[is_known] - run.began_s, values[is_known])))
        peaks = [float(np.nanmax(ys)) for _, (_, ys) in self._drawn if len(ys) and not np.isnan(ys).all()]
        return (max(peaks, default=0.0),)

    def draw(self, layout: Layout) -> None:
        for curve in self._lines:
            curve.hide()
        for place, (times, values) in self._drawn:
            if len(times):
                self._lines[place].show_line(layout.x(times), layout.panes[0].y(values))

    @property
    def besides(self) -> object:
        return tuple(self._runs), self.history.revision


def _waiting(history: History, view: TimeRange) -> Line:
    """The most that waited in each column."""
    high = queue_depth.queue_depths(history, view).high
    return view.middles(), high.waiting - high.running


def _p95_s(history: History, view: TimeRange) -> Line:
    """Of the requests answered in the ten seconds before; of none before the run began."""
    times, values = latency.latencies(history, view).lines["p95"]
    is_in = times >= view.start_s
    return times[is_in], values[is_in]
