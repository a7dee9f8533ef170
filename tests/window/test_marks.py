"""The words of marks above the timeline: each whole and on nothing else, as far as there is room."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QSize
from pytestqt.qtbot import QtBot

from gui.look.theme import Theme
from gui.look.tokens import FLAG_ROW, PLOT_GUTTER, PLOT_MARGIN_RIGHT, WORDS_ROW
from gui.plots.layout import Layout
from gui.plots.marks import Marks, PlacedMarks, placed_marks
from gui.plots.plot_stack import PlotStack
from gui.series.time_range import TimeRange
from service.analysis.observed.annotations import OuterMark, SettingsMark, Stretch
from tests.synthetic_run import filled_history, picture_run

WIDTH = 775  # of the timeline in a window of 1024 pixels
LOAD = OuterMark(51.0, "load 4.0 req/s")
FEWER = SettingsMark(59.0, 1, 2, "max_batch_size 16 → 2", "in force after 4 ms", "old settings drained after 0.8 s")
SLOWED = Stretch(66.0, 71.0, "slowed 2.1 ×, 5 s")
MORE_LOAD = OuterMark(70.0, "load 4.0 → 9.0 req/s")
MORE = SettingsMark(91.0, 2, 3, "max_batch_size 2 → 32", "in force after 5 ms")
ALL = Marks([FEWER, MORE], [LOAD, MORE_LOAD], (), [SLOWED])


@pytest.fixture(autouse=True)
def fonts(theme: Theme) -> Theme:
    return theme


def layout_until(end_s: float, window_s: float = 60.0, width: int = WIDTH) -> Layout:
    columns = width - PLOT_GUTTER - PLOT_MARGIN_RIGHT
    return Layout(QSize(width, 160), (), TimeRange.ending_at(end_s, window_s, columns))


def overlaps(placed: PlacedMarks) -> list[tuple[str, str]]:
    """Pairs of texts and flags that lie on each other, or beyond an end."""
    spans = [(each.left, each.right, each.row, each.text) for each in placed.words]
    spans += [(each.left, each.right, 0, each.text) for each in placed.flags]
    found = [(text, "an end") for left, right, _, text in spans if left < 0 or right > WIDTH]
    for number, (left, right, row, text) in enumerate(spans):
        for other_left, other_right, other_row, other in spans[number + 1 :]:
            if row == other_row and left < other_right and other_left < right:
                found.append((text, other))
    return found


def test_that_words_that_lie_close_stand_in_several_rows_and_are_whole() -> None:
    placed = placed_marks(layout_until(92.0), ALL)
    assert {words.text for words in placed.words} == {each.text for each in (LOAD, FEWER, SLOWED, MORE_LOAD, MORE)}
    assert placed.rows == 3
    assert overlaps(placed) == []


@pytest.mark.parametrize("since_s", [0.0, 0.5, 2.0, 5.0, 9.0, 12.0])
def test_that_the_words_of_what_has_just_happened_are_whole(since_s: float) -> None:
    for marks, at_s in ((Marks([MORE]), MORE.at_s), (Marks(outer=[LOAD]), LOAD.at_s)):
        placed = placed_marks(layout_until(at_s + since_s), marks)
        [words] = placed.words
        assert words.text in (MORE.text, LOAD.text)
        assert (placed.rows, overlaps(placed)) == (1, [])


def test_that_a_stretch_lies_on_no_flag() -> None:
    stretch = Stretch(68.0, None, "processor got 45 %, 3 s")
    placed = placed_marks(layout_until(71.0), Marks([FEWER], [LOAD], (), [stretch]))
    assert {words.text for words in placed.words} == {FEWER.text, LOAD.text, stretch.text}
    assert overlaps(placed) == []


@pytest.mark.parametrize("window_s", [60.0, 300.0, 600.0])
def test_that_many_changes_lie_on_nothing_whatever_the_room(window_s: float) -> None:
    settings = [SettingsMark(100.0 + 7.0 * n, n, n + 1, f"max_batch_size {n} → {n + 1}", "") for n in range(40)]
    outer = [OuterMark(101.0 + 9.0 * n, f"load {n}.0 → {n + 1}.0 req/s") for n in range(40)]
    placed = placed_marks(layout_until(400.0, window_s), Marks(settings, outer))
    assert len(placed.words) >= 4
    assert placed.rows == 3
    assert overlaps(placed) == []


def test_that_the_lanes_make_room_for_another_row(qtbot: QtBot, theme: Theme) -> None:
    history, _ = filled_history(picture_run(), until_s=40.0)
    stack = PlotStack(history)
    qtbot.addWidget(stack)
    stack.resize(WIDTH, 500)
    stack.set_empty(False)
    stack.show()
    tops = []
    now_s = history.now_s()
    close = OuterMark(now_s - 20.0, "load 4.0 → 9.0 req/s"), OuterMark(now_s - 17.0, "load stopped")
    for outer in ((), close[:1], close):
        stack.timeline.draw_anew()
        stack.timeline.follow(stack.moment(), Marks((), outer))
        assert stack.timeline.layout_ is not None
        tops.append(stack.timeline.layout_.top)
    assert tops == [FLAG_ROW, FLAG_ROW, FLAG_ROW + WORDS_ROW]
