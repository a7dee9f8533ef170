"""The load: its pattern, how much of it, and what it has come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from PySide6.QtCore import QPoint, QTimer, Signal
from PySide6.QtWidgets import QMenu, QSizePolicy, QWidget

from gui import tokens
from gui.panels import shortcuts
from gui.panels.section import SECTION_MARGINS, section_head
from gui.widgets.buttons import Button, Chooser
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import Item, column, row
from gui.widgets.scale import Scale
from gui.widgets.setting import Setting
from service.messages import Bounds, Burst, ClientTotals, ClosedLoop, Pattern, Poisson


class _Amount(NamedTuple):
    """What one pattern lets the user choose."""

    title: str
    remark: str
    name: str
    bounds: Bounds
    scale: Scale
    decimals: int
    unit: str
    usual: float
    tip: str
    pattern: Callable[[float], Pattern]
    number: Callable[[Pattern], float]


PATTERNS: Final[Mapping[str, _Amount]] = {
    "poisson": _Amount(
        "Poisson", "open loop", "rate",
        Bounds(0.1, 10_000, integral=False), Scale(0.1, 200, finest=0.1), 1, "req/s", 4.0,
        "Requests that arrive a second, whether or not earlier ones are answered",
        lambda number: Poisson(rate_per_s=number),
        lambda pattern: pattern.rate_per_s if isinstance(pattern, Poisson) else 0.0,
    ),
    "closed": _Amount(
        "Users", "closed loop", "users", Bounds(1, 4096, integral=True), Scale(1, 256, integral=True), 0, "", 16.0,
        "Users, each of whom sends the next request when the last is answered",
        lambda number: ClosedLoop(users=int(number)),
        lambda pattern: float(pattern.users) if isinstance(pattern, ClosedLoop) else 0.0,
    ),
    "burst": _Amount(
        "Burst", "all at once", "count", Bounds(1, 100_000, integral=True), Scale(1, 1024, integral=True), 0, "", 64.0,
        "Requests sent at once, then nothing",
        lambda number: Burst(count=int(number)),
        lambda pattern: float(pattern.count) if isinstance(pattern, Burst) else 0.0,
    ),
}  # fmt: skip
MAX_TOKENS: Final = Bounds(1, 8192, integral=True)
USUAL_TOKENS: Final = 24


class LoadPanel(QWidget):
    """Asks for a load, and again for every change of it while it runs."""

    load_wanted = Signal(object, int)  # Pattern, max_tokens
    stop_wanted = Signal()
    changed = Signal()  # pattern, amount or length, by the user, also while nothing runs

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._kind = "poisson"
        self._running: Pattern | None = None
        self._can_run = False
        self._why = ""
        self._create()
        self._lay_out()
        self._connect()
        self._show_kind()
        self._show_button()

    @property
    def pattern(self) -> Pattern:
        """What the controls say."""
        return PATTERNS[self._kind].pattern(self._amounts[self._kind].number)

    @property
    def max_tokens(self) -> int:
        return int(self._tokens.number)

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def amount(self, kind: str) -> Setting:
        return self._amounts[kind]

    def set_load(self, pattern: Pattern, max_tokens: int) -> None:
        """Show this load in the controls, silently."""
        self._kind = _kind_of(pattern)
        self._amounts[self._kind].set_number(PATTERNS[self._kind].number(pattern))
        self._tokens.set_number(float(max_tokens))
        self._show_kind()

    def set_can_run(self, can_run: bool, why: str = "") -> None:
        """`why` says what it waits for."""
        self._can_run = can_run
        if why or self._sent.text() == self._why:  # what the load came to stays
            self.set_note(why)
        self._why = why
        self._show_button()

    def set_note(self, text: str) -> None:
        """One line under the button instead of the counts."""
        self._sent.setText(text)
        self._lag.setText("")

    def show_running(self, pattern: Pattern | None) -> None:
        """What runs, as the load process tells."""
        self._running = pattern
        self._show_button()

    def show_totals(self, totals: ClientTotals, lag_p99_ms: float | None = None) -> None:
        losses = ((totals.dropped, "dropped"), (totals.refused, "refused"), (totals.failed, "failed"))
        parts = [f"{totals.sent} sent", *(f"{n} {what}" for n, what in losses if n)]
        if len(parts) == 1:
            parts.append("0 dropped")
        self._sent.setText(", ".join(parts))
        self._lag.setText("" if lag_p99_ms is None else f"own lag p99 {lag_p99_ms:.1f} ms")

    def toggle(self) -> None:
        """As if the button had been clicked."""
        if self.button.isEnabled():
            self.button.click()

    def set_compact(self, compact: bool) -> None:
        self._lag.setVisible(not compact)
        for setting in (*self._amounts.values(), self._tokens):
            setting.set_compact(compact)

    # Construction ----------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        self._chooser = Chooser()
        self._chooser.setAccessibleName("Pattern of the load")
        self._menu = QMenu(self)
        for kind, amount in PATTERNS.items():
            self._menu.addAction(f"{amount.title}, {amount.remark}").setData(kind)
        self._amounts = {kind: _amount_setting(amount) for kind, amount in PATTERNS.items()}
        tip = "Tokens a request asks for at most"
        self._tokens = Setting("max_tokens", MAX_TOKENS, unit="tokens", tip=tip)
        self._tokens.set_number(float(USUAL_TOKENS))
        self.button = Button("Run load", "ph.play-fill", large=True)
        self._sent = ElidedLabel("", "caption")
        self._lag = ElidedLabel("", "caption")
        self._lag.setToolTip("How late the load generator itself sent: if this grows, it is the limit, not the service")
        self._throttle = QTimer(self)
        self._throttle.setSingleShot(True)
        self._throttle.setInterval(tokens.SETTINGS_INTERVAL_MS)

    def _lay_out(self) -> None:
        below = row(self._sent, None, self._lag)
        actions = column(self.button, below, gap=tokens.GAP_2)
        head = column(section_head("Load"), self._chooser, gap=tokens.GAP_HEAD)
        parts: list[Item] = [head, *self._amounts.values(), self._tokens, actions]
        self.setLayout(column(*parts, gap=tokens.GAP_3, margins=SECTION_MARGINS))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)

    def _connect(self) -> None:
        self._chooser.clicked.connect(self._pop_up)
        self._menu.triggered.connect(lambda action: self._pick(action.data()))
        for setting in (*self._amounts.values(), self._tokens):
            setting.wanted.connect(self._on_amount_wanted)
        self.button.clicked.connect(self._on_clicked)
        self._throttle.timeout.connect(self._send_if_running)

    # Slots -----------------------------------------------------------------------------------------------------------

    def _pop_up(self) -> None:
        self._menu.popup(self._chooser.mapToGlobal(QPoint(0, self._chooser.height() + tokens.GAP_1)))

    def _pick(self, kind: str) -> None:
        self._kind = kind
        self._show_kind()
        self.changed.emit()
        if kind != "burst":  # a burst is fired by the button alone
            self._send_if_running()

    def _on_amount_wanted(self, _number: float, is_final: bool) -> None:
        if is_final:
            self._throttle.stop()
            self._send_if_running()
            self.changed.emit()
        elif not self._throttle.isActive():
            self._throttle.start()

    def _send_if_running(self) -> None:
        if self._running is not None and self._kind != "burst":
            self.load_wanted.emit(self.pattern, self.max_tokens)

    def _on_clicked(self) -> None:
        if self._running is None:
            self.load_wanted.emit(self.pattern, self.max_tokens)
        else:
            self.stop_wanted.emit()

    def _show_kind(self) -> None:
        amount = PATTERNS[self._kind]
        self._chooser.show_choice(amount.title, amount.remark)
        for kind, setting in self._amounts.items():
            setting.setVisible(kind == self._kind)

    def _show_button(self) -> None:
        runs = self._running is not None
        self.button.setText("Stop load" if runs else "Run load")
        self.button.set_icon("ph.stop-fill" if runs else "ph.play-fill")
        self.button.setEnabled(self._can_run)
        self.button.setToolTip(shortcuts.tip("Stop the load" if runs else "Run the load", shortcuts.LOAD))


def _amount_setting(amount: _Amount) -> Setting:
    setting = Setting(amount.name, amount.bounds, amount.scale, amount.decimals, amount.unit, amount.tip)
    setting.set_number(amount.usual)
    return setting


def _kind_of(pattern: Pattern) -> str:
    match pattern:
        case Poisson():
            return "poisson"
        case ClosedLoop():
            return "closed"
        case Burst():
            return "burst"
