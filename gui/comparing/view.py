"""The third view of the centre: two settings compared, a few side by side, or many swept."""

from __future__ import annotations

from typing import Final

from PySide6.QtWidgets import QStackedWidget, QWidget

from gui.comparing.results import CompareResults, SweepResults
from gui.comparing.setup import CompareSetup, SweepSetup
from gui.comparing.side_by_side import SideBySideResults, SideBySideSetup
from gui.look import tokens
from gui.widgets.layouts import box, column, hairline, row, scrolled
from gui.widgets.segmented import Segmented
from service.analysis.observed.history import History

AB: Final = "ab"
SWEEP: Final = "sweep"
SIDE_BY_SIDE: Final = "side by side"
KINDS: Final = (AB, SWEEP, SIDE_BY_SIDE)
MARGINS: Final = (tokens.PANEL_PADDING,) * 4


class CompareView(QWidget):
    """A setup on the left and its results on the right: a pair for each kind."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.setup, self.results = CompareSetup(), CompareResults()
        self.sweep_setup, self.sweep_results = SweepSetup(), SweepResults()
        self.side_setup, self.side_results = SideBySideSetup(), SideBySideResults(history)
        names = ("A and B", "Sweep", "Side by side")
        self._switch = Segmented(list(zip(KINDS, names, strict=True)), "What is compared")
        self._setups, self._results = QStackedWidget(), QStackedWidget()
        for pages, parts in (
            (self._setups, (self.setup, self.sweep_setup, self.side_setup)),
            (self._results, (self.results, self.sweep_results, self.side_results)),
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
            pages.setCurrentIndex(KINDS.index(key))
