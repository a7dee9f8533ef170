"""Shows predictions for the settings of a slider that is dragged, and keeps them beside the measured figures.

During a drag the service follows, so measurements belong to no single setting: the predictor uses the observation from
the drag's start. A prediction is shown until settings, load, replicas or the engine's speed change again. One that was
shown when its settings came in force is scored, and the score stands above the plots. Where it shows a way, as that of
a backlog which is worked off, it is made anew from the present every few seconds; the first one is scored.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from PySide6.QtCore import QObject, Signal

from gui.main_window import MainWindow
from gui.panels.views import LIVE
from gui.plots.plot_stack import PlotStack
from gui.series.prediction import NO_GHOST, ghost_levels
from gui.session.lifecycle import LifeCycle
from gui.session.processes.analysis import PredictProcess
from gui.session.session import Session
from service.analysis.observed.annotations import OuterMark
from service.analysis.observed.scores import NO_SCORES, PredictionScores
from service.analysis.predict.observation import Observation
from service.analysis.predict.predict import Prediction
from service.analysis.predict.score import Scores
from service.analysis.predict.speed import Withheld
from service.messages.load import LoadFrame
from service.messages.settings import Settings, VersionedSettings

ANEW_S: Final = 5.0
"""Between two predictions of one way; each takes about 0.3 s of a processor, which the model may need."""
MOST_KNOWN: Final = 100
"""Changes of the scores, more than usually come in the ten minutes that can be saved."""


class Foresight(QObject):
    """Asks the predictor about the settings of the controls, and shows its answer in figures and plots.

    Attributes:
        predictor: its process runs from the first load on.
        scores: of the predictions that were shown for a change which was then made.
        known: what was known of them, with each change, the latest last.
    """

    scored = Signal(object)  # the `PredictionScores` from now on

    def __init__(self, window: MainWindow, plots: PlotStack, session: Session) -> None:
        super().__init__(window)
        self._window = window
        self._plots = plots
        self._history = session.history
        self._session = session
        self.predictor = PredictProcess(self)
        self._is_dragging = False
        self._is_loaded = False
        self._withheld: Withheld | None = None
        self._asked: Settings | None = None
        self._mark: OuterMark | None = None
        self._observed_s = 0.0
        self._version: int | None = None  # under which what was asked came in force
        self._made: Prediction | None = None
        self._made_at_s = 0.0  # when it was observed what this rests on; `_observed_s` is the newest observation's
        self._shown: Prediction | None = None  # and not yet waited for
        self._is_anew = False  # of what was asked last
        self.scores = Scores()
        self.known: deque[PredictionScores] = deque([NO_SCORES], maxlen=MOST_KNOWN)
        window.batching.considered.connect(self._on_considered)
        session.settings_applied.connect(self._on_settings_applied)
        session.load_changed.connect(self._on_load_changed)
        session.life_cycle_changed.connect(self._on_life_cycle_changed)
        self.predictor.predicted.connect(self._show)
        self.predictor.logged.connect(session.logged)

    def check(self) -> None:
        """Drop a prediction that was made for another load or for other replicas."""
        if self._asked is not None and self._last_mark() != self._mark:
            self.clear()

    def follow(self) -> None:
        """Score what was predicted, and withdraw it while the engine is not as it was observed; once a second."""
        if self._asked is None and self._withheld is None and not self.scores.is_waiting:
            return
        withheld = Withheld.at(self._history)
        self.scores.follow(self._history, is_steady=withheld is None)
        if withheld != self._withheld:
            self._withdraw(withheld)
        elif self._made is not None:
            self._make_anew()
            self._show_made()
        self.describe()

    def clear(self) -> None:
        self._withdraw(None)

    def _on_considered(self, settings: Settings, is_final: bool) -> None:
        begins, self._is_dragging = not self._is_dragging, not is_final
        if self._session.state is not LifeCycle.RUNNING:
            return
        if begins and not self._observe():
            return
        if begins or self._asked is not None:
            self._asked, self._version, self._shown = settings, None, None
            self.scores.drop()
            self._is_anew = False
            self.predictor.ask(settings)

    def _observe(self) -> bool:
        """Send the present observation to the predictor; returns whether a prediction can rest on it."""
        observation, withheld = Observation.of_history(self._history), Withheld.at(self._history)
        if observation is None or withheld is not None:
            self._withdraw(withheld)
            return False
        self._withheld = None
        self._mark = self._last_mark()
        self._send(observation)
        return True

    def _send(self, observation: Observation) -> None:
        self._observed_s = self._history.now_s()
        self.predictor.observe(observation)

    def _make_anew(self) -> None:
        """Let a way that is in force begin at the present again: what came since is measured."""
        is_due = self._history.now_s() - self._observed_s >= ANEW_S and not self._is_dragging
        if not (is_due and self._version is not None and self._made is not None and self._made.is_moving):
            return
        observation = Observation.of_history(self._history)
        if observation is not None:
            self._is_anew = True
            self._send(observation)
            self.predictor.ask(self._made.settings)

    def _withdraw(self, withheld: Withheld | None) -> None:
        """Show no prediction, and the reason where that is not just for lack of data."""
        self._asked = self._version = None
        self._withheld = withheld
        self.scores.drop()
        self.predictor.forget()
        self._show(None)

    def _show(self, prediction: Prediction | None) -> None:
        self._made = prediction
        self._made_at_s = self._observed_s
        if not self._is_anew:
            self._shown = prediction
            self._expect()
        self.describe()
        self._show_made()

    def _show_made(self) -> None:
        """Show what was predicted with the time that is left of it, and no longer than its horizon."""
        passed_s = self._history.now_s() - self._made_at_s
        prediction = None if self._made is None else self._made.after(passed_s)
        self._window.figures.show_prediction(prediction, "" if self._withheld is None else self._withheld.sentence)
        self._plots.set_ghost(NO_GHOST if prediction is None else ghost_levels(prediction), self._made_at_s)

    def _on_settings_applied(self, in_force: VersionedSettings, _after_ms: float | None) -> None:
        if in_force.settings == self._asked:
            self._version = in_force.version
            self._expect()
        elif self._version is not None and in_force.version > self._version:
            self.clear()

    def _expect(self) -> None:
        """Wait for the outcome of a prediction that is seen and in force; while a slider is held there is none."""
        if self._shown is not None and self._version is not None and not self._is_dragging:
            self.scores.expect(self._shown, self._version, self._history)
            self._shown = None

    def describe(self) -> None:
        """Say above the plots why there is no prediction, or how good the last ones were."""
        scores = self._known_now()
        if self._withheld is not None:
            self._window.views.describe(LIVE, self._withheld.sentence, brief=self._withheld.brief)
        else:
            self._window.views.describe(LIVE, scores.words, brief=scores.brief, tip=scores.details)

    def _known_now(self) -> PredictionScores:
        """What is known of the last predictions; emits `scored` where that has changed."""
        before, now = self.known[-1], self.scores.known_at(self._history.now_s())
        if (now.predictions, now.unscored) == (before.predictions, before.unscored):
            return before
        self.known.append(now)
        self.scored.emit(now)
        return now

    def _on_load_changed(self, frame: LoadFrame) -> None:
        begins, self._is_loaded = not self._is_loaded and frame.pattern is not None, frame.pattern is not None
        if begins:  # once a load, so that a predictor that can't run is not started again and again
            self.predictor.start()

    def _on_life_cycle_changed(self, state: LifeCycle) -> None:
        if state is not LifeCycle.RUNNING:
            self.clear()

    def _last_mark(self) -> OuterMark | None:
        return next(reversed(self._history.outer_marks()), None)
