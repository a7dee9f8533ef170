"""The row of figures: over the last ten seconds, and before the last change of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from gui.look import tokens
from gui.look.theme import colour, current
from gui.widgets.figure import Figure
from gui.widgets.layouts import column, hairline
from service.analysis.observed.register import REGISTER, UNKNOWN_FIGURES, Figures, decimals_of_seconds, numbers
from service.messages.objectives import Objectives
from service.messages.text import UNKNOWN, percent

if TYPE_CHECKING:  # it takes numpy, which the window's first frame does not wait for
    from service.analysis.predict.predict import Prediction

GROUPS: Final = (
    ("requests_per_s", "tokens_per_s", "goodput_per_s"),
    ("p50_s", "p95_s", "p99_s"),
    ("mean_batch", "queue", "speedup_over_batch_1", "failed_share"),
)
KEYS: Final = tuple(key for group in GROUPS for key in group)
PREDICTED: Final = ("requests_per_s", "tokens_per_s", "p50_s", "p95_s", "mean_batch")


class FiguresRow(QWidget):
    """Ten figures in three groups."""

    def __init__(self) -> None:
        super().__init__()
        self._figures = {key: _figure(key) for key in KEYS}
        self._time: str | None = None
        self._has_data = False
        self._size = tokens.FONT_FIGURE
        self._shown: tuple[Figures | None, Figures | None, int | None] = (None, None, None)
        self._objectives = Objectives()
        self._prediction: Prediction | None = None
        self._withheld = ""
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
        shown, earlier = numbers(now or UNKNOWN_FIGURES), numbers(before or UNKNOWN_FIGURES)
        for key, figure in self._figures.items():
            figure.show_number(shown[key], self._below(key, earlier[key]))
        self._figures["failed_share"].set_alarming(bool(now is not None and now.failed_share))
        for key, rest in _rests_on(now, self._objectives).items():
            self._figures[key].setToolTip(f"{REGISTER[key].sentence}. {rest}" if rest else REGISTER[key].sentence)
        self._make_room(now)

    def set_objectives(self, objectives: Objectives) -> None:
        """Name what goodput asks for."""
        if objectives != self._objectives:
            self._objectives = objectives
            self.show_figures(*self._shown)

    def set_unit(self, unit: str) -> None:
        """Name the unit of the throughput, in the plural."""
        self._figures["tokens_per_s"].set_name(f"{unit}/s")

    def show_prediction(self, prediction: Prediction | None, withheld: str = "") -> None:
        """Show predicted figures in place of those before; ``None`` shows those again, or why nothing is predicted."""
        self._prediction, self._withheld = prediction, withheld
        for key in PREDICTED:
            sentence = REGISTER[key].sentence
            self._figures[key].setToolTip(f"{sentence}. {withheld}" if withheld else sentence)
        self.show_figures(*self._shown)

    @property
    def prediction(self) -> Prediction | None:
        """What is shown in place of the figures before."""
        return self._prediction

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
        self._size = tokens.FONT_FIGURE_SMALL if compact else tokens.FONT_FIGURE
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Smaller type where the splitter leaves little room."""
        is_narrow = self.width() < len(KEYS) * tokens.WIDTH_FIGURE_SMALL
        for figure in self._figures.values():
            figure.set_size(tokens.FONT_FIGURE_NARROW if is_narrow else self._size, is_narrow)

    def _make_room(self, now: Figures | None) -> None:
        """Use the full height from the first figure on."""
        if now is None:
            self._has_data = False
        elif any(getattr(now, key) is not None for key in KEYS):
            self._has_data = True
        self.setFixedHeight(tokens.HEIGHT_FIGURES if self._has_data else tokens.HEIGHT_FIGURES_EMPTY)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter, height = QPainter(self), self.height() - 2 * tokens.GAP_4
        for first, *_ in GROUPS[1:]:
            x = self._figures[first].x() - tokens.GAP_4
            painter.fillRect(x, tokens.GAP_4, tokens.HAIRLINE, height, colour(current().line))

    def _below(self, key: str, earlier: str) -> tuple[str, str]:
        """A word and a number, whose unit stands above it."""
        now, before, version = self._shown
        if self._time is not None and key == KEYS[0]:
            return "at", self._time
        if self._prediction is not None and key in PREDICTED:
            return _predicted(self._prediction, key)
        if self._withheld and key in PREDICTED:
            return "then", UNKNOWN
        if key == "goodput_per_s" and self._objectives:
            return "", self._objectives.brief
        if key == "failed_share" and now is not None and now.refused:
            return "refused", percent(now.refused / now.ended)
        if before is None or version is None:
            return "", ""
        return f"v{version}", earlier


def _figure(key: str) -> Figure:
    entry = REGISTER[key]
    return Figure(entry.name, entry.unit, entry.name if entry.name in tokens.LINE_WIDTHS else None, entry.sentence)


def _rests_on(now: Figures | None, objectives: Objectives) -> dict[str, str]:
    """What some figures rest on at present, or what they lack, by key."""
    goal = f"Asked for: {objectives.words}" if objectives else "It needs objectives: set them under Load"
    if now is None:
        return {"goodput_per_s": goal, "speedup_over_batch_1": "", "failed_share": ""}
    became = f"{now.failed} failed, {now.refused} were refused and {now.cancelled} were cancelled"
    ended = f"Of {now.ended} that ended {became}" if now.ended else "None ended"
    return {"goodput_per_s": goal, "speedup_over_batch_1": _singles(now), "failed_share": ended}


def _singles(now: Figures) -> str:
    """What the comparison with batches of one rests on, or what it lacks."""
    from service.analysis.observed.statistics import LEAST_SINGLES, SINGLES_S

    minutes = f"the last {SINGLES_S / 60:.0f} min"
    count, gain = now.single_batches, now.speedup_over_batch_1
    if count is None:
        return "This server does not report how long a batch ran"
    if gain is None:
        return (
            f"It takes {LEAST_SINGLES} of these in {minutes}, and there {'was' if count == 1 else 'were'} {count}: "
            "send one prompt at a time, or measure max_batch_size 1 in Compare"
        )
    why = ""
    if now.mean_batch is not None and gain > now.mean_batch:
        why = ". It exceeds the batch size, so these ran slower for another reason, such as other work on the machine"
    return f"Of these there were {count} in {minutes}{why}"


def _predicted(prediction: Prediction, key: str) -> tuple[str, str]:
    """A word and a predicted number; a growing queue has no steady latency, so its word is when it is reached."""
    is_latency = key in ("p50_s", "p95_s")
    estimate = getattr(prediction, key)
    value = None if estimate is None else estimate.value
    number = REGISTER[key].number(value, decimals_of_seconds([value]) if is_latency else None)
    if prediction.saturated and is_latency:
        return f"in {prediction.horizon_s:.0f} s", number
    is_far = is_latency and prediction.is_after_backlog and prediction.worked_off_s is None
    return "later" if is_far else "then", number
