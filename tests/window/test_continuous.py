"""The window on a run in which requests join and leave the running batch one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton, QWidget
from pytestqt.qtbot import QtBot

from gui.control.inspector import batch_words
from gui.look import glossary
from gui.look.theme import Theme
from gui.look.tokens import DARK, FONT_TITLE, LANE_HEIGHTS, LIGHT, PANEL_PADDING, Palette
from gui.panels.batching import BatchingPanel
from gui.plots.distributions import DistributionsView
from gui.plots.header import Header
from gui.plots.paint import bold, text_width
from gui.plots.plot_stack import PlotStack
from gui.plots.stage_breakdown import PLOT as STAGE_BREAKDOWN
from gui.plots.timeline_items import LaneSurroundings, lines_of
from gui.series.declaration import Declaration
from gui.series.waits import request_details
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import batch_running, batch_summary, members_of
from service.messages.settings import FORMATIONS
from tests.synthetic_run import continuous_run, filled_history
from tests.window.conftest import Wear
from tests.window.seen import drawn, key_stop, named, row_of_batch

NARROW = QSize(752, 609)  # of the centre of a window 1280 pixels wide


@pytest.fixture(scope="module")
def history() -> History:
    return filled_history(continuous_run())[0]


@pytest.fixture
def stack(qtbot: QtBot, theme: Theme, history: History) -> PlotStack:
    stack = PlotStack(history)
    qtbot.addWidget(stack)
    stack.resize(NARROW)
    stack.show()
    qtbot.waitExposed(stack)
    stack.set_window_s(30.0)
    stack.refresh()
    return stack


def test_that_every_formation_can_be_chosen_and_says_what_it_does(qtbot: QtBot, theme: Theme) -> None:
    panel = BatchingPanel()
    qtbot.addWidget(panel)
    wanted: list[dict[str, object]] = []
    panel.settings_wanted.connect(wanted.append)
    for name in reversed(FORMATIONS):
        named(panel, QPushButton, name).click()
        assert glossary.FORMATIONS[name]
    assert [change["formation"] for change in wanted] == ["continuous", "early", "late"]


def test_that_legends_have_room_for_what_there_is(stack: PlotStack) -> None:
    for panel in stack.panels:
        assert has_room_for_its_title(panel.header, panel.plot), panel.plot.name
    assert {DARK.joined.lower(), DARK.left.lower()} <= set(pictured(stack.batch_size.header))


def has_room_for_its_title(header: Header, plot: Declaration) -> bool:
    """Whether it looks there as if there were no legend."""
    alone = Header(replace(plot, entries=(), unit=""))
    alone.resize(header.size())
    title = QRect(0, 0, PANEL_PADDING + round(text_width(plot.title, bold(FONT_TITLE))), header.height())
    return bool(header.grab(title).toImage() == alone.grab(title).toImage())


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=lambda palette: palette.name)
def test_that_the_rows_that_run_are_drawn_as_an_area_with_an_edge(
    stack: PlotStack, palette: Palette, wear: Wear
) -> None:
    wear("dark" if palette.is_dark else "light")
    stack.refresh()
    colours = pictured(stack.batch_size.canvas)
    edge, filled = colours.count(palette.joined.lower()), max(map(colours.count, set(colours) - {palette.plot.lower()}))
    assert edge > 200, "as long as the plot is wide"
    assert filled > 5 * edge


def pictured(widget: QWidget) -> list[str]:
    image = widget.grab().toImage()
    return [image.pixelColor(x, y).name() for x in range(image.width()) for y in range(0, image.height(), 2)]


def test_that_a_stretch_under_the_pointer_is_outlined_with_its_members_and_told_of(
    stack: PlotStack, history: History
) -> None:
    at_s = history.now_s() - 10.0
    row = batch_running(history, at_s)
    assert row is not None
    stack.timeline.highlight(row)
    batch = batch_summary(history, row)
    assert batch is not None
    assert stack.timeline.card.lines == lines_of(batch)
    assert stack.timeline.card.lines[0][1] == f"{batch.reason}, {batch.size} of 16"
    outline = drawn(stack.timeline.canvas, LaneSurroundings).outline
    assert sum(rect.height() for rect in outline) / batch.size in LANE_HEIGHTS


def test_that_the_arrow_keys_go_from_segment_to_segment_and_among_requests_that_ran_together(
    stack: PlotStack, history: History
) -> None:
    timeline = key_stop(stack, "Timeline")
    timeline.setFocus()
    hovered: list[str] = []
    stack.batch_hovered.connect(hovered.append)
    for _ in range(42):
        QTest.keyClick(timeline, Qt.Key.Key_Left)
    rows = [row_of_batch(history, each) for each in hovered]
    assert rows == [rows[0] - step for step in range(42)]
    chosen: list[int] = []
    stack.request_chosen.connect(chosen.append)
    QTest.keyClick(timeline, Qt.Key.Key_Return)
    assert chosen == members_of(history, rows[-1])[:1]
    QTest.keyClick(timeline, Qt.Key.Key_Down)
    assert len(chosen) == 2, "one that came later ran beside it"
    assert chosen[1] > chosen[0]


def test_that_details_say_beside_how_many_it_ran(history: History) -> None:
    columns = history.requests.columns
    place = int(np.flatnonzero(columns["started"] > history.now_s() - 20.0)[0])
    details = request_details(history, place + columns.first)
    assert details is not None
    assert details.batch is not None
    title, remark = batch_words(details.batch, len(details.mates))
    assert title == f"Ran beside {len(details.mates)} others"
    assert remark == f"{details.batch.size} of 16 when it joined, v2"
    assert batch_words(details.batch, 1)[0] == "Ran beside 1 other"
    assert batch_words(details.batch, 0)[0] == "Ran alone"


def test_that_distributions_are_of_time_and_tell_what_the_engine_did(
    qtbot: QtBot, stack: PlotStack, history: History
) -> None:
    view = DistributionsView(history, stack)
    qtbot.addWidget(view)
    view.resize(NARROW)
    view.show()
    qtbot.waitExposed(view)
    view.count()
    assert view.batches.header.accessibleName() == "Running rows"
    assert list(view.stages.header.readout) == ["engine reads prompts", "decodes", "idle"]
    shares = [int(share.removesuffix(" %")) for share in view.stages.header.readout.values()]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert has_room_for_its_title(view.stages.header, STAGE_BREAKDOWN)
