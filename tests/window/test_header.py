"""The line above a plot: what of its legend stays where room lacks, and what its title says on hover."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.look import glossary, tokens
from gui.look.theme import Theme
from gui.panels.measure_chooser import MeasureChooser
from gui.plots.header import Header
from gui.series import batch_size, latency, queue_depth, throughput
from gui.series.declaration import Declaration, Readout
from service.messages.objectives import Objectives

HALF_OF_A_SMALL_WINDOW = 387  # pixels, of a window of 1024
READOUTS = [
    (batch_size.PLOT, {"full": "14", "timeout": "12", "drained": "3", "cap": "32"}),
    (throughput.PLOT, {"tokens/s": "111", "requests/s": "6.4", "offered": "9.0"}),
    (queue_depth.PLOT, {"waiting": "249", "formed": "16", "running": "32"}),
]


@pytest.mark.parametrize(("plot", "readout"), READOUTS, ids=lambda value: getattr(value, "name", ""))
def test_that_a_legend_has_its_values_in_a_small_window(
    qtbot: QtBot, theme: Theme, plot: Declaration, readout: Readout
) -> None:
    header = Header(plot)
    qtbot.addWidget(header)
    header.resize(HALF_OF_A_SMALL_WINDOW, header.height())
    header.show_readout(readout)
    assert header.shown_values == readout
    header.resize(HALF_OF_A_SMALL_WINDOW // 2, header.height())
    assert not header.shown_values


WITH_LIMIT = latency.declared(latency.ANSWER, Objectives(latency_s=2.0))


def with_chooser(qtbot: QtBot, plot: Declaration, width: int) -> tuple[Header, MeasureChooser]:
    header, chooser = Header(plot), MeasureChooser()
    qtbot.addWidget(header)
    header.put(chooser)
    header.resize(width, header.height())
    header.show()
    return header, chooser


@pytest.mark.parametrize("width", [HALF_OF_A_SMALL_WINDOW, 427, 600])
def test_that_a_chooser_leaves_room_for_names_that_come_later(qtbot: QtBot, theme: Theme, width: int) -> None:
    header = Header(latency.HISTOGRAM)
    qtbot.addWidget(header)
    header.put(MeasureChooser())
    header.show_readout({}, hides_missing=True)
    header.resize(width, header.height())
    header.show()
    header.show_readout({"requests": "38", "before": "140"}, hides_missing=True)
    assert header.shown_names == ["requests", "before"]


def test_that_a_chooser_is_brief_before_the_legend_drops_its_values(qtbot: QtBot, theme: Theme) -> None:
    header, chooser = with_chooser(qtbot, latency.PLOT, 520)
    readout = {"p50": "0.62", "p95": "1.24", "p99": "1.80"}
    header.show_readout(readout)
    assert header.shown_values == readout
    brief = chooser.width()
    header.resize(700, header.height())
    assert header.shown_values == readout
    assert chooser.width() > brief


def words_of(chooser: MeasureChooser) -> list[str]:
    return [chooser.button(name).text() for name in latency.MEASURES]


def test_that_a_chooser_makes_room_for_an_entry_that_comes_later(qtbot: QtBot, theme: Theme) -> None:
    header, chooser = with_chooser(qtbot, latency.PLOT, 460)
    before = words_of(chooser)
    header.declare(WITH_LIMIT)
    assert header.shown_names == ["p50", "p95", "p99", "≤ 2 s"]
    assert sum(map(len, words_of(chooser))) < sum(map(len, before))


def test_that_a_chooser_is_as_before_once_the_type_is(qtbot: QtBot, theme: Theme) -> None:
    _header, chooser = with_chooser(qtbot, latency.PLOT, 480)
    before = words_of(chooser), chooser.geometry()
    theme.set_large(True)
    qtbot.waitUntil(lambda: (words_of(chooser), chooser.geometry()) != before)
    theme.set_large(False)
    qtbot.waitUntil(lambda: (words_of(chooser), chooser.geometry()) == before)


def test_that_a_chooser_keeps_its_words_where_fewer_would_save_no_name(qtbot: QtBot, theme: Theme) -> None:
    header, chooser = with_chooser(qtbot, WITH_LIMIT, 370)
    assert header.shown_names == []
    assert sum(map(len, words_of(chooser))) > sum(len(each.briefest) for each in latency.MEASURES.values())


def test_that_the_title_of_each_plot_says_on_hover_how_it_is_read(batchscope: Batchscope) -> None:
    headers = {header.accessibleName(): header for header in batchscope.window.findChildren(Header)}
    assert {"Batch size", "Queue depth", "Latency", "Throughput", "Timeline", "Wasted work"} <= headers.keys()
    for header in headers.values():
        sentence, _, offer = header.tip_at(tokens.PANEL_PADDING).partition(".\n")
        assert sentence in glossary.PLOTS.values()
        assert offer == "Click to have this in the plot."
