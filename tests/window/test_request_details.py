"""Looking at one request: in the timeline, in the table, and in what is told of it."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QItemSelectionModel, QPoint, QRectF, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.control.inspector import RequestInspector
from gui.control.rows import shown
from gui.look.theme import Theme
from gui.look.tokens import LIGHT
from gui.main_window import MainWindow
from gui.panels.requests_model import ROW_ROLE
from gui.plots.plot_stack import PlotStack
from gui.plots.timeline_items import LaneSurroundings
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import batch_running, members_of
from tests.synthetic_run import FakeClock, filled_history, picture_run
from tests.window.conftest import Wear
from tests.window.seen import drawn, key_stop, row_of_batch, texts


class Desk:
    """The window with the parts that tell of requests, and a history."""

    def __init__(self, history: History, clock: FakeClock, theme: Theme) -> None:
        self.history, self.clock = history, clock
        self.plots = PlotStack(history)
        self.window = MainWindow(self.plots, theme)
        self.window.requests.model.update(map(shown, history.requests.rows()), history.now_s())
        self.window.requests.refresh_counts()
        self.inspector = RequestInspector(self.window, self.plots, history)

    def place_of(self, row: int) -> QPoint:
        """Where a request stands in the timeline."""
        self.plots.timeline.choose(row)
        [outline] = self.outlines
        self.plots.timeline.choose(None)
        return outline.center().toPoint()

    @property
    def outlines(self) -> list[QRectF]:
        """Of the chosen request."""
        return drawn(self.plots.timeline.canvas, LaneSurroundings).chosen

    def click(self, row: int) -> None:
        viewport = self.plots.timeline.canvas.viewport()
        QTest.mouseClick(viewport, Qt.MouseButton.LeftButton, pos=self.place_of(row))

    def selected(self) -> list[int]:
        chosen = self.window.requests.table.selectionModel().selectedRows()
        return [index.data(ROW_ROLE).key for index in chosen]

    def ran_ago(self, ago_s: float) -> int:
        """A request in the middle of a batch that ran then."""
        batch = batch_running(self.history, self.history.now_s() - ago_s)
        assert batch is not None
        rows = members_of(self.history, batch)
        return rows[len(rows) // 2]


@pytest.fixture
def desk(qtbot: QtBot, theme: Theme) -> Desk:
    desk = Desk(*filled_history(picture_run()), theme)
    qtbot.addWidget(desk.window)
    desk.window.resize(1440, 900)
    desk.window.show()
    qtbot.waitActive(desk.window)
    desk.plots.refresh()
    return desk


def press(desk: Desk, key: Qt.Key) -> None:
    QTest.keyClick(key_stop(desk.plots, "Timeline"), key)


def test_that_a_click_on_a_bar_tells_of_its_request(desk: Desk) -> None:
    row = desk.ran_ago(15.0)
    desk.click(row)
    assert (desk.inspector.row, desk.plots.timeline.chosen, desk.selected()) == (row, row, [row])
    assert desk.window.requests_column.shows_details
    assert desk.inspector.details.strip.lines[-1][0] == "Latency"
    assert any(text.startswith("Waited ") for text in texts(desk.inspector.details))


def test_that_the_chosen_request_is_outlined_in_the_timeline(desk: Desk) -> None:
    desk.click(desk.ran_ago(15.0))
    assert len(desk.outlines) == 1


def test_that_a_drag_is_no_click(desk: Desk) -> None:
    viewport, place = desk.plots.timeline.canvas.viewport(), desk.place_of(desk.ran_ago(15.0))
    QTest.mousePress(viewport, Qt.MouseButton.LeftButton, pos=place)
    QTest.mouseMove(viewport, place + QPoint(40, 0))
    QTest.mouseRelease(viewport, Qt.MouseButton.LeftButton, pos=place + QPoint(40, 0))
    assert desk.inspector.row is None
    assert not desk.plots.is_live


def test_that_a_click_leaves_the_plots_where_they_are(desk: Desk) -> None:
    viewport, place = desk.plots.timeline.canvas.viewport(), desk.place_of(desk.ran_ago(15.0))
    QTest.mousePress(viewport, Qt.MouseButton.LeftButton, pos=place)
    QTest.mouseMove(viewport, place + QPoint(1, 0))
    QTest.mouseRelease(viewport, Qt.MouseButton.LeftButton, pos=place + QPoint(1, 0))
    assert desk.plots.is_live
    assert desk.inspector.row is not None


def test_that_a_click_on_nothing_closes_the_details(desk: Desk) -> None:
    desk.click(desk.ran_ago(15.0))
    layout = desk.plots.timeline.layout_
    assert layout is not None
    QTest.mouseClick(
        desk.plots.timeline.canvas.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(layout.left + 2, layout.bottom - 2)
    )
    assert desk.inspector.row is None
    assert not desk.window.requests_column.shows_details


def test_that_escape_closes_the_details_before_anything_else(desk: Desk) -> None:
    desk.window.show_log(True)
    desk.click(desk.ran_ago(15.0))
    QTest.keyClick(desk.window, Qt.Key.Key_Escape)
    assert not desk.window.requests_column.shows_details
    assert desk.plots.timeline.chosen is None
    assert not desk.window.log.isHidden()


def test_that_a_row_of_the_table_is_marked_in_the_timeline(desk: Desk) -> None:
    table = desk.window.requests.table
    QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(80, 60))
    assert desk.selected() == [desk.inspector.row] == [desk.plots.timeline.chosen]


def test_that_the_arrow_keys_in_the_table_lead_from_request_to_request(desk: Desk) -> None:
    table = desk.window.requests.table
    QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(80, 60))
    first = desk.inspector.row
    QTest.keyClick(table, Qt.Key.Key_Down)
    assert first is not None
    assert desk.inspector.row == first - 1  # the newest stands on top
    assert table.hasFocus()


def test_that_a_request_out_of_view_is_gone_to(desk: Desk) -> None:
    desk.plots.set_window_s(10.0)
    row = desk.ran_ago(40.0)
    table, line = (
        desk.window.requests.table,
        desk.window.requests.model.line_of(shown(desk.history.requests.row(row)).id),
    )
    assert line is not None
    table.selectRow(line)
    layout = desk.plots.timeline.layout_
    assert layout is not None
    assert layout.view.contains(desk.history.requests.columns.get(row, "started"))


def test_that_several_selected_rows_are_not_looked_at(desk: Desk) -> None:
    desk.window.requests.table.selectAll()
    assert desk.inspector.row is None


def test_that_to_reach_the_table_by_key_opens_nothing(desk: Desk) -> None:
    desk.window.requests.table.setFocus(Qt.FocusReason.TabFocusReason)
    assert desk.inspector.row is None


def test_that_batch_mates_lead_on(desk: Desk) -> None:
    row = desk.ran_ago(15.0)
    desk.click(row)
    mates = desk.inspector.details.mates
    QTest.mouseClick(mates.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(80, 20))
    batch = int(desk.history.requests.columns.get(row, "batch"))
    assert desk.inspector.row != row
    assert desk.inspector.row in members_of(desk.history, batch)


def test_that_the_keyboard_leads_through_batches_and_their_members(desk: Desk) -> None:
    hovered: list[str] = []
    desk.plots.batch_hovered.connect(hovered.append)
    key_stop(desk.plots, "Timeline").setFocus()
    press(desk, Qt.Key.Key_Left)
    rows = members_of(desk.history, row_of_batch(desk.history, hovered[-1]))
    press(desk, Qt.Key.Key_Return)
    assert desk.inspector.row == rows[0]
    press(desk, Qt.Key.Key_Down)
    assert desk.inspector.row == rows[1]
    press(desk, Qt.Key.Key_Up)
    press(desk, Qt.Key.Key_Up)
    assert desk.inspector.row == rows[0]


def test_that_the_table_stays_above_the_details_where_there_is_room(desk: Desk) -> None:
    desk.click(desk.ran_ago(15.0))
    assert desk.window.requests.isVisible()
    desk.window.resize(1280, 800)
    QApplication.processEvents()
    assert not desk.window.requests.isVisible()
    assert desk.inspector.details.isVisible()
    desk.inspector.close()
    assert desk.window.requests.isVisible()


def test_that_a_request_that_runs_is_told_of_as_it_goes_on(desk: Desk) -> None:
    columns = desk.history.requests.columns
    row = int((columns["finished"] == float("inf")).argmax()) + columns.first
    desk.click(row)
    before = desk.inspector.details.strip.lines[-1]
    desk.clock.now_s += 1.0
    desk.inspector.refresh()
    assert desk.inspector.details.strip.lines[-1] != before


def test_that_a_request_that_is_no_longer_kept_is_let_go(desk: Desk) -> None:
    desk.click(desk.ran_ago(15.0))
    desk.history.clear()
    desk.inspector.refresh()
    assert desk.inspector.row is None
    assert not desk.window.requests_column.shows_details


def test_that_what_is_selected_stays_in_sight_when_the_details_take_room(desk: Desk) -> None:
    desk.click(desk.ran_ago(15.0))
    QApplication.processEvents()
    table = desk.window.requests.table
    index = table.selectionModel().selectedRows()[0]
    assert table.viewport().rect().contains(table.visualRect(index))


def test_that_a_hidden_request_is_told_of_all_the_same(desk: Desk) -> None:
    desk.window.requests.model.set_filter("waiting")
    row = desk.ran_ago(15.0)
    desk.click(row)
    assert (desk.inspector.row, desk.selected()) == (row, [])


def test_that_the_details_can_change_their_palette(desk: Desk, wear: Wear) -> None:
    desk.click(desk.ran_ago(15.0))
    wear("light")
    strip = desk.inspector.details.strip.grab().toImage()
    assert LIGHT.line.lower() in {strip.pixelColor(1, y).name() for y in range(strip.height())}


def test_that_to_select_by_program_chooses_nothing(desk: Desk) -> None:
    model = desk.window.requests.table.selectionModel()
    desk.window.requests.select(desk.window.requests.model.row(3).id)
    assert desk.inspector.row is None
    assert len(model.selectedRows()) == 1
    model.select(desk.window.requests.model.index(5, 0), QItemSelectionModel.SelectionFlag.ClearAndSelect)
    assert desk.inspector.row is not None


def test_that_in_a_narrow_window_the_drawer_opens_for_it(desk: Desk) -> None:
    desk.window.resize(1000, 700)
    QApplication.processEvents()
    desk.plots.refresh()
    desk.click(desk.ran_ago(15.0))
    assert desk.inspector.details.isVisible()
    QTest.keyClick(desk.window, Qt.Key.Key_Escape)
    assert not desk.inspector.details.isVisible()
    assert desk.window.requests.isVisible()


def test_that_the_tab_key_leads_from_the_table_into_the_details(desk: Desk) -> None:
    desk.click(desk.ran_ago(15.0))
    desk.window.requests.table.setFocus()
    visited = []
    for _ in range(2):
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        visited.append(QApplication.focusWidget())
    assert all(desk.inspector.details.isAncestorOf(widget) for widget in visited)
    assert desk.inspector.details.mates in visited
