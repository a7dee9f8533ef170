"""The table of requests: order, filters, counts and what it costs while hundreds stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QEnterEvent
from PySide6.QtTest import QAbstractItemModelTester, QTest
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot

from gui.control.rows import shown
from gui.look import tokens
from gui.look.theme import Theme
from gui.panels.requests import EMPTY_TEXT, RequestsPanel
from gui.panels.requests_model import Counts, Filter, RequestsModel, TableRow
from gui.widgets.segmented import Segmented
from service.messages.telemetry import RequestState
from tests.synthetic_run import filled_history, picture_run
from tests.window.seen import named, texts


def request(id: str, state: RequestState = "waiting", **more: object) -> TableRow:
    row = TableRow(id, f"prompt {id}", "", state, intended_s=0.0, tokens=0, max_tokens=24)
    return replace(row, **more)  # type: ignore[arg-type]


def requests(count: int, state: RequestState = "waiting", start: int = 0) -> list[TableRow]:
    return [request(f"r{n}", state) for n in range(start, start + count)]


def ids(model: RequestsModel) -> list[str]:
    return [model.row(line).id for line in range(model.rowCount())]


def test_that_a_request_whose_text_is_not_known_is_said_to_be_another_clients() -> None:
    history, _ = filled_history(picture_run())
    ours = history.requests.rows()[0]

    assert shown(ours).prompt == ours.prompt
    assert shown(replace(ours, prompt="", client_id="curl-7")).prompt == "Another client's request"


@pytest.fixture
def model(qapp: QApplication) -> RequestsModel:
    return RequestsModel()


@pytest.fixture
def tester(model: RequestsModel) -> QAbstractItemModelTester:
    """Qt's own check that every signal tells the truth."""
    return QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)


@pytest.fixture
def panel(model: RequestsModel, qtbot: QtBot, theme: Theme) -> RequestsPanel:
    panel = RequestsPanel(model)
    qtbot.addWidget(panel)
    panel.resize(tokens.WIDTH_RIGHT, 500)
    panel.set_can_cancel(True)
    panel.show()
    qtbot.waitExposed(panel)
    return panel


def fill(panel: RequestsPanel, rows: Sequence[TableRow]) -> None:
    panel.model.update(rows, 1.0)
    panel.refresh_counts()
    QApplication.processEvents()


def put_pointer_into(panel: RequestsPanel) -> None:
    middle = QPointF(10, 10)
    QApplication.sendEvent(panel.table, QEnterEvent(middle, middle, middle))


def test_that_the_newest_stands_on_top(model: RequestsModel, tester: QAbstractItemModelTester) -> None:
    model.update(requests(2), 0.0)
    model.update(requests(2, start=2), 0.0)
    assert ids(model) == ["r3", "r2", "r1", "r0"]


def test_that_a_known_request_is_replaced_in_its_place(model: RequestsModel, tester: QAbstractItemModelTester) -> None:
    model.update(requests(3), 0.0)
    model.update([request("r1", "done", text="there was", tokens=24)], 1.0)
    assert ids(model) == ["r2", "r1", "r0"]
    assert model.row(1).text == "there was"


def test_that_all_that_streams_is_told_in_one_signal(model: RequestsModel, qtbot: QtBot) -> None:
    model.update(requests(256, "running"), 0.0)
    told: list[tuple[int, int]] = []
    model.dataChanged.connect(lambda first, last: told.append((first.row(), last.row())))
    model.update([replace(row, tokens=1) for row in requests(256, "running")], 0.1)
    assert told == [(0, 255)]


def test_that_a_request_that_comes_and_changes_in_one_go_counts_once(model: RequestsModel) -> None:
    model.update([request("r0"), request("r0", "running"), request("r0", "done")], 0.0)
    assert (ids(model), model.counts()) == (["r0"], Counts(all=1, done=1))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("all", ["refused", "failed", "cancelled", "done", "running", "formed", "waiting"]),
        ("waiting", ["formed", "waiting"]),
        ("running", ["running"]),
        ("done", ["done"]),
        ("unanswered", ["refused", "failed", "cancelled"]),
    ],
)
def test_that_a_filter_shows_its_states(model: RequestsModel, name: Filter, shown: list[str]) -> None:
    states: list[RequestState] = ["waiting", "formed", "running", "done", "cancelled", "failed", "refused"]
    model.update([request(state, state) for state in states], 0.0)
    model.set_filter(name)
    assert ids(model) == shown
    assert model.counts() == Counts(all=7, waiting=2, running=1, done=1, refused=1, failed=1, cancelled=1)


def test_that_rows_enter_and_leave_a_filter_as_their_state_changes(
    model: RequestsModel, tester: QAbstractItemModelTester
) -> None:
    model.set_filter("running")
    model.update(requests(6), 0.0)
    assert ids(model) == []
    model.update([request(f"r{n}", "running") for n in (4, 0, 1, 5)], 1.0)
    assert ids(model) == ["r5", "r4", "r1", "r0"]
    model.update([request("r4", "done"), request("r1", "failed"), request("r3", "running")], 2.0)
    assert ids(model) == ["r5", "r3", "r0"]


def test_that_the_oldest_finished_are_forgotten_and_what_is_under_way_stays(qapp: QApplication) -> None:
    model = RequestsModel(most_rows=5)
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    model.update([request("old", "running")], 0.0)
    model.update(requests(8, "done"), 0.0)
    assert ids(model) == ["r7", "r6", "r5", "r4", "old"]
    assert model.counts() == Counts(all=5, running=1, done=4)
    tester.deleteLater()


def test_that_requests_are_taken_out_and_older_ones_are_asked_for_once_there_is_room(qapp: QApplication) -> None:
    model = RequestsModel(most_rows=6)
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    model.update(requests(8, "done"), 0.0)
    model.remove(["r7", "r5", "unknown"])
    assert ids(model) == ["r6", "r4", "r3", "r2"]
    assert model.counts() == Counts(all=4, done=4)
    assert not model.lacks_older
    model.remove(["r6", "r4"])
    assert model.lacks_older
    model.clear()
    assert not model.lacks_older
    tester.deleteLater()


def test_that_only_what_is_under_way_ages(model: RequestsModel) -> None:
    model.update([request("a", "done", finished_s=2.0), request("b")], 2.0)
    told: list[tuple[int, int]] = []
    model.dataChanged.connect(lambda first, last: told.append((first.row(), last.row())))
    model.tick(5.0)
    assert told == [(0, 0)]
    assert [row.seconds(model.now_s) for row in model.rows()] == [2.0, 5.0]


def test_that_a_row_says_its_state_in_its_second_line() -> None:
    assert request("a").second_line(1.0) == "waiting"
    assert request("a", "formed", formed_s=2.0).second_line(13.4) == "formed 11.4 s ago"
    assert request("a", "failed", error="The replica stopped.").second_line(1.0) == "The replica stopped."
    assert request("a", "done", text="there\nwas  a").second_line(1.0) == "there was a"


def test_that_a_request_that_waits_shows_no_tokens_whichever_report_came_first() -> None:
    assert [request("a", state, tokens=1).token_count for state in ("waiting", "formed", "running")] == ["", "", "1/24"]


def test_that_a_row_can_be_read_aloud(model: RequestsModel) -> None:
    model.update([request("a", "running", text="there was", tokens=2)], 1.12)
    spoken = model.data(model.index(0, 0), Qt.ItemDataRole.AccessibleTextRole)
    assert spoken == "running, prompt a, 1.12 s, 2/24, there was"


def filters(panel: RequestsPanel) -> list[str]:
    return texts(named(panel, Segmented, "Show requests"))


def test_that_filters_carry_their_counts(panel: RequestsPanel) -> None:
    fill(panel, [*requests(3, "done"), request("w"), request("x", "running")])
    assert filters(panel) == ["All 5", "Wait 1", "Run 1", "Done 3"]


def test_that_unanswered_requests_get_a_filter_that_names_their_state(panel: RequestsPanel) -> None:
    fill(panel, [request("a", "failed"), request("b", "done")])
    assert filters(panel) == ["All 2", "Failed 1", "Done 1"]
    fill(panel, [request("c", "refused"), request("d", "refused"), request("e", "cancelled")])
    assert filters(panel) == ["All 5", "Unanswered 4", "Done 1"]
    tip = named(panel, Segmented, "Show requests").button("unanswered").toolTip()
    assert tip == "refused 2, failed 1, cancelled 1"


def test_that_counts_are_dropped_before_names_where_room_lacks(panel: RequestsPanel) -> None:
    panel.resize(tokens.WIDTH_SIDE_MIN, 500)
    states: list[RequestState] = ["waiting", "running", "done", "failed"]
    fill(panel, [request(f"{state}{n}", state) for state in states for n in range(1200)])
    assert filters(panel) == ["All", "Wait", "Run", "Failed", "Done"]
    assert named(panel, Segmented, "Show requests").button("done").toolTip() == "Done 1200"


def test_that_an_empty_table_says_what_it_will_show(panel: RequestsPanel) -> None:
    assert panel.table.isHidden()
    assert EMPTY_TEXT in texts(panel)
    fill(panel, requests(1))
    assert not panel.table.isHidden()
    assert EMPTY_TEXT not in texts(panel)


def test_that_new_rows_come_into_view_at_rest(panel: RequestsPanel) -> None:
    fill(panel, requests(100))
    fill(panel, requests(10, start=100))
    assert panel.table.verticalScrollBar().value() == 0
    assert not any(text.startswith("↑") for text in texts(panel))


def test_that_what_is_looked_at_does_not_jump(panel: RequestsPanel) -> None:
    fill(panel, requests(100))
    put_pointer_into(panel)
    looked_at = panel.table.indexAt(QPoint(50, 100)).row()
    before = panel.model.row(looked_at).id
    fill(panel, requests(10, start=100))
    assert panel.model.row(panel.table.indexAt(QPoint(50, 100)).row()).id == before
    named(panel, QPushButton, "↑ 10 new").click()
    assert panel.table.verticalScrollBar().value() == 0
    assert not any(text.startswith("↑") for text in texts(panel))


def test_that_new_rows_that_are_taken_back_are_not_counted_twice(panel: RequestsPanel) -> None:
    """As when a recording is played from an earlier place."""
    fill(panel, requests(100))
    put_pointer_into(panel)
    looked_at = panel.model.row(panel.table.indexAt(QPoint(50, 100)).row()).id
    for _ in range(2):
        fill(panel, requests(10, start=100))
        assert "↑ 10 new" in texts(panel)
        panel.model.remove([f"r{number}" for number in range(104, 110)])
        assert "↑ 4 new" in texts(panel)
        panel.model.remove([f"r{number}" for number in range(100, 104)])
        assert not any(text.startswith("↑") for text in texts(panel))
        assert panel.model.row(panel.table.indexAt(QPoint(50, 100)).row()).id == looked_at


def test_that_the_chosen_request_is_told_once_and_not_when_others_come(panel: RequestsPanel, qtbot: QtBot) -> None:
    fill(panel, requests(20))
    with qtbot.waitSignal(panel.request_chosen) as chosen:
        panel.table.selectRow(4)
    assert chosen.args == ["r15"]
    with qtbot.assertNotEmitted(panel.request_chosen):
        fill(panel, requests(3, start=20))
        fill(panel, [request("r15", "done")])


def test_that_a_request_chosen_elsewhere_is_alone_selected_with_shift_held_down_too(panel: RequestsPanel) -> None:
    fill(panel, requests(20))
    QTest.keyClick(panel.table, Qt.Key.Key_Shift, Qt.KeyboardModifier.ShiftModifier)
    panel.select("r15")
    panel.select("r2")
    assert [index.row() for index in panel.table.selectionModel().selectedRows()] == [17]


def test_that_del_cancels_the_selected_that_are_under_way(panel: RequestsPanel, qtbot: QtBot) -> None:
    fill(panel, [request("a"), request("b", "done"), request("c", "running")])
    panel.table.selectAll()
    with qtbot.waitSignal(panel.cancel_wanted) as cancelled:
        QTest.keyClick(panel.table, Qt.Key.Key_Delete)
    assert sorted(cancelled.args[0]) == ["a", "c"]


def test_that_all_are_cancelled_with_one_click(panel: RequestsPanel, qtbot: QtBot) -> None:
    fill(panel, [request("a"), request("b", "done")])
    with qtbot.waitSignal(panel.cancel_wanted) as cancelled:
        named(panel, QPushButton, "Cancel all").click()
    assert cancelled.args == [None]
    fill(panel, [request("a", "done")])
    assert not named(panel, QPushButton, "Cancel all").isEnabled()


def test_that_streaming_into_a_long_table_asks_only_for_the_rows_in_view(
    panel: RequestsPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(panel, requests(9_744, "done"))
    streaming = requests(256, "running", start=20_000)
    fill(panel, streaming)
    asked: set[int] = set()
    monkeypatch.setattr(
        RequestsModel, "row", lambda model, line, row=RequestsModel.row: asked.add(line) or row(model, line)
    )
    panel.model.update([replace(row, tokens=1, text="word") for row in streaming], 1.0)
    panel.table.viewport().repaint()
    in_view = panel.table.viewport().height() // tokens.HEIGHT_ROW + 1
    assert 0 < len(asked) <= in_view


def test_that_leaving_lets_the_table_follow_again(panel: RequestsPanel) -> None:
    fill(panel, requests(5))
    put_pointer_into(panel)
    QApplication.sendEvent(panel.table, QEvent(QEvent.Type.Leave))
    fill(panel, requests(100, start=5))
    assert panel.table.verticalScrollBar().value() == 0
