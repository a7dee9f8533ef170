"""Results of a comparison and of a sweep: the verdict, the plot, the figures, and what can be saved or applied."""

from __future__ import annotations

from typing import Final

import numpy as np
from PySide6.QtCore import QSize
from PySide6.QtWidgets import QWidget

from gui.comparing.scatter import SweepPlot
from gui.comparing.table import TextTable
from gui.look import tokens
from gui.plots.latency_charts import CumulativePlot
from gui.series.latency import Sample
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import box, column, row, scrolled
from service.analysis.compare.comparison import Comparison
from service.analysis.compare.run import FIGURE_BY_NAME, FIGURES, pooled, spoiling
from service.analysis.compare.sweep import Sweep
from service.messages.settings import Settings
from service.messages.text import format_figure

NOTHING_YET: Final = "A and B get the same requests, round by round; the verdict says whether B differs."
PADDING: Final = tokens.PANEL_PADDING
HEADER: Final = ("mean of the rounds", "A", "B", "B over A", "95 % interval")


class _Curves(CumulativePlot):
    """They ask for little and get what is left."""

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), tokens.HEIGHT_CURVES_MIN)


class CompareResults(QWidget):
    """The verdict, both cumulative curves with the gap between them filled, and the figures side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.verdict = label(NOTHING_YET, "title", wrap=True)
        self._subject = label("", "dim", wrap=True)
        self._warnings = label("", "error", wrap=True)
        self.curves = _Curves()
        self.figures = TextTable(HEADER, "Figures of A and B")
        self.curves.setMinimumHeight(tokens.HEIGHT_CURVES_MIN)
        self.report = Button("Save report…", "ph.file-text")
        self.config = Button("Save B's config…", "ph.download-simple")
        words = column(
            self.verdict, self._subject, self._warnings, gap=tokens.GAP_1, margins=(PADDING, PADDING, PADDING, 0)
        )
        actions = row(self.report, self.config, None)
        below = column(self.figures, actions, gap=tokens.GAP_4, margins=(PADDING, 0, PADDING, PADDING))
        whole = box(column(words, self.curves, below, gap=tokens.GAP_3, stretch=self.curves))
        self.setLayout(column(scrolled(whole)))  # a low window has no room for every figure
        self.show_comparison(None)

    def show_comparison(self, comparison: Comparison | None) -> None:
        self.comparison = comparison
        self.verdict.setText(comparison.verdict if comparison else NOTHING_YET)
        self._subject.setText(_subject(comparison) if comparison else "")
        self._warnings.setText("\n".join(comparison.warnings) if comparison else "")
        for words in (self._subject, self._warnings):
            words.setVisible(bool(words.text()))
        self.figures.setVisible(comparison is not None)
        for button in (self.report, self.config):
            button.setEnabled(comparison is not None)
        self.curves.set_empty(comparison is None)
        if comparison is not None:
            a, b = (np.sort(pooled(runs)) for runs in (comparison.a, comparison.b))
            self.curves.show_samples(Sample("B", b), Sample("A", a))
            self._show_figures(comparison)

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


NO_SWEEP_YET: Final = "Every setting gets the same load; the verdict names the best that meets the objectives."
SHOWN: Final = ("requests_per_s", "p50_s", "p95_s", "ttft_p95_s", "tpot_p95_s", "goodput_per_s", "mean_batch")


class SweepResults(QWidget):
    """The best setting, throughput over latency, and the chosen point."""

    def __init__(self) -> None:
        super().__init__()
        self._sweep: Sweep | None = None
        self._chosen: int | None = None
        self._has_picked = False
        self._can_apply = False
        self.verdict = label(NO_SWEEP_YET, "title", wrap=True)
        self.plot = SweepPlot()
        self._point = label("", "name", wrap=True)
        self._figures = label("", "dim", wrap=True)
        self.apply = Button("Apply", "ph.check")
        self.config = Button("Save config…", "ph.download-simple")
        self.report = Button("Save report…", "ph.file-text")
        words = column(self.verdict, margins=(PADDING, PADDING, PADDING, 0))
        point = column(self._point, self._figures, gap=tokens.GAP_1)
        actions = row(self.apply, self.config, self.report, None)
        below = column(point, actions, gap=tokens.GAP_4, margins=(PADDING, 0, PADDING, PADDING))
        self.setLayout(column(words, self.plot, below, gap=tokens.GAP_3, stretch=self.plot))
        self.plot.chosen.connect(self.pick)
        self.show_sweep(None)

    @property
    def point(self) -> str:
        """The chosen point as text."""
        return f"{self._point.text()}: {self._figures.text()}"

    @property
    def chosen_settings(self) -> Settings | None:
        """Settings of the chosen point: the best, unless the user has picked another."""
        if self._sweep is None or self._chosen is None:
            return None
        return self._sweep.points[self._chosen].settings

    def show_sweep(self, sweep: Sweep | None) -> None:
        is_other = sweep is None or self._sweep is None or sweep.plan != self._sweep.plan
        self._sweep = sweep
        if is_other:
            self._has_picked = False
        if not self._has_picked:
            self._chosen = sweep.best() if sweep is not None else None
        self.verdict.setText(sweep.verdict() if sweep is not None else NO_SWEEP_YET)
        self._show_point()

    def pick(self, place: int) -> None:
        self._chosen, self._has_picked = place, True
        self._show_point()

    def set_can_apply(self, can_apply: bool) -> None:
        self._can_apply = can_apply
        self._show_actions()

    def _show_point(self) -> None:
        sweep, place = self._sweep, self._chosen
        self.plot.show_sweep(sweep, place)
        if sweep is None or place is None:
            self._point.setText("")
            self._figures.setText("")
        else:
            standing = "best" if place == sweep.best() else "on the front" if place in sweep.front() else ""
            self._point.setText(", ".join(filter(None, (sweep.label(place), standing))))
            self._figures.setText(_figures(sweep, place))
        self._show_actions()

    def _show_actions(self) -> None:
        self.apply.setEnabled(self._can_apply and self.chosen_settings is not None)
        self.config.setEnabled(self.chosen_settings is not None)
        self.report.setEnabled(self._sweep is not None)


def _figures(sweep: Sweep, place: int) -> str:
    point = sweep.points[place]
    shown = [
        f"{each.title} {format_figure(value, each.unit)}"
        for each in FIGURES
        if each.name in SHOWN and (value := point.figure(each.name)) is not None
    ]
    return ", ".join(shown) + "".join(f" {sentence}" for sentence in spoiling(point.runs))
