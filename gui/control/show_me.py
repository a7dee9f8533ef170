"""Show me: a minute on the engine that runs, requests one by one and then in batches, and what that came to.

::

    measuring ──▶ growing ──▶ draining ──▶ steady ──▶ over
    cap 1,        cap 1,      the cap of   the same   load ended, the settings
    two users     more comes  before, or   load       of before in force
    a replica     than leaves 16

The load, the settings and the figures are those of the window; whatever the user does to them ends it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeAlias

from PySide6.QtCore import QObject

from gui.control.choices import Choices
from gui.control.load_defaults import SHARE, KnownCapacity, LoadDefaults
from gui.control.presenter import Presenter
from gui.main_window import MainWindow
from gui.session.lifecycle import LifeCycle
from gui.session.session import Session
from service.analysis.findings.verdict import Verdict
from service.analysis.observed.register import Figures, numbers
from service.messages.load import ClosedLoop, Pattern, Poisson
from service.messages.settings import Settings
from service.messages.text import counted, significant

Scene: TypeAlias = Literal["measuring", "growing", "draining", "steady"]

USUAL_CAP: Final = 16
LEAST_CAP: Final = 4  # of the user's, below which batches would show little
USERS_A_REPLICA: Final = 2  # so that a request always waits
MOUNTAIN: Final = 0.4  # of the queue, which is to grow, not to overflow, and to be worked off again
LEAST_GROWTH: Final = 1.0  # times what is answered one by one
LITTLE: Final = 1.2  # times as many tokens, below which batching gains little
BEYOND: Final = 1.2  # times the mean batch; no batch takes less time than one of its requests alone
LONGEST: Final = 2  # times as long as all scenes together, after which an engine that answers nothing is given up
MEASURING: Final = Verdict("unjudged", "In batches of 1: measuring what is answered a second")
TOO_LITTLE: Final = Verdict("unjudged", "Too little was answered to say what batches give")


class Times(NamedTuple):
    """How long the scenes last, in seconds: at least the first, at most the others."""

    measuring: float = 6.0
    growing: float = 20.0
    draining: float = 28.0
    steady: float = 6.0


class ShowMe(QObject):
    """Plays it, and says what is seen in the line above the plots.

    Attributes:
        times: of its scenes.
        cap: of the batches that it ends with.
    """

    def __init__(
        self, window: MainWindow, session: Session, choices: Choices, defaults: LoadDefaults, presenter: Presenter
    ) -> None:
        super().__init__(window)
        self.times = Times()
        self.cap = USUAL_CAP
        self._window, self._session, self._choices = window, session, choices
        self._defaults, self._presenter = defaults, presenter
        self._scene: Scene | None = None
        self._begun_s = self._since_s = 0.0
        self._before = Settings()
        self._chosen = window.load.chosen  # the user's load
        self._capacity: KnownCapacity | None = None  # of the batches that it ends with
        self._result = TOO_LITTLE
        window.show_me_wanted.connect(self.toggle)
        window.player.end_button.clicked.connect(self.end)
        window.batching.considered.connect(self._on_considered)
        presenter.numbers_shown.connect(self.follow)
        for of_user in (window.load.stop_wanted, window.load.pause_wanted, window.prompts.fire_wanted):
            of_user.connect(self._leave)
        window.load.load_wanted.connect(lambda *_load: self._leave(stops_load=False))
        session.life_cycle_changed.connect(lambda _state: self._leave())

    @property
    def is_playing(self) -> bool:
        return self._scene is not None

    def toggle(self) -> None:
        """Begin it, or end it."""
        history = self._session.history
        if self.is_playing:
            self.end()
        elif self._session.state is LifeCycle.RUNNING and not (history.fixed or history.closed):
            self._begin()

    def end(self) -> None:
        """End the load, and put settings and load of before in their places again."""
        if self.is_playing:
            self._leave()

    def _put_back(self, is_cap_ours: bool = True) -> None:
        self._scene = None
        if is_cap_ours:
            self._session.change_settings({"max_batch_size": self._before.max_batch_size})
        self._show()

    def follow(self) -> None:
        """Look whether the next scene begins; four times a second."""
        if self._scene is None:
            return
        shown, history = self._presenter.present, self._session.history
        regime = history.batches.regime_at(history.now_s())
        wanted = 1 if self._scene in ("measuring", "growing") else self.cap
        if regime is None or regime.settings is None or regime.settings.max_batch_size != wanted:
            self._since_s = time.monotonic()  # it begins with the first batch of its settings
            shown = replace(shown, requests_per_s=None, tokens_per_s=None)
        elif self._is_over(self._scene, shown):
            self._go_on(self._scene, shown)
        if self._scene is not None:
            self._presenter.announce(self._said(self._scene, shown))
        self._show()
        if self.is_playing and time.monotonic() - self._begun_s > LONGEST * sum(self.times):
            self._leave(says=TOO_LITTLE)

    def _begin(self) -> None:
        self._before, self._chosen = self._window.batching.settings, self._window.load.chosen
        most = self._before.max_batch_size
        self.cap = most if most >= LEAST_CAP else USUAL_CAP
        self._capacity = self._defaults.capacity(self.cap, self._replicas) if self.cap == most else None
        self._begun_s = time.monotonic()
        self._enter("measuring", cap=1)
        self._run(ClosedLoop(users=USERS_A_REPLICA * self._replicas))
        self._show()

    def _leave(self, *_of_signal: object, stops_load: bool = True, says: Verdict | None = None) -> None:
        """It is over, the user has taken over, or the service has ended; what was said is of the past."""
        if self.is_playing:
            if stops_load:
                self._end_load()
            self._window.batching.show_settings(self._before)
            self._put_back()
        self._presenter.announce(says)

    def _on_considered(self, settings: Settings, _is_final: bool) -> None:
        """The user changes settings: the cap of before comes back, unless it is the one that changes."""
        if self.is_playing:
            in_force = self._session.history.in_force
            self._end_load()
            self._put_back(in_force is not None and settings.max_batch_size == in_force.settings.max_batch_size)
        self._presenter.announce(None)

    def _enter(self, scene: Scene, cap: int) -> None:
        self._scene, self._since_s = scene, time.monotonic()
        self._session.change_settings({"max_batch_size": cap})

    def _run(self, pattern: Pattern) -> None:
        self._window.load.set_load(pattern, *self._window.load.lengths)
        self._session.run_load(self._choices.load)

    def _end_load(self) -> None:
        if self._session.state is LifeCycle.RUNNING:
            self._session.stop_load()
        self._window.load.show_chosen(self._chosen)

    def _is_over(self, scene: Scene, shown: Figures) -> bool:
        lasted_s, queue = time.monotonic() - self._since_s, shown.queue or 0
        match scene:
            case "measuring":
                return lasted_s >= self.times.measuring and bool(shown.requests_per_s)
            case "growing":
                return lasted_s >= self.times.growing or queue >= self._highest
            case "draining":
                is_drained = queue <= self.cap * self._replicas and bool(shown.tokens_per_s)
                return lasted_s >= self.times.draining or is_drained
            case "steady":
                return lasted_s >= self.times.steady

    def _go_on(self, scene: Scene, shown: Figures) -> None:
        match scene:
            case "measuring":
                self._enter("growing", cap=1)
                self._run(Poisson(rate_per_s=self._rate_per_s(shown.requests_per_s or 0.0)))
            case "growing":
                self._enter("draining", cap=self.cap)
            case "draining":
                self._result = said_of(shown, self._session.history.unit)
                self._enter("steady", cap=self.cap)
            case "steady":
                self._leave(says=self._result)

    def _rate_per_s(self, single_per_s: float) -> float:
        """More than is answered one by one, less than batches answer, and so that the queue takes it."""
        most = self._highest / self.times.growing
        if self._capacity is not None:
            most = min(most, SHARE * self._capacity.per_s - single_per_s)
        return significant(single_per_s + max(most, LEAST_GROWTH * single_per_s))

    def _said(self, scene: Scene, shown: Figures) -> Verdict:
        written = numbers(shown)
        match scene:
            case "measuring" | "growing" if not shown.requests_per_s:
                return MEASURING
            case "measuring":
                return Verdict(
                    "unjudged", "In batches of 1: ", written["requests_per_s"], " requests are answered a second"
                )
            case "growing":
                answered = f"{written['requests_per_s']} are answered a second, "
                waits = f"; {written['queue']} wait"
                return Verdict("growing", answered, written["offered_per_s"], " come", waits)
            case "draining":
                waits = counted(int(shown.queue or 0), "request")
                return Verdict("working off", f"In batches of up to {self.cap}: ", waits, " wait")
            case "steady":
                return self._result

    @property
    def _replicas(self) -> int:
        return max(len(self._session.history.replicas), 1)

    @property
    def _highest(self) -> float:
        """Requests that may wait."""
        return MOUNTAIN * self._before.max_queued_requests * self._replicas

    def _show(self) -> None:
        player, most_s = self._window.player, sum(self.times)
        player.setVisible(self.is_playing)
        player.show_time(time.monotonic() - self._begun_s, most_s)


def said_of(batches: Figures, unit: str) -> Verdict:
    """What batches gave beside requests one by one, by the figures of the row at the end.

    More than batches can give is due to the machine, too, as where other work slowed it before.
    """
    times = batches.speedup_over_batch_1
    if not times or not batches.tokens_per_s:
        return TOO_LITTLE
    many = numbers(batches)
    rest = f" as many {unit} a second in batches of {many['mean_batch']}"
    second = f" as one by one: {many['tokens_per_s']}"
    if times < LITTLE:
        return Verdict("well", "Batches give little here: ", f"{times:.1f} times", rest, second)
    if batches.mean_batch is not None and times > BEYOND * batches.mean_batch:
        return Verdict("unjudged", "", f"{times:.1f} times", rest, ": the machine's speed changed too")
    return Verdict("well", "", f"{times:.1f} times", rest, second)
