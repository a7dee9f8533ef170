"""The load: its pattern, rate, lengths and counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from PySide6.QtCore import Signal
from PySide6.QtGui import QAction, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import glossary, tokens
from gui.panels import load_knobs, shortcuts
from gui.panels.length import LengthControl
from gui.panels.objectives import ObjectivesRows
from gui.panels.scenarios import Scenario
from gui.panels.section import SECTION_MARGINS, section_head
from gui.widgets.buttons import Button, Chooser, menu_of, pop_up
from gui.widgets.labels import ElidedLabel, label
from gui.widgets.layouts import column, row
from gui.widgets.setting import Throttle
from service.messages.load import Burst, ClientTotals, Length, Pattern

REPEATS_TIP: Final = (
    "Did batching change an answer? Prompts that were sent more than once should get the same answer each time.\n"
    "In another batch numbers are added in another order, which now and then changes a word and all that follows it.\n"
    "“Deterministic”, below the device, lets no answer depend on its batch."
)


class ChosenLoad(NamedTuple):
    """What the controls of all patterns hold, and which of their numbers follow what suits the service."""

    kind: str
    values: Mapping[str, object]
    max_tokens: Length
    prompt_words: Length | None
    usual_numbers: frozenset[str]


class LoadPanel(QWidget):
    """Emits a load when the user runs it, and again after every change while it runs."""

    load_wanted = Signal(object, object, object)  # Pattern, max_tokens, prompt_words
    stop_wanted = Signal()
    pause_wanted = Signal(bool)  # or, where false, to go on

    def __init__(self) -> None:
        super().__init__()
        self._kind = "poisson"
        self._running: Pattern | None = None
        self._is_paused = False
        self._can_run = False
        self._why = ""
        self._lag_p99_ms: float | None = None
        self._refusal = ""
        self._sent_when_refused: int | None = None  # not known before the next report
        self._generates = True
        self._create()
        below = column(row(self._sent, None, self._lag), self._repeats, gap=tokens.GAP_1)
        self.objectives = ObjectivesRows()
        actions = column(row(self.button, self.pause), below, gap=tokens.GAP_2)
        head = column(section_head("Load"), self._chooser, gap=tokens.GAP_HEAD)
        knobs = column(*self._knobs.values(), gap=tokens.GAP_1)
        lengths = column(self._tokens, self._words, gap=tokens.GAP_1)
        parts = (head, knobs, lengths, self.objectives, actions)
        self.setLayout(column(*parts, gap=tokens.GAP_3, margins=SECTION_MARGINS))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self._chooser.clicked.connect(lambda: pop_up(self._menu, self._chooser))
        self._menu.triggered.connect(lambda action: self._pick(action.data()))
        self._first_pattern = self._menu.insertSeparator(self._menu.actions()[0])
        self._scenarios: list[QAction] = []
        for knob in self._knobs.values():
            knob.wanted.connect(self._on_value_wanted)
        for length in (self._tokens, self._words):
            length.wanted.connect(lambda: self._on_value_wanted(None, True))
        self.button.clicked.connect(self._on_clicked)
        self.pause.clicked.connect(lambda: self.pause_wanted.emit(not self._is_paused))
        self._show_kind()
        self._show_buttons()

    @property
    def pattern(self) -> Pattern:
        values = {field: self._knobs[field].value for field in load_knobs.CHOICES[self._kind]}
        return load_knobs.pattern_of(self._kind, values)

    @property
    def lengths(self) -> tuple[Length, Length | None]:
        """Most tokens and prompt words of the controls, also of hidden ones."""
        assert self._tokens.length is not None
        return self._tokens.length, self._words.length

    @property
    def max_tokens(self) -> Length:
        """Tokens that a request asks for; 1 for a function."""
        return self.lengths[0] if self._generates else 1

    @property
    def prompt_words(self) -> Length | None:
        return self.lengths[1] if self._generates else None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def knob(self, field: str) -> load_knobs.Knob:
        return self._knobs[field]

    def set_load(self, pattern: Pattern, max_tokens: Length, prompt_words: Length | None = None) -> None:
        """Show this load in the controls; nothing is emitted."""
        kind = load_knobs.kind_of(pattern)
        values = {field: getattr(pattern, field) for field in load_knobs.CHOICES[kind]}
        self._set(kind, values, max_tokens, prompt_words)

    @property
    def chosen(self) -> ChosenLoad:
        """All that the user has set."""
        usual = frozenset(field for field, knob in self._number_knobs.items() if knob.is_usual)
        return ChosenLoad(self._kind, {name: each.value for name, each in self._knobs.items()}, *self.lengths, usual)

    def show_chosen(self, chosen: ChosenLoad) -> None:
        """Show that again."""
        self._set(chosen.kind, chosen.values, chosen.max_tokens, chosen.prompt_words)
        for field, knob in self._number_knobs.items():
            knob.is_usual = field in chosen.usual_numbers

    def offer(self, scenarios: Sequence[Scenario]) -> None:
        """Offer these in the menu of patterns, above them."""
        while len(self._scenarios) < len(scenarios):
            self._scenarios.append(action := QAction(self._menu))
            self._menu.insertAction(self._first_pattern, action)
        for number, action in enumerate(self._scenarios):
            action.setVisible(number < len(scenarios))
        for action, scenario in zip(self._scenarios, scenarios, strict=False):
            action.setText(f"{scenario.title}, {scenario.said}")
            action.setData(scenario)

    def take(self, scenario: Scenario) -> None:
        """Show this load in the controls; one that runs follows."""
        max_tokens, prompt_words = self.lengths
        self.set_load(scenario.pattern, scenario.max_tokens or max_tokens, prompt_words)
        self._send_if_running()

    @property
    def usual_numbers(self) -> tuple[str, ...]:
        """The numbers of the shown pattern that follow what suits the service."""
        shown = load_knobs.CHOICES[self._kind]
        return tuple(field for field, knob in self._number_knobs.items() if knob.is_usual and field in shown)

    def set_usual_numbers(self, fields: Collection[str] | None) -> None:
        """Let these numbers of the shown pattern follow that, or where ``None`` those that have the usual value."""
        for field in load_knobs.CHOICES[self._kind]:
            knob = self._number_knobs.get(field)
            if knob is not None:
                knob.is_usual = knob.has_usual_number if fields is None else field in fields

    def suit(self, suited: Mapping[str, load_knobs.Suited], moves: bool) -> None:
        """Let numbers and sliders follow what suits the service, unless a load runs.

        A number for which nothing is known takes its usual value; values stay where they are unless `moves`.
        """
        if self._running is None:
            for field, knob in self._number_knobs.items():
                knob.suit(suited.get(field), moves)

    @property
    def _number_knobs(self) -> Mapping[str, load_knobs.NumberKnob]:
        return {field: knob for field, knob in self._knobs.items() if isinstance(knob, load_knobs.NumberKnob)}

    def set_generates(self, generates: bool) -> None:
        """Show the lengths for a text generator, hide them for a function."""
        self._generates = generates
        for length in (self._tokens, self._words):
            length.setVisible(generates)

    def set_can_run(self, can_run: bool, why: str = "") -> None:
        """Enable the button; `why` says what it waits for."""
        self._can_run = can_run
        if why or self._sent.text() == self._why:  # what the load came to stays
            self.set_note(why)
        self._why = why
        self._show_buttons()

    def set_note(self, text: str) -> None:
        """Show a line under the button instead of the counts."""
        self._sent.setText(text)
        self._lag_p99_ms = None
        self._show_lag()

    def show_refusal(self, sentence: str) -> None:
        """Say why a load has stopped or a command was not sent, until more is sent."""
        self._refusal, self._sent_when_refused = sentence, None
        self.set_note(sentence)

    def show_running(self, pattern: Pattern | None, is_paused: bool = False) -> None:
        """Show the pattern that runs, as the load process reports it."""
        self._running = pattern
        self._is_paused = is_paused
        self._show_buttons()

    def show_totals(self, totals: ClientTotals, lag_p99_ms: float | None = None) -> None:
        losses = ((totals.dropped, "dropped"), (totals.refused, "refused"), (totals.failed, "failed"))
        parts = [f"{totals.sent} sent", *(f"{n} {what}" for n, what in losses if n)]
        if len(parts) == 1:
            parts.append("0 dropped")
        if self._running is not None or self._sent_when_refused not in (None, totals.sent):
            self._refusal = ""
        self._sent_when_refused = totals.sent
        self._sent.setText(self._refusal or ", ".join(parts))
        self._repeats.setText(f"{totals.differing} of {totals.repeated} repeated answers differ")
        self._repeats.setVisible(totals.repeated > 0)
        self._lag_p99_ms = None if self._refusal else lag_p99_ms
        self._show_lag()

    def toggle(self) -> None:
        """Click the button, if it is enabled."""
        if self.button.isEnabled():
            self.button.click()

    def toggle_pause(self) -> None:
        """Click Pause or Resume, if it is shown and enabled."""
        if not self.pause.isHidden() and self.pause.isEnabled():
            self.pause.click()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_lag()

    def _create(self) -> None:
        self._chooser = Chooser(name="Pattern of the load")
        self._menu = menu_of(self, [(f"{title}, {remark}", name) for name, (title, remark) in load_knobs.KINDS.items()])
        self._path = load_knobs.PathKnob()
        self._knobs: Mapping[str, load_knobs.Knob] = {
            "path": self._path,
            "rates_per_s": load_knobs.RatesKnob(),
            **{field: load_knobs.NumberKnob(field) for field in load_knobs.NUMBERS},
            "think": load_knobs.ThinkKnob(),
        }
        self._tokens = LengthControl("max_tokens", "tokens", 24, "Tokens a request asks for at most")
        self._words = LengthControl(
            "prompt_words", "words", 32, "Words that prompts are cut or continued to", is_optional=True
        )
        self.button = Button("Run load", "ph.play-fill", large=True)
        self.pause = Button("Pause", "ph.pause-fill", large=True)
        self._sent = ElidedLabel("", "caption")
        self._repeats = ElidedLabel("", "caption")
        self._repeats.set_tip(REPEATS_TIP)
        self._repeats.hide()
        self._lag = label("", "caption")
        self._lag.setToolTip(glossary.TERMS["own lag"])
        self._throttle = Throttle(self._send_if_running, self)

    def _set(self, kind: str, values: Mapping[str, object], max_tokens: Length, prompt_words: Length | None) -> None:
        self._kind = kind
        for field, value in values.items():
            self._knobs[field].set_value(value)
        self._tokens.set_length(max_tokens)
        self._words.set_length(prompt_words)
        self._show_kind()

    def _pick(self, picked: str | Scenario) -> None:
        if isinstance(picked, Scenario):
            self.take(picked)
            return
        self._kind = picked
        self._show_kind()
        self._send_if_running()

    def _on_value_wanted(self, _value: object, is_final: bool) -> None:
        self._show_kind()
        self._throttle.ask(is_final)

    def _send_if_running(self) -> None:
        is_asked_for_by_the_button_alone = self._kind == "burst" or self._lacks_trace
        if self._running is not None and not is_asked_for_by_the_button_alone:
            self._send()

    def _send(self) -> None:
        self.load_wanted.emit(self.pattern, self.max_tokens, self.prompt_words)

    @property
    def _lacks_trace(self) -> bool:
        return self._kind == "trace" and not self._path.value

    def _on_clicked(self) -> None:
        if self._running is not None:
            self.stop_wanted.emit()
            return
        if self._lacks_trace:
            self._path.choose(then=self._send)
        else:
            self._send()

    def _show_lag(self) -> None:
        """Show the generator's own lag, abbreviated where the counts leave no room."""
        if self._lag_p99_ms is None:
            self._lag.setText("")
            return
        number = f"{self._lag_p99_ms:.1f} ms" if self._lag_p99_ms < 10 else f"{self._lag_p99_ms:.0f} ms"
        room = self.width() - 2 * tokens.PANEL_PADDING - tokens.GAP_2 - self._sent.sizeHint().width()
        self._lag.setText(f"own lag p99 {number}")
        if self._lag.sizeHint().width() > room:
            self._lag.setText(f"lag {number}")

    def _show_kind(self) -> None:
        self._chooser.show_choice(*load_knobs.KINDS[self._kind])
        shown = load_knobs.CHOICES[self._kind]
        for field, knob in self._knobs.items():
            knob.setVisible(field in shown and (field != "think" or bool(self._knobs["think_s"].value)))

    def _show_buttons(self) -> None:
        runs = self._running is not None
        self.button.setText("Stop load" if runs else "Run load")
        self.button.set_icon("ph.stop-fill" if runs else "ph.play-fill")
        self.button.setEnabled(self._can_run)
        self.button.setToolTip(shortcuts.LOAD.tip("Stop the load" if runs else "Run the load"))
        self.pause.setVisible(runs and not isinstance(self._running, Burst))
        self.pause.setText("Resume" if self._is_paused else "Pause")
        self.pause.set_icon("ph.play-fill" if self._is_paused else "ph.pause-fill")
        self.pause.setEnabled(self._can_run)
        resume, pause = "Go on from where the load was paused", "Send no requests until the load is resumed"
        self.pause.setToolTip(shortcuts.PAUSE_LOAD.tip(resume if self._is_paused else pause))
