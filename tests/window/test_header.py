"""The line above a plot: what of its legend stays where room lacks."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from gui.look.theme import Theme
from gui.plots.header import Header
from gui.series import batch_size, queue_depth, throughput
from gui.series.declaration import Declaration, Readout

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
