"""What a comparison came to: the verdict, both cumulative curves with the gap filled, the figures side by side."""

from __future__ import annotations

from typing import Final

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from gui.comparing.table import TextTable
from gui.look import tokens
from gui.look.tokens import Palette
from gui.plots.cumulative import CumulativePlot
from gui.series.latency import Sample
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import column, row
from service.analysis.compare.comparison import Comparison
from service.analysis.compare.run import FIGURE_BY_NAME, pooled_latencies_s
from service.messages.text import format_figure

NOTHING_YET: Final = "Both are sent the same, round by round; then a sentence says whether B differs."
PADDING: Final = tokens.PANEL_PADDING
HEADER: Final = ("mean of the rounds", "A", "B", "B over A", "95 % interval")


class CompareResults(QWidget):
    """
    Signals:
        report_wanted: of this `Comparison`.
        config_wanted: with B's settings of this `Comparison`.
    """

    report_wanted = Signal(object)
    config_wanted = Signal(object)

    def __init__(self, palette: Palette, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._comparison: Comparison | None = None
        self._verdict = label(NOTHING_YET, "title", wrap=True)
        self._subject = label("", "dim", wrap=True)
        self._warnings = label("", "error", wrap=True)
        self.curves = CumulativePlot(palette)
        self.figures = TextTable(HEADER, "Figures of A and B")
        self.report = Button("Save report…", "ph.file-text")
        self.config = Button("Save B's config…", "ph.download-simple")
        words = column(
            self._verdict, self._subject, self._warnings, gap=tokens.GAP_1, margins=(PADDING, PADDING, PADDING, 0)
        )
        actions = row(self.report, self.config, None)
        below = column(self.figures, actions, gap=tokens.GAP_4, margins=(PADDING, 0, PADDING, PADDING))
        self.setLayout(column(words, self.curves, below, gap=tokens.GAP_3, stretch=self.curves))
        self.report.clicked.connect(lambda: self.report_wanted.emit(self._comparison))
        self.config.clicked.connect(lambda: self.config_wanted.emit(self._comparison))
        self.show_comparison(None)

    @property
    def verdict(self) -> str:
        return self._verdict.text()

    def show_comparison(self, comparison: Comparison | None) -> None:
        self._comparison = comparison
        self._verdict.setText(comparison.verdict if comparison else NOTHING_YET)
        self._subject.setText(_subject(comparison) if comparison else "")
        self._warnings.setText("\n".join(comparison.warnings) if comparison else "")
        for words in (self._subject, self._warnings):
            words.setVisible(bool(words.text()))
        self.figures.setVisible(comparison is not None)
        for button in (self.report, self.config):
            button.setEnabled(comparison is not None)
        self._show_curves(comparison)
        if comparison is not None:
            self._show_figures(comparison)

    def set_palette(self, palette: Palette) -> None:
        self.curves.set_palette(palette)

    def _show_curves(self, comparison: Comparison | None) -> None:
        self.curves.set_empty(comparison is None)
        if comparison is not None:
            a, b = (np.sort(pooled_latencies_s(runs)) for runs in (comparison.a, comparison.b))
            self.curves.show_samples(Sample("B", b), Sample("A", a))

    def _show_figures(self, comparison: Comparison) -> None:
        rows = []
        for each in comparison.differences:
            figure = FIGURE_BY_NAME[each.figure]
            values = (format_figure(value, figure.unit) for value in (each.a, each.b))
            rows.append([figure.title, *values, each.short_text, each.interval_text])
        decisive = {n for n, each in enumerate(comparison.differences) if each.figure == comparison.plan.figure}
        self.figures.show_rows(rows, strong=decisive)


def _subject(comparison: Comparison) -> str:
    plan = comparison.plan
    rounds = f"{len(comparison.a)} of {plan.rounds} rounds of {plan.duration_s:g} s"
    return f"{comparison.title} · A dashed, B solid · {rounds}"
