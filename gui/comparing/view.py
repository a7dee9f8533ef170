"""The third view of the centre: two settings compared, or many swept."""

from __future__ import annotations

from typing import Final

from PySide6.QtWidgets import QStackedWidget, QWidget

from gui.comparing.results import CompareResults, SweepResults
from gui.comparing.setup import CompareSetup, SweepSetup
from gui.look import tokens
from gui.widgets.layouts import box, column, hairline, row, scrolled
from gui.widgets.segmented import Segmented

AB: Final = "ab"
SWEEP: Final = "sweep"
MARGINS: Final = (tokens.PANEL_PADDING,) * 4


class CompareView(QWidget):
    """A setup on the left and its results on the right: one pair for A and B, one for the sweep."""

    def __init__(self) -> None:
        super().__init__()
        self.setup, self.results = CompareSetup(), CompareResults()
        self.sweep_setup, self.sweep_results = SweepSetup(), SweepResults()
        self._switch = Segmented([(AB, "A and B"), (SWEEP, "Sweep")], "What is compared")
        self._setups, self._results = QStackedWidget(), QStackedWidget()
        for pages, parts in (
            (self._setups, (self.setup, self.sweep_setup)),
            (self._results, (self.results, self.sweep_results)),
        ):
            for part in parts:
                pages.addWidget(part)
        left = scrolled(box(column(self._switch, self._setups, gap=tokens.GAP_4, margins=MARGINS)))
        left.setFixedWidth(tokens.WIDTH_COMPARE)
        self.setLayout(row(left, hairline(vertical=True), self._results, gap=0, stretch=self._results))
        self._switch.chosen.connect(self.show_kind)

    def show_kind(self, key: str) -> None:
        self._switch.choose(key)
        for pages in (self._setups, self._results):
            pages.setCurrentIndex((AB, SWEEP).index(key))
