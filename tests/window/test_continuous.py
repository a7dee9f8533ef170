"""The window on a run in which requests join and leave the running batch one by one."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from gui.control.inspector import batch_words
from gui.look.theme import Theme
from gui.look.tokens import DARK, LIGHT, Palette
from gui.panels.batching import TIPS, BatchingPanel
from gui.plots.card import lines_of
from gui.plots.distributions import DistributionsView
from gui.plots.plot_stack import PlotStack
from gui.series.request_details import request_details
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import batch_running, batch_summary, members_of
from service.messages.settings import FORMATIONS
from tests.synthetic_run import continuous_run, filled_history

TITLE_PIXELS = 6.5  # of a letter of a title, on average
NARROW = QSize(752, 609)  # of the centre of a window 1280 pixels wide


@pytest.fixture(scope="module")
def history() -> History:
    return filled_history(continuous_run())[0]


@pytest.fixture
def stack(qtbot: QtBot, theme: Theme, history: History) -> PlotStack:
    stack = PlotStack(history, DARK)
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
        panel._formation.button(name).click()
        assert TIPS[name]
    assert [change["formation"] for change in wanted] == ["continuous", "early", "late"]


def test_that_legends_have_room_for_what_there_is(stack: PlotStack) -> None:
    for panel in stack.panels:
        header = panel.header
        title_end = 16 + len(panel.plot.title) * TITLE_PIXELS
        assert header._legend(header.width() - title_end)[0].left > title_end, panel.plot.name
    assert {"joined", "left"} <= {placed.entry.name for placed in stack.batch_size.header._legend(0.0)}


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=lambda palette: palette.name)
def test_that_the_rows_that_run_are_drawn_as_an_area_with_an_edge(stack: PlotStack, palette: Palette) -> None:
    stack.set_palette(palette)
    colours = pictured(stack.batch_size.canvas)
    edge, filled = colours.count(palette.joined.lower()), max(map(colours.count, set(colours) - {palette.plot.lower()}))
    assert edge > 200, "as long as the plot is wide"
    assert filled > 5 * edge


def pictured(canvas: object) -> list[str]:
    image: QImage = canvas.grab().toImage()  # type: ignore[attr-defined]
    return [image.pixelColor(x, y).name() for x in range(image.width()) for y in range(0, image.height(), 2)]


def test_that_a_stretch_under_the_pointer_is_outlined_with_its_members_and_told_of(stack: PlotStack) -> None:
    history = stack._history
    at_s = history.now_s() - 10.0
    row = batch_running(history, at_s)
    assert row is not None
    stack.timeline.highlight(row)
    batch = batch_summary(history, row)
    assert batch is not None
    assert stack.timeline.card.lines == lines_of(batch)
    assert stack.timeline.card.lines[0][1] == f"{batch.reason}, {batch.size} of 16"
    height = stack.timeline._choice.grid.height
    assert sum(round(rect.height() / height) for rect in stack.timeline._surroundings.outline) == batch.size


def test_that_the_arrow_keys_go_from_stretch_to_stretch_and_among_those_who_ran_together(stack: PlotStack) -> None:
    stack._below.setFocus()
    QTest.keyClick(stack._below, Qt.Key.Key_Left)
    first = stack._pointing.selected
    QTest.keyClick(stack._below, Qt.Key.Key_Left)
    second = stack._pointing.selected
    assert first is not None
    assert second == first - 1
    for _ in range(40):
        QTest.keyClick(stack._below, Qt.Key.Key_Left)
    chosen: list[int] = []
    stack.request_chosen.connect(chosen.append)
    QTest.keyClick(stack._below, Qt.Key.Key_Return)
    assert stack._pointing.selected is not None
    assert chosen == members_of(stack._history, stack._pointing.selected)[:1]
    QTest.keyClick(stack._below, Qt.Key.Key_Down)
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
    view = DistributionsView(history, stack, DARK)
    qtbot.addWidget(view)
    view.resize(NARROW)
    view.show()
    qtbot.waitExposed(view)
    view.count()
    assert view.batches.header._plot.title == "Running rows"
    assert list(view.stages.header.readout) == ["engine reads prompts", "decodes", "idle"]
    shares = [int(share.removesuffix(" %")) for share in view.stages.header.readout.values()]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert view.stages.header._legend(0.0)[0].left > TITLE_PIXELS * len("Where the time goes")
