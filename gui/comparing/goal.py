"""The fourth view of the centre: a goal, the settings that hold it, and below them Hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, TypeAlias, get_args

from PySide6.QtCore import QEvent, QRect, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from gui.comparing.hold import HoldSection
from gui.comparing.scatter import FrontierPlot
from gui.look import glossary, tokens
from gui.look.theme import colour, current, font, scaled
from gui.widgets.buttons import Button, Chooser, menu_of, pop_up
from gui.widgets.labels import draw_text, label
from gui.widgets.layouts import box, column, hairline, row, scrolled
from gui.widgets.number_field import NumberField
from service.analysis.compare.progress import Duration
from service.analysis.compare.run_plan import SweepPlan
from service.analysis.goal.planner import ReplicaPlan
from service.analysis.goal.search import Candidate, GoalSearch
from service.analysis.goal.trials import time_name
from service.analysis.observed.history import History
from service.analysis.observed.register import decimals_of_seconds
from service.messages.load import LOAD_BOUNDS, ClosedLoop, Pattern, Poisson
from service.messages.objectives import OBJECTIVE_BOUNDS, TIMES, Objectives
from service.messages.settings import SCALE_BOUNDS
from service.messages.text import about_time, counted, format_figure

LoadKind: TypeAlias = Literal["present", "rate", "users"]
LOADS: Final[dict[LoadKind, str]] = {"present": "the present load", "rate": "requests a second", "users": "users"}
NO_SEARCH_YET: Final = "Say what must hold: all settings are simulated under the load that was observed."
PADDING: Final = tokens.PANEL_PADDING
USUAL_USERS: Final = 8


class GoalRow(QWidget):
    """What must hold, under which load, within how many replicas."""

    goal_wanted = Signal(object)  # the `Objectives` with the time that was entered
    search_wanted = Signal()
    stop_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._kind = TIMES["latency"]
        self._load: LoadKind = get_args(LoadKind)[0]
        self._objectives = Objectives()
        self._is_searching = False
        self.kind = Chooser(tip=glossary.TERMS["objectives"], name="Time that must hold")
        self.limit = NumberField(OBJECTIVE_BOUNDS, "goal", 2, "s", tokens.WIDTH_NUMBER_COMPACT, zero_text="none")
        self.load = Chooser(tip="The load under which it must hold, with lengths as observed", name="Load")
        self.rate = NumberField(LOAD_BOUNDS["rate_per_s"], "rate", 1, "req/s", tokens.WIDTH_NUMBER_COMPACT)
        self.users = NumberField(LOAD_BOUNDS["users"], "users", width=tokens.WIDTH_NUMBER_TINY)
        self.replicas = NumberField(SCALE_BOUNDS["replicas"], "replicas up to", width=tokens.WIDTH_NUMBER_TINY)
        self.replicas.setToolTip("That the machine holds, each as fast as those that are observed")
        self.button = Button("Search", "ph.magnifying-glass")
        self._kinds, self._loads = menu_of(self, ()), menu_of(self, [(text, kind) for kind, text in LOADS.items()])
        self.users.set_number(USUAL_USERS)
        words = (label(text, "name") for text in ("Keep", "≤", "under", "replicas up to"))
        keep, at_most, under, up_to = words
        parts = (keep, self.kind, at_most, self.limit, under, self.load, self.rate, self.users)
        margins = (PADDING, 0, PADDING, 0)
        line = row(*parts, None, up_to, self.replicas, self.button, gap=tokens.GAP_2, margins=margins)
        self.setLayout(column(box(line, height=tokens.HEIGHT_TOOLBAR), hairline(), gap=0))
        self.kind.clicked.connect(lambda: pop_up(self._kinds, self.kind))
        self.load.clicked.connect(lambda: pop_up(self._loads, self.load))
        self._kinds.triggered.connect(lambda action: self.choose_kind(action.data()))
        self._loads.triggered.connect(lambda action: self.choose_load(action.data()))
        self.limit.entered.connect(self._on_limit_entered)
        self.button.clicked.connect(self._on_clicked)
        self.choose_load(self._load)
        self.show_objectives(self._objectives, generates=True)

    @property
    def measured(self) -> str:
        """The name of the time that is chosen: "latency", "ttft" or "tpot"."""
        return next(name for name, field in TIMES.items() if field == self._kind)

    @property
    def pattern(self) -> Pattern | None:
        """Of arrivals; ``None`` for the present ones."""
        match self._load:
            case "rate":
                return Poisson(rate_per_s=self.rate.number)
            case "users":
                return ClosedLoop(users=int(self.users.number))
        return None

    def show_objectives(self, objectives: Objectives, *, generates: bool) -> None:
        """Show the time of the chosen kind, or of one that is asked for now; a function has only one kind."""
        is_other, self._objectives = objectives != self._objectives, objectives
        fields = list(TIMES.values()) if generates else [TIMES["latency"]]
        if self._kind not in fields or (is_other and not getattr(objectives, self._kind)):
            self._kind = next((each for each in fields if getattr(objectives, each)), fields[0])
        names = {field: time_name(Objectives(**{field: 1.0}, share=objectives.share)) for field in fields}
        if [action.data() for action in self._kinds.actions()] != fields:
            self._kinds.clear()
            for field, name in names.items():
                self._kinds.addAction(name).setData(field)
        self.kind.show_choice(names[self._kind])
        self.limit.set_number(getattr(objectives, self._kind) or 0.0)

    def choose_kind(self, field: str) -> None:
        """Enter another time; what is asked of the others stays."""
        self._kind = field
        self.kind.show_choice(time_name(Objectives(**{field: 1.0}, share=self._objectives.share)))
        self.limit.set_number(getattr(self._objectives, field) or 0.0)

    def choose_load(self, kind: LoadKind) -> None:
        self._load = kind
        self.load.show_choice(LOADS[kind])
        self.rate.setVisible(kind == "rate")
        self.users.setVisible(kind == "users")

    def set_rate(self, rate_per_s: float) -> None:
        """Begin with the observed rate, where another is asked for."""
        if self._load != "rate":
            self.rate.set_number(round(rate_per_s, 1))

    def show_searching(self, is_searching: bool) -> None:
        self._is_searching = is_searching
        self.button.setText("Cancel" if is_searching else "Search")
        self.button.set_icon("ph.stop-fill" if is_searching else "ph.magnifying-glass")

    def set_can_search(self, why_not: str) -> None:
        """Enable the button, or say what it waits for."""
        self.button.setEnabled(not why_not or self._is_searching)
        self.button.setToolTip(why_not)

    def _on_limit_entered(self, seconds: float) -> None:
        fields = {field: getattr(self._objectives, field) for field in TIMES.values()}
        self.goal_wanted.emit(Objectives(**fields | {self._kind: seconds or None}, share=self._objectives.share))

    def _on_clicked(self) -> None:
        (self.stop_wanted if self._is_searching else self.search_wanted).emit()


class CandidateButton(QAbstractButton):
    """Settings with their predicted figures, in two lines; a click chooses them.

    The `remark` stands in the place of the goodput.
    """

    def __init__(self, candidate: Candidate, remark: str) -> None:
        super().__init__()
        time_s = candidate.time_s
        decimals = decimals_of_seconds([time_s.value])
        value, low, high = (f"{each:.{decimals}f}" for each in (time_s.value, time_s.low, time_s.high))
        remark = remark or f"goodput {format_figure(candidate.goodput_per_s.value)}"
        self._upper = candidate.text, f"{value} s"
        self._lower = f"{remark}, kept {candidate.kept} of {candidate.runs}", f"{low} to {high}"
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(", ".join((*self._upper, *self._lower)))
        self.setToolTip(f"{candidate.text}: the goal is kept in {candidate.kept} of {candidate.runs} simulated runs")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(tokens.HEIGHT_ROW)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, palette = QPainter(self), current()
        if self.isChecked() or self.underMouse():
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour(palette.hover))
            painter.drawRoundedRect(self.rect(), tokens.RADIUS_CONTROL, tokens.RADIUS_CONTROL)
        inner = self.rect().adjusted(tokens.GAP_2, 0, -tokens.GAP_2, 0)
        half = inner.height() // 2
        lines = (
            (QRect(inner.left(), tokens.GAP_HALF, inner.width(), half), self._upper, tokens.WEIGHT_BOLD, palette.t1),
            (QRect(inner.left(), half - tokens.GAP_HALF, inner.width(), half), self._lower, None, palette.t2),
        )
        for place, (left, right), weight, ink in lines:
            used = font(tokens.FONT_TEXT, weight) if weight else font(tokens.FONT_CAPTION)
            metrics = QFontMetrics(used)
            room = place.width() - metrics.horizontalAdvance(right) - tokens.GAP_2
            draw_text(painter, place, metrics.elidedText(left, Qt.TextElideMode.ElideMiddle, room), used, ink)
            draw_text(painter, place, right, used, ink, Qt.AlignmentFlag.AlignRight)


class GoalResults(QWidget):
    """The verdict, the frontier, and the cheapest settings with what can be done with them."""

    chosen = Signal(int)  # the place of a candidate

    def __init__(self) -> None:
        super().__init__()
        self._found: GoalSearch | None = None
        self._chosen: int | None = None
        self._plan: SweepPlan | None = None
        self._can_apply = self._can_measure = False
        self.verdict = label(NO_SEARCH_YET, "name", wrap=True)
        self.plot = FrontierPlot()
        self.left_out = label("", "caption")
        self.measure = Button("Measure the best", "ph.play-fill", "primary", large=True)
        self.apply = Button("Apply", "ph.check")
        self.config = Button("Serve config…", "ph.download-simple")
        self.rows: list[CandidateButton] = []
        self._places: list[int] = []
        self._list_head, self._list_time = label("", "strong"), label("", "caption")
        self._list = column(gap=tokens.GAP_1)
        words = column(self.verdict, margins=(PADDING, tokens.GAP_3, PADDING, 0))
        below = column(self.left_out, margins=(PADDING, 0, PADDING, tokens.GAP_2))
        left = box(column(words, self.plot, below, gap=tokens.GAP_1, stretch=self.plot))
        actions = column(self.measure, row(self.apply, self.config), gap=tokens.GAP_2)
        head = row(self._list_head, None, self._list_time)
        margins = (PADDING, tokens.GAP_3, tokens.GAP_3, tokens.GAP_3)
        right = scrolled(box(column(head, self._list, actions, None, gap=tokens.GAP_3, margins=margins)))
        self.column = right
        self.setLayout(row(left, hairline(vertical=True), right, gap=0, stretch=left))
        self.plot.chosen.connect(self.pick)
        self.show_found(None, None)

    @property
    def chosen_candidate(self) -> Candidate | None:
        """The cheapest that holds, unless the user has picked another."""
        return None if self._found is None or self._chosen is None else self._found.candidates[self._chosen]

    @property
    def plan(self) -> SweepPlan | None:
        """What measures the best."""
        return self._plan

    def show_found(self, found: GoalSearch | None, plan: SweepPlan | None) -> None:
        self._found, self._plan = found, plan
        self.verdict.setText(NO_SEARCH_YET if found is None else f"{found.headline}.")
        self._chosen = None if found is None else next(iter(found.holding), found.just_misses)
        self._list_rows()
        self.pick(self._chosen)
        if found is not None and (left_out := self.plot.left_out):
            more = counted(left_out, "setting")
            self.left_out.setText(f"{more} with an unbounded queue, or far right of the goal, left out")
        self.left_out.setVisible(bool(found and self.plot.left_out))

    def show_plan(self, plan: ReplicaPlan) -> None:
        """Say how many replicas it takes, after the search has said that nothing holds."""
        self.verdict.setText(f"{self.verdict.text()}\n{plan.sentence}")

    def show_progress(self, words: str) -> None:
        """Say how far a search is, or why there is none."""
        self.verdict.setText(words)

    def pick(self, place: int | None) -> None:
        """Choose a setting, for what is applied and saved."""
        self._chosen = place
        self.plot.show_search(self._found, place)
        for each, button in zip(self._places, self.rows, strict=True):
            button.setChecked(each == place)
        self._show_actions()

    def set_can(self, *, apply: bool, measure: bool) -> None:
        self._can_apply, self._can_measure = apply, measure
        self._show_actions()

    def _list_rows(self) -> None:
        found = self._found
        for button in self.rows:
            self._list.removeWidget(button)
            button.deleteLater()
        places: list[tuple[int, str]] = []
        if found is not None:
            places = [(place, "") for place in found.holding]
            places += [] if found.just_misses is None else [(found.just_misses, "just misses")]
            self._list_head.setText("Cheapest that hold" if found.holding else "None holds; the nearest")
            self._list_time.setText(found.time)
        self._places = [place for place, _ in places]
        self.rows = [] if found is None else [CandidateButton(found.candidates[n], text) for n, text in places]
        for place, button in zip(self._places, self.rows, strict=True):
            button.clicked.connect(partial(self.pick, place))
            self._list.addWidget(button)
        for each in (self._list_head, self._list_time, self.measure, self.apply, self.config):
            each.setVisible(found is not None)

    def _show_actions(self) -> None:
        plan, chosen = self._plan, self.chosen_candidate
        count = 0 if plan is None else len(plan.points)
        self.measure.setText("Measure it" if count == 1 else f"Measure the best {count or ''}".rstrip())
        self.measure.set_hint("" if plan is None else about_time(Duration.of(plan).total_s))
        self.measure.setEnabled(self._can_measure and plan is not None)
        why = "" if plan is not None else "Nothing that holds runs on the replicas there are: apply it first"
        self.measure.setToolTip(why)
        self.apply.setEnabled(self._can_apply and chosen is not None)
        self.config.setEnabled(chosen is not None)


class GoalView(QWidget):
    """A row that says the goal, what was found below it, and Hold."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.row, self.results, self.hold = GoalRow(), GoalResults(), HoldSection(history)
        parts: Sequence[QWidget] = (self.row, self.results, hairline(), self.hold)
        layout = column(*parts, gap=0)
        layout.setStretch(1, 3)
        layout.setStretch(3, 2)
        self.setLayout(layout)
        self._fit_columns()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            self._fit_columns()

    def _fit_columns(self) -> None:
        """Give the columns on the right a width that goes with the size of the type."""
        for part in (self.results, self.hold):
            part.column.setFixedWidth(scaled(tokens.WIDTH_GOAL))
