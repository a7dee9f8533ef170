"""What a sweep came to: the best, throughput over latency, and the point that the user looks at."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from gui.comparing.scatter import SweepPlot
from gui.look import tokens
from gui.look.tokens import Palette
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import column, row
from service.analysis.compare.run import FIGURES, spoiling
from service.analysis.compare.sweep import Sweep
from service.messages.settings import Settings
from service.messages.text import format_figure

NOTHING_YET: Final = "Every setting under the same load: then the best that keeps the objective is named."
PADDING: Final = tokens.PANEL_PADDING
SHOWN: Final = ("requests_per_s", "p50_s", "p95_s", "mean_batch")


class SweepResults(QWidget):
    """
    Signals:
        apply_wanted: these `Settings` are to be in force.
        report_wanted: of this `Sweep`.
        config_wanted: of this `Sweep`, with these `Settings`; a sentence that says what was measured under them.
    """

    apply_wanted = Signal(object)
    report_wanted = Signal(object)
    config_wanted = Signal(object, object, str)

    def __init__(self, palette: Palette, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._sweep: Sweep | None = None
        self._chosen: int | None = None
        self._has_picked = False
        self._can_apply = False
        self._verdict = label(NOTHING_YET, "title", wrap=True)
        self.plot = SweepPlot(palette)
        self._point = label("", "name", wrap=True)
        self._figures = label("", "dim", wrap=True)
        self.apply = Button("Apply", "ph.check")
        self.config = Button("Save config…", "ph.download-simple")
        self.report = Button("Save report…", "ph.file-text")
        words = column(self._verdict, margins=(PADDING, PADDING, PADDING, 0))
        point = column(self._point, self._figures, gap=tokens.GAP_1)
        actions = row(self.apply, self.config, self.report, None)
        below = column(point, actions, gap=tokens.GAP_4, margins=(PADDING, 0, PADDING, PADDING))
        self.setLayout(column(words, self.plot, below, gap=tokens.GAP_3, stretch=self.plot))
        self.plot.chosen.connect(self.pick)
        self.report.clicked.connect(lambda: self.report_wanted.emit(self._sweep))
        self.config.clicked.connect(lambda: self.config_wanted.emit(self._sweep, self.chosen_settings, self.point))
        self.apply.clicked.connect(lambda: self.apply_wanted.emit(self.chosen_settings))
        self.show_sweep(None)

    @property
    def verdict(self) -> str:
        return self._verdict.text()

    @property
    def point(self) -> str:
        """What is to be read of the point that is looked at."""
        return f"{self._point.text()}: {self._figures.text()}"

    @property
    def chosen_settings(self) -> Settings | None:
        """Those of the point that is looked at: the best, unless the user has picked another."""
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
        self._verdict.setText(sweep.verdict() if sweep is not None else NOTHING_YET)
        self._show_point()

    def pick(self, place: int) -> None:
        """Look at this point."""
        self._chosen, self._has_picked = place, True
        self._show_point()

    def set_can_apply(self, can_apply: bool) -> None:
        self._can_apply = can_apply
        self._show_actions()

    def set_palette(self, palette: Palette) -> None:
        self.plot.set_palette(palette)

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
        f"{each.title} {format_figure(point.figure(each.name), each.unit)}" for each in FIGURES if each.name in SHOWN
    ]
    return ", ".join(shown) + "".join(f" {sentence}" for sentence in spoiling(point.runs))
