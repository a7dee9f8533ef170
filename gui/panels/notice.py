"""Pages for a service that is not started, starting, without requests yet, or failed; hidden while it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QLabel, QLayout, QSizePolicy, QVBoxLayout, QWidget

from gui.look import tokens
from gui.panels import shortcuts
from gui.panels.scenarios import Scenario, ScenarioTiles
from gui.session.start_progress import StageLine
from gui.widgets.buttons import Button
from gui.widgets.glyphs import Glyph, Progress, Shape
from gui.widgets.labels import ElidedLabel, label, repolish, set_role
from gui.widgets.layouts import box, column, hairline, row

EMPTY_LEAD: Final = "Everything runs on this machine, on 127.0.0.1."
STEPS: Final = (
    ("Start", "Loads the model into a Ray Serve replica."),
    ("Show me, Run load, or Fire", "A minute that shows it all, Poisson arrivals, or your own prompts."),
    ("Move a slider", "Watch batches grow, the queue drain and latency answer."),
)
SHOW_ME_TIP: Final = (
    "A load of its own at max_batch_size 1, then in batches; afterwards your settings are in force again"
)
PAGE_MARGINS: Final = (tokens.PANEL_PADDING, tokens.NOTICE_PADDING, tokens.PANEL_PADDING, tokens.NOTICE_PADDING)
_SHAPES: Final[dict[str, tuple[Shape, str]]] = {
    "done": ("check", "t2"),
    "present": ("arc", "t1"),
    "ahead": ("circle", "border"),
}


class Notice(QFrame):
    """Shows one of four pages, or nothing."""

    step_wanted = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("notice")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self.empty, self.starting, self.ready, self.failed = _EmptyPage(), _StartingPage(), _ReadyPage(), _FailedPage()
        self._pages = (self.empty, self.starting, self.ready, self.failed)
        self.setLayout(column(*self._pages, hairline(), gap=0))
        self.empty.start.clicked.connect(lambda: self.step_wanted.emit("start"))
        self.starting.cancel.clicked.connect(lambda: self.step_wanted.emit("cancel"))
        self.failed.restart.clicked.connect(lambda: self.step_wanted.emit("restart"))
        self.clear()

    def show_empty(self, lead: str = EMPTY_LEAD, first_step: str = STEPS[0][1]) -> None:
        self.empty.show_texts(lead, first_step)
        self._turn_to(self.empty)

    def set_attaching(self, is_attaching: bool) -> None:
        """Speak of a service that runs already, or of one that is started."""
        self.empty.set_attaching(is_attaching)
        self.starting.set_attaching(is_attaching)
        self.failed.set_attaching(is_attaching)

    def show_starting(self, lines: Sequence[StageLine], lead: str = "") -> None:
        self.starting.show_stages(lines, lead)
        self._turn_to(self.starting)

    @property
    def invites(self) -> bool:
        """Whether it offers the first requests."""
        return not self.isHidden() and not self.ready.isHidden()

    def show_ready(self) -> None:
        self._turn_to(self.ready)

    def show_failed(self, sentence: str) -> None:
        """Show the cause of a failure and its cost."""
        self.failed.show_sentence(sentence)
        self._turn_to(self.failed)

    def clear(self) -> None:
        self.hide()

    def _turn_to(self, page: QWidget) -> None:
        for each in self._pages:
            each.setVisible(each is page)
        state = "failed" if page is self.failed else ""
        if self.property("state") != state:
            self.setProperty("state", state)
            repolish(self)
        self.show()


class _EmptyPage(QWidget):
    """An invitation to start, and the three steps of a first use."""

    def __init__(self) -> None:
        super().__init__()
        self._lead = label("", "text", wrap=True)
        self.start = Button("Start", "ph.play-fill", "primary", hint=shortcuts.STEP.hint)
        self.start.setFixedHeight(tokens.HEIGHT_PRIMARY)
        self.start.setMinimumWidth(tokens.WIDTH_PRIMARY)
        self._heading = label("", "heading")
        self._titles = [label(title, "title") for title, _text in STEPS]
        self._texts = [label(text, "text", wrap=True) for _title, text in STEPS]
        self._lay_out()
        self.set_attaching(False)

    def set_attaching(self, is_attaching: bool) -> None:
        what = "Attach to" if is_attaching else "Start"
        self._heading.setText(f"{what} the service, then put it under load")
        for each in (self.start, self._titles[0]):
            each.setText("Attach" if is_attaching else "Start")
        self.start.setToolTip(shortcuts.STEP.tip(f"{what} the service"))

    def show_texts(self, lead: str, first_step: str) -> None:
        self._lead.setText(lead)
        self._texts[0].setText(first_step)

    def _lay_out(self) -> None:
        heading = column(self._heading, self._lead, gap=tokens.GAP_1)
        steps = row(gap=tokens.GAP_4)
        for number, (title, text) in enumerate(zip(self._titles, self._texts, strict=True), start=1):
            steps.addLayout(_step(number, title, text), 1)
        top = row(heading, self.start, gap=tokens.GAP_4, stretch=heading)
        self.setLayout(column(top, steps, gap=tokens.GAP_STEPS, margins=PAGE_MARGINS))


class _StartingPage(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._lead = label("", "text", wrap=True)
        self.cancel = Button("Cancel", "ph.x", large=True, tip=shortcuts.STEP.tip("Cancel the start"))
        self.show_log = _log_button()
        self.show_me = Button(
            "Show me", "ph.play-fill", large=True, tip="Meanwhile a lesson, in a recording: why batches"
        )
        self._rows: list[_StageRow] = []
        self._stages = QVBoxLayout()
        self._stages.setSpacing(tokens.GAP_STAGES)
        words = QWidget()
        words.setFixedWidth(tokens.WIDTH_NOTICE_WORDS)
        buttons = column(row(self.cancel, self.show_log, None), row(self.show_me, None))
        self._heading = label("", "heading")
        words.setLayout(column(self._heading, self._lead, tokens.GAP_3, buttons, None, gap=tokens.GAP_1))
        self.setLayout(row(words, self._stages, gap=tokens.GAP_NOTICE, margins=PAGE_MARGINS, stretch=self._stages))

        self.set_attaching(False)

    def set_attaching(self, is_attaching: bool) -> None:
        self._heading.setText("Attaching to the service" if is_attaching else "Starting the service")

    def show_stages(self, lines: Sequence[StageLine], lead: str) -> None:
        self._lead.setText(lead)
        while len(self._rows) < len(lines):
            self._rows.append(_StageRow())
            self._stages.addWidget(self._rows[-1])
        for shown, line in zip(self._rows, lines, strict=False):
            shown.show_line(line)
        for shown in self._rows[len(lines) :]:
            shown.hide()


class _StageRow(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._glyph = Glyph()
        self._title = ElidedLabel("", "dim")
        self._detail = label("", "dim")
        self._bar = Progress()
        top = row(self._title, None, self._detail)
        body = column(top, self._bar, gap=tokens.GAP_1)
        line = row(self._glyph, body, gap=tokens.GAP_2 + tokens.GAP_1)
        line.setAlignment(self._glyph, Qt.AlignmentFlag.AlignTop)
        self.setLayout(line)

    def show_line(self, line: StageLine) -> None:
        shape, ink = _SHAPES[line.state]
        self._glyph.show_shape(shape, ink, line.fraction if line.fraction is not None else 0.7)
        self._title.setText(line.title)
        self._detail.setText(line.detail)
        is_present = line.state == "present"
        set_role(self._title, {"done": "text", "present": "stage", "ahead": "dim"}[line.state])
        set_role(self._detail, "name" if is_present else "dim")
        self._bar.setVisible(is_present and line.fraction is not None)
        self._bar.show_fraction(line.fraction or 0.0)
        self.show()


class _ReadyPage(QWidget):
    """What to do with a service that has answered no request yet."""

    def __init__(self) -> None:
        super().__init__()
        self.fire = Button(
            "Fire", "ph.paper-plane-right-fill", large=True, tip=shortcuts.FIRE.tip("Send every prompt, now")
        )
        self.run_load = Button("Run load", "ph.play-fill", large=True, tip=shortcuts.LOAD.tip("Run the load"))
        self.show_me = Button(
            "Show me", "ph.play-fill", "primary", hint="1 min", tip=shortcuts.SHOW_ME.tip(SHOW_ME_TIP)
        )
        for each in (self.fire, self.run_load, self.show_me):
            each.setFixedHeight(tokens.HEIGHT_PRIMARY)
        self._lead, self._heading = label("", "text", wrap=True), label("", "heading")
        heading = column(self._heading, self._lead, gap=tokens.GAP_1)
        top = row(heading, row(self.fire, self.run_load, self.show_me), gap=tokens.GAP_4, stretch=heading)
        self.scenarios = ScenarioTiles()
        self._of_what = label("", "dim")
        head = row(label("Scenarios", "name"), self._of_what, None)
        self._below = box(column(head, self.scenarios, gap=tokens.GAP_2))
        self.setLayout(column(top, self._below, gap=tokens.GAP_4, margins=PAGE_MARGINS))
        self.set_can_show_me(True)

    def set_can_show_me(self, can_show_me: bool) -> None:
        """Invite to what changes settings, or where none can be changed, to the load alone."""
        self.show_me.setVisible(can_show_me)
        self._heading.setText("See why batching matters" if can_show_me else "See how it batches")
        engine = "One minute on this engine: requests one by one, then in batches."
        self._lead.setText(engine if can_show_me else "A load, your own prompts, or one of the scenarios.")

    def set_can_run(self, can_run: bool) -> None:
        for each in (self.fire, self.run_load, self.show_me, self.scenarios):
            each.setEnabled(can_run)

    def show_scenarios(self, scenarios: Sequence[Scenario], of_what: str) -> None:
        """Offer these; `of_what` says what their shares are of."""
        self._of_what.setText(of_what)
        self.scenarios.show_scenarios(scenarios)

    def set_low(self, is_low: bool) -> None:
        """Leave the scenarios out where the plots need the room."""
        self._below.setVisible(not is_low)


class _FailedPage(QFrame):
    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("failure")
        self._sentence = label("", "name", wrap=True)
        self._sentence.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.show_log = _log_button()
        self.restart = Button(
            "Restart", "ph.arrow-clockwise", "primary", large=True, tip=shortcuts.STEP.tip("Start the service again")
        )
        self.setMinimumHeight(tokens.HEIGHT_NOTICE_FAILED)
        margins = (tokens.PANEL_PADDING, tokens.GAP_3, tokens.PANEL_PADDING, tokens.GAP_3)
        glyph = Glyph("alert", "error", tokens.GLYPH_LARGE)
        self.setLayout(row(glyph, self._sentence, self.show_log, self.restart, margins=margins, stretch=self._sentence))

    def set_attaching(self, is_attaching: bool) -> None:
        self.restart.setText("Attach" if is_attaching else "Restart")
        tip = "Look for the service again" if is_attaching else "Start the service again"
        self.restart.setToolTip(shortcuts.STEP.tip(tip))

    def show_sentence(self, sentence: str) -> None:
        self._sentence.setText(sentence)
        self._sentence.setAccessibleName(sentence)


def _log_button() -> Button:
    return Button("Show log", "ph.terminal-window", large=True, tip=shortcuts.LOG.tip("Show the service's log"))


def _step(number: int, title: QLabel, text: QLabel) -> QLayout:
    circle = label(str(number), "text")
    circle.setObjectName("step")
    circle.setFixedSize(tokens.STEP_CIRCLE, tokens.STEP_CIRCLE)
    circle.setAlignment(Qt.AlignmentFlag.AlignCenter)
    text.setContentsMargins(tokens.STEP_CIRCLE + tokens.GAP_2, 0, 0, 0)
    return column(row(circle, title, None), text, None, gap=tokens.GAP_1)
