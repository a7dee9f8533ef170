"""The distributions on real widgets."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QColor, QImage, QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from gui.look.theme import Theme
from gui.look.tokens import DARK, LIGHT, PLOT_GUTTER
from gui.plots.chart import Chart
from gui.plots.distributions import DistributionsView
from gui.plots.latency_charts import CumulativePlot
from gui.plots.plot_stack import PlotStack
from gui.plots.plot_widget import EmptyText
from gui.series.latency import Sample
from gui.series.scale import value_axis
from service.analysis.observed.history import History
from service.analysis.observed.stages import STAGES
from tests.synthetic_run import CLOCK, FakeClock, SyntheticRun, filled_history, picture_run
from tests.window.conftest import Wear

SAMPLES = Sample("A", np.linspace(0.5, 1.5, 200)), Sample("B", np.linspace(1.0, 4.0, 100))


@pytest.fixture(scope="module")
def history() -> History:
    return filled_history(picture_run())[0]


@pytest.fixture
def view(qtbot: QtBot, theme: Theme, history: History) -> DistributionsView:
    return shown(qtbot, history)


def shown(qtbot: QtBot, history: History) -> DistributionsView:
    plots = PlotStack(history)
    view = DistributionsView(history, plots)
    for widget in (plots, view):
        qtbot.addWidget(widget)
    view.resize(856, 709)
    view.show()
    qtbot.waitExposed(view)
    view.refresh()
    view.count()
    return view


def point(chart: Chart, share: float | None) -> None:
    """Move the pointer to a place on the axis, or away."""
    if share is None:
        QApplication.sendEvent(chart.canvas, QEvent(QEvent.Type.Leave))
        return
    move_pointer(chart.canvas.viewport(), QPointF(PLOT_GUTTER + share * chart.columns + 0.5, 40.0))


def move_pointer(widget: QWidget, place: QPointF) -> None:
    button, there = Qt.MouseButton.NoButton, widget.mapToGlobal(place.toPoint()).toPointF()
    event = QMouseEvent(QEvent.Type.MouseMove, place, there, button, button, Qt.KeyboardModifier.NoModifier)
    QApplication.sendEvent(widget, event)


def shares(chart: Chart) -> dict[str, float]:
    return {name: float(value.removesuffix(" %")) for name, value in chart.header.readout.items()}


def place_of(picture: QImage, ink: str) -> QPointF:
    """The first pixel of that colour, from above."""
    pixels = np.frombuffer(picture.convertToFormat(QImage.Format.Format_RGB32).constBits(), np.uint32)
    row, column = divmod(int(np.flatnonzero(pixels == QColor(ink).rgb())[0]), picture.width())
    return QPointF(column, row)


def count_of(picture: QImage, ink: str) -> int:
    pixels = np.frombuffer(picture.convertToFormat(QImage.Format.Format_RGB32).constBits(), np.uint32)
    return int(np.count_nonzero(pixels == QColor(ink).rgb()))


def test_that_it_says_which_settings_count(qtbot: QtBot, view: DistributionsView) -> None:
    with qtbot.waitSignal(view.described) as told:
        view.count()
    assert told.args[0].startswith("v3, ")
    assert told.args[0].endswith("dashed v2")


def test_that_legends_tell_percentiles_and_counts(view: DistributionsView) -> None:
    assert float(view.cumulative.header.readout["p50"]) <= float(view.cumulative.header.readout["p99"])
    assert int(view.histogram.header.readout["requests"]) > 0
    assert view.batches.header.readout["cap"] == "16"
    assert view.wasted.header.readout["padding"].endswith(" %")


def test_that_another_time_of_the_requests_is_distributed_in_its_own_unit(view: DistributionsView) -> None:
    answer = float(view.cumulative.header.readout["p50"])
    view.show_measure("tpot")
    assert 30 < float(view.cumulative.header.readout["p50"]) < 90, "milliseconds per token"
    assert view.cumulative.chip_at(0.5).endswith(" ms")
    view.show_measure("latency")
    assert float(view.cumulative.header.readout["p50"]) == answer


def test_that_batches_are_drawn_in_the_colours_of_their_reasons(view: DistributionsView) -> None:
    picture = view.batches.canvas.grab().toImage()
    assert count_of(picture, DARK.full) > 100
    assert count_of(picture, DARK.timeout) > 100


def test_that_histogram_and_cumulative_curve_share_the_pointer(view: DistributionsView) -> None:
    point(view.cumulative, 0.5)
    assert set(view.cumulative.header.readout) == {"v3", "v2"}
    assert all(value.endswith(" %") for value in view.histogram.header.readout.values())
    point(view.cumulative, None)
    assert "p50" in view.cumulative.header.readout
    assert view.histogram.header.readout["requests"].isdigit()


def test_that_the_arrow_keys_move_the_pointer_along_the_latencies(view: DistributionsView) -> None:
    view.setFocus()
    QTest.keyClick(view, Qt.Key.Key_Right)
    QTest.keyClick(view, Qt.Key.Key_Right, Qt.KeyboardModifier.ShiftModifier)
    by_key = shares(view.cumulative)
    point(view.cumulative, 0.6)
    assert shares(view.cumulative) == pytest.approx(by_key, abs=1)
    assert all(value.endswith(" %") for value in view.histogram.header.readout.values())
    view.clearFocus()
    assert "p50" in view.cumulative.header.readout


def test_that_a_bar_of_batches_tells_its_size_under_the_pointer(view: DistributionsView) -> None:
    point(view.batches, 0.97)
    assert view.batches.chip_at(0.999) == "16"
    assert view.batches.header.readout["full"].endswith(" %")


def test_that_a_stage_under_the_pointer_stands_out_and_is_explained(view: DistributionsView) -> None:
    bars = view.stages.bars
    move_pointer(bars, place_of(bars.grab().toImage(), DARK.waiting))
    assert bars.pointed is not None
    assert STAGES[bars.pointed].name == "waiting"
    assert STAGES[bars.pointed].meaning in bars.toolTip()


def test_that_the_stages_of_a_function_have_its_words(qtbot: QtBot, theme: Theme) -> None:
    history, _ = filled_history(picture_run())
    history.unit = "houses"
    view = shown(qtbot, history)
    move_pointer(view.stages.bars, place_of(view.stages.bars.grab().toImage(), DARK.running))
    assert view.stages.bars.toolTip() == "Stream: the further pieces of a result that is streamed"


def test_that_without_data_each_plot_says_what_it_will_show(qtbot: QtBot, theme: Theme) -> None:
    view = shown(qtbot, History(CLOCK, clock=FakeClock(5.0)))
    view.set_empty(True)
    view.refresh()
    view.count()
    [says] = view.cumulative.findChildren(EmptyText)
    assert says.isVisible()
    assert view.cumulative.header.readout == {}
    view.set_empty(False)
    view.refresh()
    view.count()
    assert not says.isVisible()


def test_that_it_stands_a_history_in_which_nothing_has_been_answered(qtbot: QtBot, theme: Theme) -> None:
    view = shown(qtbot, filled_history(SyntheticRun(0.2))[0])
    assert view.cumulative.header.readout["p50"] == "–"


def test_that_it_counts_nothing_while_it_is_not_looked_at(qtbot: QtBot, view: DistributionsView) -> None:
    view.hide()
    with qtbot.assertNotEmitted(view.described):
        view.refresh()
        view.count()


def test_that_it_can_change_its_palette(view: DistributionsView, wear: Wear) -> None:
    wear("light")
    view.refresh()
    view.count()
    assert count_of(view.batches.canvas.grab().toImage(), LIGHT.full) > 100


@pytest.fixture
def cumulative(qtbot: QtBot, theme: Theme) -> CumulativePlot:
    plot = CumulativePlot()
    qtbot.addWidget(plot)
    plot.resize(640, 300)
    plot.show()
    qtbot.waitExposed(plot)
    return plot


def test_that_the_gap_between_two_samples_is_filled(cumulative: CumulativePlot) -> None:
    cumulative.show_samples(SAMPLES[0])
    alone = count_of(cumulative.canvas.grab().toImage(), DARK.plot)
    cumulative.show_samples(*SAMPLES)
    assert count_of(cumulative.canvas.grab().toImage(), DARK.plot) < alone - 1000


def test_that_a_wide_plot_names_its_samples_at_rest(cumulative: CumulativePlot) -> None:
    cumulative.show_samples(*SAMPLES)
    assert list(cumulative.header.readout) == ["A", "B", "p50", "p95", "p99"]
    cumulative.resize(400, 300)
    assert list(cumulative.header.readout) == ["p50", "p95", "p99"]
    cumulative.resize(360, 300)
    assert list(cumulative.header.readout) == ["p50", "p95"]


def test_that_the_pointer_tells_the_share_of_each_sample(cumulative: CumulativePlot) -> None:
    cumulative.show_samples(*SAMPLES)
    axis = value_axis(*(sample.values for sample in SAMPLES))
    point(cumulative, float(axis.shares(np.array([1.5]))[0]) + 1e-6)
    assert cumulative.header.readout == {"A": "100 %", "B": "17 %"}
