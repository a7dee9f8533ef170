"""The view in which settings are compared and swept, on the scripted service."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml
from numpy.typing import NDArray
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.comparing.results import CompareResults, SweepResults
from gui.comparing.scatter import SweepPlot
from gui.comparing.view import SWEEP, CompareView
from gui.look.theme import Theme
from gui.panels.views import COMPARE
from service.analysis.compare.serve_config import measured_config
from service.messages.load import ClosedLoop, Poisson
from tests.unit.test_compare_page import FACTS, comparison, sweep
from tests.window.seen import settings_in_force


def compare_view(batchscope: Batchscope) -> CompareView:
    """The view, shown, with runs as short as they can be."""
    window = batchscope.window
    window.views.show_view(COMPARE)
    window.load.set_load(ClosedLoop(users=16), 4)
    view = window.views.pages.currentWidget()
    assert isinstance(view, CompareView)
    for setup in (view.setup, view.sweep_setup):
        setup.duration.set_number(1)
    view.setup.rounds.set_number(2)
    batchscope.composition.compare.refresh()
    return view


def change(qtbot: QtBot, batchscope: Batchscope, **changes: object) -> None:
    batchscope.composition.session.change_settings(dict(changes))
    qtbot.waitUntil(lambda: settings_in_force(batchscope).revised(changes) == settings_in_force(batchscope))
    batchscope.composition.compare.refresh()


def outstanding(batchscope: Batchscope) -> int:
    load = batchscope.composition.history.load
    return load.totals.outstanding if load is not None else 0


def started_sweep(qtbot: QtBot, batchscope: Batchscope, sizes: str) -> CompareView:
    view = compare_view(batchscope)
    view.show_kind(SWEEP)
    view.sweep_setup.values["batch_wait_timeout_s"].clear()
    view.sweep_setup.values["max_batch_size"].setText(sizes)
    qtbot.mouseClick(view.sweep_setup.controls.button, Qt.MouseButton.LeftButton)
    return view


def test_that_nothing_can_be_compared_before_there_is_a_service(batchscope: Batchscope) -> None:
    view = compare_view(batchscope)

    assert not view.setup.pin.isEnabled()
    assert not view.setup.controls.button.isEnabled()
    assert not view.sweep_setup.controls.button.isEnabled()


def test_that_what_is_pinned_stays_a_while_b_follows_the_settings(qtbot: QtBot, running: Batchscope) -> None:
    view = compare_view(running)
    assert not view.setup.controls.button.isEnabled()

    qtbot.mouseClick(view.setup.pin, Qt.MouseButton.LeftButton)
    change(qtbot, running, max_batch_size=2)

    assert ["max_batch_size", "16", "2"] in view.setup.sides.texts()
    assert view.setup.controls.button.isEnabled()


def test_that_the_load_is_pinned_too_and_an_open_loop_can_be_held_against_a_closed_one(
    qtbot: QtBot, running: Batchscope
) -> None:
    view = compare_view(running)
    qtbot.mouseClick(view.setup.pin, Qt.MouseButton.LeftButton)
    assert not view.setup.matches_throughput

    running.window.load.set_load(Poisson(rate_per_s=5.0), 4)
    running.composition.compare.refresh()
    assert view.setup.load.text().splitlines() == [
        "Load of A: 16 users, 4 tokens a request",
        "Load of B: 5.0 req/s, 4 tokens a request",
    ]

    qtbot.mouseClick(view.setup.rate.button("matched"), Qt.MouseButton.LeftButton)
    assert view.setup.matches_throughput


def test_that_a_comparison_ends_with_a_verdict_and_the_settings_as_they_were(qtbot: QtBot, running: Batchscope) -> None:
    view = compare_view(running)
    qtbot.mouseClick(view.setup.pin, Qt.MouseButton.LeftButton)
    change(qtbot, running, max_batch_size=1)

    qtbot.mouseClick(view.setup.controls.button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not running.composition.history.is_empty)
    assert not running.window.batching.isEnabled()
    assert not running.window.load.button.isEnabled()
    with qtbot.waitSignal(running.composition.compare.busy_changed):
        pass

    assert "p95" in view.results.verdict.text()
    assert "2 rounds" in view.results.verdict.text()
    assert view.results.report.isEnabled()
    assert running.window.batching.isEnabled()
    qtbot.waitUntil(lambda: settings_in_force(running).max_batch_size == 1)
    assert running.errors == []


def test_that_the_time_it_takes_is_said_beforehand(qtbot: QtBot, running: Batchscope) -> None:
    view = compare_view(running)
    qtbot.mouseClick(view.setup.pin, Qt.MouseButton.LeftButton)
    assert view.setup.controls.duration.text().startswith("About 17 s: 4 runs × 1 s + 1.5 s each")

    view.setup.rounds.set_number(3)
    view.setup.rounds.entered.emit(3.0)
    assert "6 runs" in view.setup.controls.duration.text()
    view.show_kind(SWEEP)
    view.sweep_setup.values["max_batch_size"].setText("1, 2, 4")
    assert "6 settings × 1 s" in view.sweep_setup.controls.duration.text()


def test_that_a_backlog_of_ours_is_named_and_can_be_cancelled(qtbot: QtBot, running: Batchscope) -> None:
    window, controls = running.window, compare_view(running).setup.controls
    change(qtbot, running, max_batch_size=2)
    window.load.set_load(ClosedLoop(users=64), 256)
    qtbot.mouseClick(window.load.button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: outstanding(running) == 64)
    QTest.mouseClick(compare_view(running).setup.batching, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(controls.cancel_backlog.isVisible)
    assert "requests of other load are under way: the next run starts when" in controls.note.text()

    qtbot.mouseClick(controls.cancel_backlog, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not controls.cancel_backlog.isVisible())
    qtbot.waitUntil(lambda: outstanding(running) == 0)
    qtbot.mouseClick(controls.button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not running.composition.compare.is_busy)


def test_that_one_click_measures_what_batching_gives(qtbot: QtBot, running: Batchscope) -> None:
    setup = compare_view(running).setup
    QTest.mouseClick(setup.batching, Qt.MouseButton.LeftButton)
    assert ["max_batch_size", "1", "16"] in setup.sides.texts()
    results = compare_view(running).results
    qtbot.waitUntil(lambda: not running.composition.compare.is_busy)
    assert results.verdict.text().startswith(("B's requests/s is", "No difference is certain: B's requests/s is"))
    qtbot.waitUntil(lambda: settings_in_force(running).max_batch_size == 16)


def test_that_without_batches_there_is_nothing_to_measure(qtbot: QtBot, running: Batchscope) -> None:
    setup = compare_view(running).setup
    change(qtbot, running, max_batch_size=1)
    QTest.mouseClick(setup.batching, Qt.MouseButton.LeftButton)
    assert setup.controls.note.text() == "Raise max_batch_size first: with 1 nothing is batched."


def test_that_cancel_ends_it_and_leaves_no_process(qtbot: QtBot, running: Batchscope) -> None:
    view = compare_view(running)
    qtbot.mouseClick(view.setup.pin, Qt.MouseButton.LeftButton)
    view.setup.duration.set_number(60)
    button = view.setup.controls.button
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "round 1" in view.setup.controls.note.text().lower())
    children = psutil.Process().children()

    with qtbot.waitSignal(running.composition.compare.busy_changed):
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)

    assert len(psutil.Process().children()) == len(children) - 1
    assert view.setup.controls.note.text() == ""
    assert button.text() == "Compare A and B"
    assert running.errors == []


def test_that_a_sweep_finds_a_best_that_can_be_applied(qtbot: QtBot, running: Batchscope) -> None:
    view = started_sweep(qtbot, running, "1, 8")
    with qtbot.waitSignal(running.composition.compare.busy_changed):
        pass

    results = view.sweep_results
    assert "max_batch_size 8" in results.verdict.text()
    qtbot.mouseClick(results.apply, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: settings_in_force(running).max_batch_size == 8)
    assert running.errors == []


def test_that_a_sweep_that_was_cancelled_goes_on_where_it_stopped(qtbot: QtBot, running: Batchscope) -> None:
    compare = running.composition.compare
    view = started_sweep(qtbot, running, "1, 2")
    qtbot.waitUntil(lambda: "Of the first 1" in view.sweep_results.verdict.text())
    with qtbot.waitSignal(compare.busy_changed):
        qtbot.mouseClick(view.sweep_setup.controls.button, Qt.MouseButton.LeftButton)
    assert view.sweep_setup.resume.isVisible()

    qtbot.mouseClick(view.sweep_setup.resume, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(compare.busy_changed):
        pass

    assert "Of 2 settings" in view.sweep_results.verdict.text()
    assert not view.sweep_setup.resume.isVisible()


def test_that_values_that_a_setting_refuses_are_said_beside_them(running: Batchscope) -> None:
    view = compare_view(running)
    view.show_kind(SWEEP)

    view.sweep_setup.values["max_batch_size"].setText("4, 0")

    assert view.sweep_setup.points.text() == "max_batch_size: Must be a whole number from 1 to 256."
    assert view.sweep_setup.values["max_batch_size"].property("refused")


def test_that_a_decimal_comma_is_not_read_as_two_values(running: Batchscope) -> None:
    view = compare_view(running)
    view.show_kind(SWEEP)
    view.sweep_setup.values["batch_wait_timeout_s"].setText("0,05")
    assert view.sweep_setup.points.text().startswith("batch_wait_timeout_s: Decimals take a point, not a comma")
    view.sweep_setup.values["batch_wait_timeout_s"].setText("0, 0.05")
    assert not view.sweep_setup.values["batch_wait_timeout_s"].property("refused")


def test_that_closing_the_window_ends_what_is_measured(qtbot: QtBot, running: Batchscope) -> None:
    started_sweep(qtbot, running, "1, 2, 4, 8")
    qtbot.waitUntil(lambda: running.composition.compare.is_busy)
    children = psutil.Process().children()

    with qtbot.waitSignal(running.closed):
        running.close()

    _, alive = psutil.wait_procs(children, timeout=120)
    assert alive == []


@pytest.fixture
def results(qtbot: QtBot, theme: Theme) -> SweepResults:
    made = SweepResults()
    qtbot.addWidget(made)
    made.resize(600, 500)
    made.show()
    made.show_sweep(sweep())
    return made


def test_that_no_figure_is_cut_where_the_window_is_low(qtbot: QtBot, theme: Theme) -> None:
    compared = CompareResults()
    qtbot.addWidget(compared)
    compared.resize(500, 300)
    compared.show()
    compared.show_comparison(comparison())
    figures = compared.figures
    qtbot.waitUntil(lambda: figures.height() >= figures.minimumSizeHint().height() > 200)
    assert len(figures.texts()) == len(comparison().differences)


def test_that_the_best_is_looked_at_until_another_point_is_picked(results: SweepResults) -> None:
    assert results.point.startswith("max_batch_size 1, best: ")

    results.plot.setFocus()
    QTest.keyClick(results.plot, Qt.Key.Key_Right)
    assert results.point.startswith("max_batch_size 4: ")

    results.show_sweep(sweep())
    assert results.point.startswith("max_batch_size 4: ")


def test_that_a_click_picks_the_point_under_it(results: SweepResults) -> None:
    plot: SweepPlot = results.plot
    chosen: list[int] = []
    plot.chosen.connect(chosen.append)
    before = pixels(plot)
    QTest.keyClick(plot, Qt.Key.Key_Right)
    at_second = pixels(plot)
    QTest.keyClick(plot, Qt.Key.Key_Right)
    rows, columns = np.nonzero((at_second != before) & (at_second != pixels(plot)))  # where the ring was meanwhile

    place = QPoint(round(columns.mean()) + 3, round(rows.mean()) - 3)
    QTest.mouseClick(plot.canvas.viewport(), Qt.MouseButton.LeftButton, pos=place)

    second, third, clicked = chosen
    assert second != third
    assert clicked == second


def pixels(plot: SweepPlot) -> NDArray[np.uint32]:
    image = plot.canvas.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), np.uint32).reshape(image.height(), image.width()).copy()


def test_that_a_report_and_a_config_are_saved_as_they_are(qtbot: QtBot, batchscope: Batchscope, tmp_path: Path) -> None:
    compare = batchscope.composition.compare
    found = comparison()
    config = measured_config(FACTS, found.plan.b.settings, found.verdict)

    with qtbot.waitSignal(compare.written) as written:
        compare.write(tmp_path / "serve.yaml", config)

    assert written.args == [str(tmp_path / "serve.yaml")]
    arguments = yaml.safe_load((tmp_path / "serve.yaml").read_text())["applications"][0]["args"]
    assert arguments["settings"]["formation"] == "early"
    with qtbot.waitSignal(compare.failed):
        compare.write(tmp_path / "none" / "serve.yaml", config)
