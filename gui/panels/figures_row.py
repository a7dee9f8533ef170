"""The row of figures: over the last ten seconds, and before the last change of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from gui.look import glossary, tokens
from gui.look.theme import colour, current
from gui.widgets.figure import Figure
from gui.widgets.layouts import column, hairline
from service.messages.text import format_number

if TYPE_CHECKING:  # it takes numpy, which the window's first frame does not wait for
    from service.analysis.observed.statistics import Figures
    from service.analysis.predict.predict import Prediction


class _Shown(NamedTuple):
    name: str
    read: Callable[[Figures], float | None]
    decimals: int = 1
    decimals_before: int = 1
    unit: str = ""
    swatch: str | None = None
    starts_group: bool = False


FIGURES: Final[Mapping[str, _Shown]] = {
    "requests_per_s": _Shown("requests/s", lambda f: f.requests_per_s),
    "tokens_per_s": _Shown("tokens/s", lambda f: f.tokens_per_s, 0, 0),
    "p50_s": _Shown("p50", lambda f: f.p50_s, 2, 1, "s", "p50", starts_group=True),
    "p95_s": _Shown("p95", lambda f: f.p95_s, 2, 1, "s", "p95"),
    "p99_s": _Shown("p99", lambda f: f.p99_s, 2, 1, "s", "p99"),
    "mean_batch": _Shown("mean batch", lambda f: f.mean_batch, starts_group=True),
    "queue": _Shown("queue", lambda f: f.queue, 0, 0),
    "speedup_over_batch_1": _Shown("vs batch 1", lambda f: f.speedup_over_batch_1, unit="×"),
}


ROOMY: Final = 10  # from here on a predicted figure has room for fewer decimals
PREDICTED: Final = ("requests_per_s", "tokens_per_s", "p50_s", "p95_s", "mean_batch")


class FiguresRow(QWidget):
    """Eight figures in three groups."""

    def __init__(self) -> None:
        super().__init__()
        self._figures = {
            key: Figure(shown.name, shown.unit, shown.swatch, glossary.FIGURES[shown.name])
            for key, shown in FIGURES.items()
        }
        self._time: str | None = None
        self._has_data = False
        self._shown: tuple[Figures | None, Figures | None, int | None] = (None, None, None)
        self._prediction: Prediction | None = None
        line = QHBoxLayout()
        line.setSpacing(0)
        line.setContentsMargins(tokens.PANEL_PADDING, 0, 0, 0)
        for figure in self._figures.values():
            line.addWidget(figure, 1)
        self.setLayout(column(line, hairline(), gap=0))
        self.show_figures(None)

    def figure(self, key: str) -> Figure:
        return self._figures[key]

    def show_figures(
        self, now: Figures | None, before: Figures | None = None, before_version: int | None = None
    ) -> None:
        """`now`, and below it `before`, the figures under settings `before_version`."""
        self._shown = (now, before, before_version)
        for key, shown in FIGURES.items():
            number = format_number(shown.read(now) if now is not None else None, shown.decimals)
            self._figures[key].show_number(number, self._below(key, shown))
        tip = glossary.FIGURES["vs batch 1"]
        self._figures["speedup_over_batch_1"].setToolTip(tip if now is None else f"{tip}. {_rests_on(now)}")
        self._make_room(now)

    def set_unit(self, unit: str) -> None:
        """Name the unit of the throughput, in the plural."""
        self._figures["tokens_per_s"].set_name(f"{unit}/s")

    def show_prediction(self, prediction: Prediction | None) -> None:
        """Show predicted figures in place of those before; ``None`` shows those again."""
        self._prediction = prediction
        self.show_figures(*self._shown)

    def set_dimmed(self, dimmed: bool) -> None:
        """Grey the figures out, once they are out of date."""
        for figure in self._figures.values():
            figure.set_dimmed(dimmed)

    def set_time(self, clock_time: str | None) -> None:
        """Show the time of day that the figures are of; ``None`` for now."""
        if clock_time != self._time:
            self._time = clock_time
            self.show_figures(*self._shown)

    def set_compact(self, compact: bool) -> None:
        for figure in self._figures.values():
            figure.set_size(tokens.FONT_FIGURE_SMALL if compact else tokens.FONT_FIGURE)

    def _make_room(self, now: Figures | None) -> None:
        """Use the full height from the first figure on."""
        if now is None:
            self._has_data = False
        elif any(shown.read(now) is not None for shown in FIGURES.values()):
            self._has_data = True
        self.setFixedHeight(tokens.HEIGHT_FIGURES if self._has_data else tokens.HEIGHT_FIGURES_EMPTY)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter, height = QPainter(self), self.height() - 2 * tokens.GAP_4
        for key, shown in FIGURES.items():
            if shown.starts_group:
                x = self._figures[key].x() - tokens.GAP_4
                painter.fillRect(x, tokens.GAP_4, tokens.HAIRLINE, height, colour(current().line))

    def _below(self, key: str, shown: _Shown) -> tuple[str, str]:
        """A word and a number, whose unit stands above it."""
        if self._time is not None and key == next(iter(FIGURES)):
            return "at", self._time
        if self._prediction is not None and key in PREDICTED:
            return _predicted(self._prediction, key, shown)
        _now, before, version = self._shown
        if before is None or version is None:
            return "", ""
        return f"v{version}", format_number(shown.read(before), shown.decimals_before)


def _rests_on(now: Figures) -> str:
    """What the comparison with batches of one rests on, or what it lacks."""
    from service.analysis.observed.statistics import LEAST_SINGLES, SINGLES_S

    minutes = f"the last {SINGLES_S / 60:.0f} min"
    count, gain = now.single_batches, now.speedup_over_batch_1
    if gain is None:
        return (
            f"It takes {LEAST_SINGLES} of these in {minutes}, and there {'was' if count == 1 else 'were'} {count}: "
            "send one prompt at a time, or measure max_batch_size 1 in Compare"
        )
    why = ""
    if now.mean_batch is not None and gain > now.mean_batch:
        why = ". It exceeds the batch size, so these ran slower for another reason, such as other work on the machine"
    return f"Of these there were {count} in {minutes}{why}"


def _predicted(prediction: Prediction, key: str, shown: _Shown) -> tuple[str, str]:
    """A word and a predicted number; a growing queue has no steady latency, so its word is when it is reached."""
    is_growing = prediction.saturated and key in ("p50_s", "p95_s")
    estimate = getattr(prediction, key)
    value = None if estimate is None else estimate.value
    number = format_number(value, shown.decimals if value is None or value < ROOMY else shown.decimals_before)
    if is_growing:
        return f"in {prediction.horizon_s:.0f} s", number
    return _first(prediction) if key in ("p50_s", "p95_s") else "then", number


def _first(prediction: Prediction) -> str:
    """What comes before the steady latency: the time in which the backlog is worked off, if there is one."""
    if not prediction.is_after_backlog:
        return "then"
    after = prediction.worked_off_s
    return "later" if after is None else f"{after.value:.0f} s, then"
