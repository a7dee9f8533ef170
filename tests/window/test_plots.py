"""The plots on a real widget: pointer, axis, scrolling, palettes and pictures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, QSize, Qt
from PySide6.QtGui import QColor, QImage, QMouseEvent, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.control.exporter import Exporter
from gui.look.tokens import AHEAD_S, DARK, HEIGHT_TIMELINE, LIGHT, PANEL_PADDING
from gui.plots.batch_size import BatchSizePanel
from gui.plots.columns import Ink, bars_layer, dotted, painted, stepped_layer
from gui.plots.latency import LatencyPanel
from gui.plots.layout import Pane
from gui.plots.panel import PlotPanel
from gui.plots.plot_stack import PlotStack, timeline_height
from gui.plots.plot_widget import EmptyText
from gui.plots.queue_depth import QueueDepthPanel
from gui.plots.throughput import CapacityItem, ThroughputPanel
from gui.plots.timeline import TimelinePanel
from gui.plots.timeline_items import HowToRead
from gui.series.declaration import Readout
from gui.series.latency import MEASURES, values_at
from gui.series.prediction import CapacityLine, GhostLevel
from gui.series.scale import Axis
from gui.series.throughput import throughput
from gui.series.time_range import TimeRange
from service.analysis.findings.facts import Rate, SeenCapacity
from service.analysis.observed.columns import Floats
from service.analysis.observed.contention import Contention, contentions
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import batch_running, batch_summary
from service.analysis.observed.statistics import figures
from service.messages.settings import Settings
from tests.disk import room_for
from tests.synthetic_run import CLOCK, FakeClock, Slowed, Step, SyntheticRun, early_run, filled_history, picture_run
from tests.window.conftest import Wear
from tests.window.seen import drawn, key_stop, named

SIZE = QSize(856, 709)
StackMaker = Callable[[History], PlotStack]


@pytest.fixture(scope="module")
def told() -> tuple[History, FakeClock]:
    return filled_history(picture_run())


@pytest.fixture
def history(told: tuple[History, FakeClock]) -> History:
    return told[0]


@pytest.fixture
def make_stack(qtbot: QtBot) -> StackMaker:
    def make(history: History) -> PlotStack:
        stack = PlotStack(history)
        qtbot.addWidget(stack)
        stack.resize(SIZE)
        stack.show()
        qtbot.waitExposed(stack)
        stack.refresh()
        stack.show_figures(figures(history))
        return stack

    return make


@pytest.fixture
def stack(history: History, make_stack: StackMaker) -> PlotStack:
    return make_stack(history)


def move(panel: PlotPanel, place: QPointF) -> None:
    viewport = panel.canvas.viewport()
    button, none = Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier
    there = viewport.mapToGlobal(place.toPoint()).toPointF()
    QApplication.sendEvent(viewport, QMouseEvent(QEvent.Type.MouseMove, place, there, button, button, none))


def leave(panel: PlotPanel) -> None:
    QApplication.sendEvent(panel.canvas, QEvent(QEvent.Type.Leave))


def wheel(panel: PlotPanel, notches: float, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    viewport = panel.canvas.viewport()
    place = QPointF(viewport.rect().center())
    event = QWheelEvent(
        place,
        viewport.mapToGlobal(place.toPoint()).toPointF(),
        QPoint(),
        QPoint(0, round(120 * notches)),
        Qt.MouseButton.NoButton,
        modifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(viewport, event)


@pytest.mark.parametrize(("until_s", "span_s"), [(10.0, 15.0), (20.0, 30.0), (40.0, 45.0), (62.0, 60.0)])
def test_that_the_first_seconds_of_a_run_have_the_width_of_the_plot(
    make_stack: StackMaker, until_s: float, span_s: float
) -> None:
    stack = make_stack(filled_history(picture_run(), until_s=until_s)[0])
    assert stack.moment().window_s == span_s
    assert stack.window_s == 60.0, "it is what is shown of an older run"
    stack.set_frozen(True)
    assert stack.moment().window_s == span_s, "nothing moves"


def test_that_a_zoom_begins_with_what_is_shown(make_stack: StackMaker) -> None:
    stack = make_stack(filled_history(picture_run(), until_s=20.0)[0])
    wheel(stack.queue_depth, 1, Qt.KeyboardModifier.ControlModifier)
    assert stack.moment().window_s == stack.window_s == pytest.approx(30.0 / 1.25)


def place_of_batch(stack: PlotStack, history: History, row: int) -> QPointF:
    """A place on the timeline at which the batch is seen, half-way through it."""
    batch, layout = batch_summary(history, row), stack.timeline.layout_
    assert batch is not None
    assert batch.started_s is not None
    assert layout is not None
    x = layout.x_of(batch.started_s + (batch.ran_s or 0.0) / 2)
    places = (QPointF(x, y + 0.5) for y in range(layout.top, layout.bottom))
    return next(place for place in places if stack.timeline.batch_at(place) == row)


def batch_ago(history: History, ago_s: float) -> int:
    row = batch_running(history, history.now_s() - ago_s)
    assert row is not None
    return row


def image(stack: PlotStack) -> QImage:
    return stack.grab().toImage()


def colors(picture: QImage, least: int = 1) -> set[str]:
    """The colours of at least so many pixels, as the tokens spell them."""
    pixels = np.frombuffer(picture.convertToFormat(QImage.Format.Format_RGB32).constBits(), np.uint32)
    found, counts = np.unique(pixels, return_counts=True)
    return {QColor.fromRgb(int(rgb)).name().upper() for rgb in found[counts >= least]}


def test_that_legends_show_what_is_now(stack: PlotStack, history: History) -> None:
    waiting, formed, running = history.depth_at(history.now_s())
    assert stack.queue_depth.header.readout == {
        "waiting": str(waiting),
        "formed": str(formed),
        "running": str(running),
    }
    assert stack.batch_size.header.readout["cap"] == "16"
    assert set(stack.latency.header.readout) == {"p50", "p95", "p99"}
    assert stack.throughput.header.readout["offered"] == "6.4"


def test_that_the_latency_plot_shows_the_time_that_is_chosen(stack: PlotStack, history: History) -> None:
    at_s, plot = history.now_s(), stack.latency
    answer = float(plot.header.readout["p95"])
    stack.set_ghost({"latency": (GhostLevel(0, 1.0, 0.9, 1.1, "p95"),)}, history.now_s())
    for name, unit in (("ttft", "s"), ("tpot", "ms"), ("latency", "s")):
        plot.show_measure(name)
        stack.refresh()
        expected = values_at(history, at_s, MEASURES[name])["p95"]
        assert float(plot.header.readout["p95"]) == pytest.approx(expected, abs=0.05)
        assert plot.layout_ is not None
        assert plot.layout_.panes[0].unit == unit
        assert bool(plot.ghost) == (name == "latency"), "only the latency is predicted"
    assert float(plot.header.readout["p95"]) == answer


def test_that_a_prediction_has_room_of_its_own_right_of_what_is_measured(stack: PlotStack, history: History) -> None:
    stack.refresh()
    now_s, before = history.now_s(), [panel.layout_ for panel in stack.panels]
    stack.set_ghost({"queue-depth": (GhostLevel(0, 4.0, 3.0, 5.0, "t1"),)}, now_s)
    stack.refresh()
    for panel, alone in zip(stack.panels, before, strict=True):
        layout = panel.layout_
        assert layout is not None
        assert alone is not None
        assert alone.right == alone.far == layout.far
        measured, ahead = layout.right - layout.left, layout.far - layout.right
        assert ahead / measured == pytest.approx(AHEAD_S / stack.window_s, abs=0.02)
        assert layout.x_of(now_s) == pytest.approx(layout.right, abs=2)
    [course] = stack.queue_depth.canvas.ghost.levels
    assert course.course[0].share == 0.0, "it begins at the measured edge"
    assert [tick.text for tick in layout.ticks][-4:] == ["now", "+10 s", "+20 s", "+30 s"]
    stack.set_frozen(True)
    stack.refresh()
    assert stack.queue_depth.layout_ is not None
    assert stack.queue_depth.layout_.right == stack.queue_depth.layout_.far
    stack.set_frozen(False)
    stack.set_ghost({}, now_s)


@pytest.mark.parametrize("height", [520, 609, 1000])
def test_that_the_timeline_reaches_the_bottom_as_soon_as_the_height_changes(stack: PlotStack, height: int) -> None:
    stack.resize(SIZE.width(), height)
    assert stack.timeline.mapTo(stack, QPoint(0, stack.timeline.height())).y() == height


@pytest.mark.parametrize(("size", "least"), [(SIZE, 4), (QSize(620, 380), 0)], ids=["usual", "low"])
def test_that_what_the_capacity_is_never_lies_on_a_curve_or_a_mark(
    stack: PlotStack, history: History, size: QSize, least: int
) -> None:
    stack.resize(size)
    at_s, seen = history.now_s(), 0
    for share in (0.3, 0.6, 1.0, 1.4):
        tokens_per_s, requests_per_s = (
            getattr(figures(history), key) * share for key in ("tokens_per_s", "requests_per_s")
        )
        rate = Rate(requests_per_s, requests_per_s, requests_per_s)
        line = CapacityLine(at_s - 40.0, SeenCapacity(16, True, rate, tokens_per_s / requests_per_s))
        stack.show_capacity(line)
        assert stack.throughput.drawn_capacity == line, "as soon as the verdict says it"
        stack.grab()
        layout = stack.throughput.layout_
        assert layout is not None
        rates = throughput(history, layout.view)
        item = drawn(stack.throughput.canvas, CapacityItem)
        seen += len(item.labels)
        for place in item.labels:
            pane = next(n for n, each in enumerate(layout.panes) if each.top <= place.center().y() <= each.bottom)
            times, values = (rates.tokens, rates.requests)[pane]
            moments = np.array([layout.time_at(x) for x in np.linspace(place.left(), place.right(), 50)])
            ys = layout.panes[pane].y(np.interp(moments, times, values))
            assert not ((ys >= place.top()) & (ys <= place.bottom())).any(), (share, place)
            marks = stack.marks()
            xs = [layout.x_of(each.at_s) for each in (*marks.settings, *marks.outer)]
            assert not [x for x in xs if place.left() <= x <= place.right()], (share, place)
    assert seen >= least, "where there is room it is said"
    stack.show_capacity(None)


def test_that_a_moment_pointed_at_is_read_in_all_plots_and_given_up_on_leaving(
    stack: PlotStack, history: History
) -> None:
    at_rest = dict(stack.queue_depth.header.readout)
    layout = stack.latency.layout_
    assert layout is not None
    at_s = history.now_s() - 17.0
    move(stack.latency, QPointF(layout.x_of(at_s) + 0.5, 60))
    waiting, _, running = history.depth_at(at_s)
    readout = stack.queue_depth.header.readout
    assert abs(int(readout["waiting"]) - waiting) <= 2
    assert readout["running"] == str(running)
    assert set(stack.batch_size.header.readout) == {"full", "cap"}
    leave(stack.latency)
    assert stack.queue_depth.header.readout == at_rest


def test_that_the_batch_under_the_pointer_has_a_card_of_four_lines(stack: PlotStack, history: History) -> None:
    hovered: list[str | None] = []
    stack.batch_hovered.connect(hovered.append)
    row = batch_ago(history, 16.9)
    move(stack.timeline, place_of_batch(stack, history, row))
    batch = batch_summary(history, row)
    assert batch is not None
    assert hovered == [batch.id]
    title, waited, ran, tokens = stack.timeline.card.lines
    assert title == (f"Batch {batch.number}", "full, 16 of 16")
    assert waited[0] == "waited"
    assert " to " in waited[1]
    assert ran == ("ran", f"{batch.ran_s:.2f} s")
    assert tokens[1].startswith("384, ")
    leave(stack.timeline)
    assert hovered[-1] is None
    assert stack.timeline.card.lines == ()


def test_that_the_card_stays_within_the_plot_wherever_the_batch_is(stack: PlotStack, history: History) -> None:
    for ago_s in (1.0, 16.9, 30.0, 55.0):
        move(stack.timeline, place_of_batch(stack, history, batch_ago(history, ago_s)))
        card = stack.timeline.card.boundingRect()
        assert stack.timeline.canvas.rect().toRectF().adjusted(-1, -1, 1, 1).contains(card)


def test_that_frozen_plots_stand_still_while_the_history_goes_on(qtbot: QtBot, make_stack: StackMaker) -> None:
    run = picture_run()
    history, clock = filled_history(run, until_s=30.0)
    stack = make_stack(history)
    stack.set_frozen(True)
    stack.refresh()
    end_s, before = stack.view_end_s(), stack.timeline.grab().toImage()
    frames = [pair for pair in run.frames(40.0) if pair[0].at_s > history.now_s()]
    for telemetry, load in frames:
        clock.now_s = telemetry.at_s
        history.add_telemetry(telemetry)
        history.add_load(load)
        stack.refresh()
    assert stack.view_end_s() == end_s
    assert stack.timeline.grab().toImage() == before
    assert not stack.is_live
    stack.set_frozen(False)
    assert stack.view_end_s() == history.now_s()


def test_that_the_axis_says_how_long_ago_while_live_and_the_time_of_day_otherwise(stack: PlotStack) -> None:
    live = [tick.text for tick in stack.timeline.layout_.ticks]  # type: ignore[union-attr]
    assert live[-1] == "now"
    stack.set_frozen(True)
    frozen = [tick.text for tick in stack.timeline.layout_.ticks]  # type: ignore[union-attr]
    assert all(text.count(":") == 2 for text in frozen)


def test_that_the_wheel_scrolls_back_and_a_double_click_returns(qtbot: QtBot, make_stack: StackMaker) -> None:
    history, _ = filled_history(picture_run())
    stack = make_stack(history)
    told: list[bool] = []
    stack.scrolled_back.connect(told.append)
    wheel(stack.latency, notches=2)
    assert stack.view_end_s() == pytest.approx(history.now_s() - 12.0)
    QTest.mouseDClick(stack.latency.canvas.viewport(), Qt.MouseButton.LeftButton)
    assert stack.is_live
    assert told == [True, False]


def test_that_dragging_moves_the_data_with_the_hand(stack: PlotStack, history: History) -> None:
    viewport = stack.batch_size.canvas.viewport()
    QTest.mousePress(viewport, Qt.MouseButton.LeftButton, pos=QPoint(100, 80))
    move(stack.batch_size, QPointF(162, 80))
    QTest.mouseRelease(viewport, Qt.MouseButton.LeftButton, pos=QPoint(162, 80))
    moved_s = history.now_s() - stack.view_end_s()
    assert moved_s == pytest.approx(62 * stack.batch_size.seconds_per_pixel())


def test_that_the_wheel_with_control_zooms_and_says_so(stack: PlotStack) -> None:
    told: list[float] = []
    stack.window_changed.connect(told.append)
    wheel(stack.throughput, 1, Qt.KeyboardModifier.ControlModifier)
    assert told == [pytest.approx(48.0)]
    assert stack.is_live


def test_that_everything_can_be_done_by_key(stack: PlotStack, history: History) -> None:
    hovered: list[str | None] = []
    stack.batch_hovered.connect(hovered.append)
    QTest.keyClick(key_stop(stack, "Timeline"), Qt.Key.Key_Left)
    QTest.keyClick(key_stop(stack, "Timeline"), Qt.Key.Key_Left)
    first, second = hovered[0], hovered[1]
    assert first is not None
    assert second is not None
    assert int(first.removeprefix("r1-")) == int(second.removeprefix("r1-")) + 1
    assert stack.timeline.card.lines
    QTest.keyClick(key_stop(stack, "Timeline"), Qt.Key.Key_Escape)
    assert hovered[-1] is None
    QTest.keyClick(key_stop(stack, "Plots"), Qt.Key.Key_PageUp)
    assert stack.view_end_s() == pytest.approx(history.now_s() - 15.0)
    QTest.keyClick(key_stop(stack, "Plots"), Qt.Key.Key_Minus)
    assert stack.window_s == pytest.approx(75.0)
    QTest.keyClick(key_stop(stack, "Plots"), Qt.Key.Key_End)
    assert stack.is_live
    QTest.keyClick(key_stop(stack, "Plots"), Qt.Key.Key_Left)
    assert set(stack.queue_depth.header.readout) == {"waiting", "formed", "running"}


def test_that_end_while_frozen_asks_for_now(qtbot: QtBot, stack: PlotStack) -> None:
    stack.set_frozen(True)
    with qtbot.waitSignal(stack.live_requested):
        QTest.keyClick(key_stop(stack, "Plots"), Qt.Key.Key_End)


def test_that_empty_plots_say_what_they_will_show_and_have_no_values(make_stack: StackMaker) -> None:
    stack = make_stack(History(CLOCK, FakeClock(5.0)))
    stack.set_empty(True)
    assert all(panel.header.readout == {} for panel in stack.panels)
    for panel in stack.panels[:4]:
        assert named(panel, EmptyText, panel.plot.empty_text)
    [how_to_read] = stack.timeline.findChildren(HowToRead)
    assert how_to_read.isVisible()
    stack.set_empty(False)
    assert not any(text.isVisible() for text in stack.findChildren(EmptyText))
    assert not how_to_read.isVisible()


def test_that_a_click_on_a_title_says_in_the_plot_how_it_is_read_until_another_click(
    stack: PlotStack, qtbot: QtBot
) -> None:
    for panel in stack.panels:
        title = QPoint(PANEL_PADDING + 1, panel.header.height() // 2)
        qtbot.mouseClick(panel.header, Qt.MouseButton.LeftButton, pos=title)
        assert panel.help is not None
        assert panel.help.isVisible()
        assert panel.help.size() == panel.canvas.size()
        qtbot.mouseClick(panel.help, Qt.MouseButton.LeftButton)
        assert panel.help.isHidden()


def test_that_every_size_from_the_smallest_on_can_be_drawn(stack: PlotStack, qtbot: QtBot) -> None:
    for width, height in ((480, 400), (752, 609), (1336, 926)):
        stack.resize(width, height)
        stack.refresh()
        assert image(stack).width() == width


def test_that_another_palette_leaves_no_colour_of_the_one_before(make_stack: StackMaker, wear: Wear) -> None:
    history, _ = filled_history(early_run())
    stack = make_stack(history)
    dark_picture = image(stack)
    dark = colors(dark_picture)
    assert {DARK.plot, DARK.formed, DARK.timeout, DARK.full} <= dark
    wear("light")
    stack.refresh()
    light_picture = image(stack)
    light = colors(light_picture)
    assert {LIGHT.plot, LIGHT.formed, LIGHT.timeout, LIGHT.full} <= light
    assert {DARK.plot, DARK.formed, DARK.timeout, DARK.full} & light == set()
    lines = {DARK.line, DARK.grid}  # the edge of a black letter may have such a grey, here and there
    assert lines <= colors(dark_picture, least=100)
    assert lines & colors(light_picture, least=100) == set()


def test_that_a_slowed_stretch_is_marked_on_every_plot_and_named(make_stack: StackMaker) -> None:
    run = SyntheticRun(60.0, (Step(0.0, 8.0, Settings(max_batch_size=4)),), slowed=(Slowed(30.0, 40.0, 3.0),))
    history, clock = filled_history(run)
    stack = make_stack(history)
    before = [panel.canvas.grab().toImage() for panel in stack.panels]
    (found,) = contentions(history, clock.now_s)
    stack.show_contentions((found,))
    stack.refresh()
    for panel, plain in zip(stack.panels, before, strict=True):
        layout, marked = panel.layout_, panel.canvas.grab().toImage()
        assert layout is not None
        for at_s in (found.start_s, found.end_s or 0.0):
            x = int(layout.x_of(at_s))
            assert all(QColor(marked.pixel(x, y)) == QColor(DARK.t3) for y in (layout.top + 30, layout.bottom - 9))
        middle = int(layout.x_of(35.0 + run.start_s))
        has_axis = any(tick.text for tick in layout.ticks)
        assert (QColor(marked.pixel(middle, layout.bottom + 1)) == QColor(DARK.t2)) is has_axis
        assert marked.pixel(middle, layout.top + 25) == plain.pixel(middle, layout.top + 25), "no tint"


def test_that_a_stretch_in_which_a_replica_was_silent_is_marked_as_that_alone(make_stack: StackMaker) -> None:
    history, clock = filled_history(picture_run(), until_s=40.0)
    clock.now_s += 6.0
    stack = make_stack(history)
    slowed = [Contention(clock.now_s - before_s, None, "slowed", factor=3.0) for before_s in (4.0, 12.0)]
    slowed[1] = replace(slowed[1], end_s=clock.now_s - 9.0)
    stack.show_contentions(tuple(slowed))
    assert [each.text for each in stack.marks().stretches] == ["nothing heard for 6 s", "slowed"]
    assert stack.marks().stretches[1] == slowed[1]


def test_that_a_failure_is_seen_in_red_on_every_plot(make_stack: StackMaker) -> None:
    history, clock = filled_history(picture_run(), until_s=40.0)
    stack = make_stack(history)
    history.mark_failure()
    clock.now_s += 6
    stack.refresh()
    for panel in stack.panels:
        assert DARK.error in colors(panel.grab().toImage())


def test_that_nothing_is_painted_anew_as_long_as_nothing_changed(qtbot: QtBot, stack: PlotStack) -> None:
    QApplication.processEvents()
    stack.refresh()
    painted_panels: list[str] = []
    for panel in stack.panels:
        panel.draw = lambda _layout, name=panel.plot.name: painted_panels.append(name)  # type: ignore[method-assign,misc]
    for _ in range(5):
        stack.refresh()
    assert painted_panels == []


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each plot has counted what is under the pointer."""
    counts: Counter[str] = Counter()

    def counted(kind: type[PlotPanel]) -> Callable[[PlotPanel, float], Readout]:
        count = kind.readout_at

        def readout_at(panel: PlotPanel, at_s: float) -> Readout:
            counts[panel.plot.name] += 1
            return count(panel, at_s)

        return readout_at

    for kind in (BatchSizePanel, QueueDepthPanel, LatencyPanel, ThroughputPanel, TimelinePanel):
        monkeypatch.setattr(kind, "readout_at", counted(kind))
    return counts


@pytest.mark.parametrize("pointed", ["latency", "timeline"])
def test_that_a_pointer_at_rest_is_read_again_only_when_what_it_points_at_moves(
    make_stack: StackMaker, readings: Counter[str], pointed: str
) -> None:
    run = picture_run()
    history, clock = filled_history(run, until_s=50.0)
    stack = make_stack(history)
    panel = next(panel for panel in stack.panels if panel.plot.name == pointed)
    move(panel, QPointF(panel.width() / 2, 60))
    readings.clear()
    end_s, revision = stack.timeline.end_s, history.revision

    for telemetry, load in [pair for pair in run.frames(51.0) if pair[0].at_s > clock.now_s]:
        history.add_telemetry(telemetry)  # of what happens now, at the right edge
        history.add_load(load)
        clock.now_s += 1e-4
        stack.refresh()
    assert stack.timeline.end_s == end_s
    assert history.revision > revision
    assert readings == {}

    clock.now_s += 1.5 * stack.timeline.seconds_per_pixel()
    stack.refresh()
    assert readings == {panel.plot.name: 1 for panel in stack.panels}


@dataclass(frozen=True)
class CountedRange(TimeRange):
    """Counts how often all requests are looked through."""

    counts: Counter[str] = field(default_factory=Counter)

    def overlaps(self, starts: Floats, ends: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        self.counts["overlaps"] += 1
        return super().overlaps(starts, ends)


def test_that_the_timeline_looks_through_the_requests_once_a_drawing(stack: PlotStack, history: History) -> None:
    view = CountedRange(history.now_s() - 30.0, history.now_s(), 500)
    stack.timeline.compute(view)
    assert view.counts == {"overlaps": 1}


@pytest.fixture
def exporter(stack: PlotStack, history: History) -> Exporter:
    return Exporter(stack, history, stack)


def test_that_the_plots_are_exported_as_they_are_seen(
    qtbot: QtBot, exporter: Exporter, stack: PlotStack, tmp_path: Path
) -> None:
    path = tmp_path / "plots.png"
    with qtbot.waitSignal(exporter.written) as written:
        exporter.write("plots_png", path)
    assert written.args == [str(path)]
    assert QImage(str(path)).convertToFormat(QImage.Format.Format_RGB32) == image(stack)


def test_that_a_picture_that_cannot_be_written_leaves_the_one_before(
    qtbot: QtBot, exporter: Exporter, tmp_path: Path
) -> None:
    path = tmp_path / "plots.png"
    path.write_bytes(b"the one before")
    with room_for(100), qtbot.waitSignal(exporter.failed) as failed:
        exporter.write("plots_png", path)
    assert failed.args[0].startswith(f"Could not write {path}")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"the one before"]
    with qtbot.waitSignal(exporter.failed):
        exporter.write("plots_png", tmp_path / "missing" / "plots.png")


def test_that_the_timeline_gets_its_height(stack: PlotStack) -> None:
    assert timeline_height(SIZE.height()) == HEIGHT_TIMELINE
    assert stack.timeline.height() == HEIGHT_TIMELINE


def test_that_more_requests_than_lanes_can_be_scrolled_to(make_stack: StackMaker) -> None:
    run = SyntheticRun(25.0, (Step(0.0, 40.0, Settings(max_batch_size=16)),), tokens=48)
    history, _ = filled_history(run)
    stack = make_stack(history)
    assert stack.timeline.overflows
    assert place_of_batch(stack, history, batch_ago(history, 0.2))
    pictures = [image(stack)]
    for notches in (1, -1):
        wheel(stack.timeline, notches)
        pictures.append(image(stack))
    assert pictures[0] != pictures[1] or pictures[1] != pictures[2]
    assert stack.is_live


def test_that_a_frame_fits_while_256_requests_are_under_way(make_stack: StackMaker) -> None:
    """By the processor's time, since others use it too; what is allowed is the whole frame, the aim is a quarter."""
    settings = Settings(max_batch_size=256, max_queued_requests=4096)
    run = SyntheticRun(22.0, (Step(0.0, 80.0, settings),), step_s=0.05, tokens=48)
    history, clock = filled_history(run, until_s=16.0)
    stack = make_stack(history)
    spent = []
    for telemetry, load in [pair for pair in run.frames(21.0) if pair[0].at_s > history.now_s()]:
        clock.now_s = telemetry.at_s
        history.add_telemetry(telemetry)
        history.add_load(load)
        begun = time.process_time()
        stack.refresh()
        QApplication.processEvents()
        spent.append(time.process_time() - begun)
    assert sum(history.depth_at(history.now_s())) >= 256
    assert float(np.median(spent)) < 0.033


def test_that_without_time_for_all_plots_each_call_draws_the_next_one(make_stack: StackMaker) -> None:
    run = picture_run()
    history, clock = filled_history(run, until_s=20.0)
    stack = make_stack(history)
    news = [pair for pair in run.frames(26.0) if pair[0].at_s > history.now_s()]
    drawn = [panel.drawings for panel in stack.panels]
    for telemetry, load in news[10::10][: 2 * len(stack.panels)]:
        clock.now_s = telemetry.at_s
        history.add_telemetry(telemetry)
        history.add_load(load)
        before = [panel.drawings for panel in stack.panels]
        stack.refresh(within_s=0.0)
        assert [panel.drawings - count for panel, count in zip(stack.panels, before, strict=True)].count(1) == 1
    assert [panel.drawings - count for panel, count in zip(stack.panels, drawn, strict=True)] == [2] * 5


def test_that_bars_areas_and_points_are_whole_pixels() -> None:
    pane = Pane(0, 20, axis=Axis(step=4.0, ceiling=16.4))
    ink = Ink.of(QColor("#102030"), edge="#FFFFFF")
    bars = painted([bars_layer(ink, pane, 6, np.array([1, 4]), np.array([3, 9]), np.array([8.0, 4.0]))], 20, 6)
    assert (bars > 0).sum(axis=0).tolist() == [0, 8, 8, 0, 4, 4]
    high = np.array([4.0, 4.0, 12.0, 4.0])
    area = painted([stepped_layer(ink, pane, high, high)], 20, 4)
    assert (area == QColor("#FFFFFF").rgb()).sum(axis=0).tolist() == [1, 1, 8, 1]
    points = dotted(np.array([5]), np.array([5]), 11, 11, QColor("#FFFFFF"))
    assert points[5, 5] == 0xFFFFFFFF
    assert (points == points.T).all()
    assert (points > 0).sum() == 13
