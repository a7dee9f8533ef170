"""Shows predictions for the settings of a slider that is dragged, and keeps them beside the measured figures.

During a drag the service follows, so measurements belong to no single setting: the predictor uses the observation from
the drag's start. A prediction is shown until settings, load, replicas or the engine's speed change again. One that was
shown when its settings came in force is scored, and the score stands above the plots.
"""

from __future__ import annotations

from PySide6.QtCore import QObject

from gui.main_window import MainWindow
from gui.panels.views import LIVE
from gui.plots.plot_stack import PlotStack
from gui.series.prediction import NO_GHOST, ghost_levels
from gui.session.lifecycle import LifeCycle
from gui.session.processes.analysis import PredictProcess
from gui.session.session import Session
from service.analysis.observed.annotations import OuterMark
from service.analysis.predict.observation import Observation, withheld
from service.analysis.predict.predict import Prediction
from service.analysis.predict.score import Scores
from service.analysis.predict.speed import SpeedChange
from service.messages.load import LoadFrame
from service.messages.settings import Settings, VersionedSettings


class Foresight(QObject):
    """Asks the predictor about the settings of the controls, and shows its answer in figures and plots.

    Attributes:
        predictor: its process runs from the first load on.
    """

    def __init__(self, window: MainWindow, plots: PlotStack, session: Session) -> None:
        super().__init__(window)
        self._window = window
        self._plots = plots
        self._history = session.history
        self._session = session
        self.predictor = PredictProcess(self)
        self._is_dragging = False
        self._is_loaded = False
        self._withheld = ""
        self._asked: Settings | None = None
        self._mark: OuterMark | None = None
        self._observed_s = 0.0
        self._version: int | None = None  # under which what was asked came in force
        self._shown: Prediction | None = None  # and not yet waited for
        self._scores = Scores()
        self._change: SpeedChange | None = None  # for which no prediction is made
        window.batching.considered.connect(self._on_considered)
        session.settings_applied.connect(self._on_settings_applied)
        session.load_changed.connect(self._on_load_changed)
        session.life_cycle_changed.connect(self._on_life_cycle_changed)
        self.predictor.predicted.connect(self._show)
        self.predictor.logged.connect(session.logged)

    def check(self) -> None:
        """Drop a prediction that was made for another load or for other replicas, and the reason for none once past."""
        is_outdated = self._asked is not None and self._last_mark() != self._mark
        if is_outdated or (self._withheld and not withheld(self._history)):
            self.clear()

    def follow(self) -> None:
        """Score what was predicted, and withdraw it when the engine has become slower or faster; once a second."""
        if self._asked is None and self._change is None and not self._scores.is_waiting:
            return
        change = SpeedChange.of_history(self._history)
        self._scores.follow(self._history, change)
        if self._asked is not None and change is not None:
            self._withdraw(change)
        elif self._change is not None:
            self._change = change
        self._describe()

    def clear(self) -> None:
        self._withheld = ""
        self._withdraw(None)

    def _on_considered(self, settings: Settings, is_final: bool) -> None:
        begins, self._is_dragging = not self._is_dragging, not is_final
        if self._session.state is not LifeCycle.RUNNING:
            return
        if begins and not self._observe():
            self._say_why()
            return
        if begins or self._asked is not None:
            self._asked, self._version, self._shown = settings, None, None
            self._scores.drop()
            self.predictor.ask(settings)

    def _observe(self) -> bool:
        """Send the present observation to the predictor; returns whether a prediction can rest on it."""
        observation = Observation.of_history(self._history)
        change = None if observation is None else SpeedChange.of_batches(observation.executed)
        if observation is None or change is not None:
            self._withdraw(change)
            return False
        self._change = None
        self._mark, self._observed_s = self._last_mark(), self._history.now_s()
        self.predictor.observe(observation)
        return True

    def _withdraw(self, change: SpeedChange | None) -> None:
        """Show no prediction, and that the engine's speed has changed if that is why."""
        self._asked = self._version = None
        self._change = change
        self._scores.drop()
        self.predictor.forget()
        self._show(None)

    def _say_why(self) -> None:
        """Say why there is no prediction, where that is not just for lack of data."""
        self._withheld = withheld(self._history)
        if self._withheld:
            self._window.figures.show_withheld(self._withheld)
            self._window.status.say(self._withheld)

    def _show(self, prediction: Prediction | None) -> None:
        self._shown = prediction
        self._expect()
        self._describe()
        self._window.figures.show_prediction(prediction)
        self._plots.set_ghost(NO_GHOST if prediction is None else ghost_levels(prediction), self._observed_s)

    def _on_settings_applied(self, in_force: VersionedSettings, _after_ms: float | None) -> None:
        if in_force.settings == self._asked:
            self._version = in_force.version
            self._expect()
        elif self._version is not None and in_force.version > self._version:
            self.clear()

    def _expect(self) -> None:
        """Wait for the outcome of a prediction that is seen and in force; while a slider is held there is none."""
        if self._shown is not None and self._version is not None and not self._is_dragging:
            self._scores.expect(self._shown, self._version, self._history)
            self._shown = None

    def _describe(self) -> None:
        """Say above the plots why there is no prediction, or how good the last ones were."""
        if self._change is not None:
            self._window.views.describe(LIVE, self._change.sentence, brief=self._change.brief)
        else:
            scores = self._scores
            self._window.views.describe(LIVE, scores.words, brief=scores.brief, tip=scores.details)

    def _on_load_changed(self, frame: LoadFrame) -> None:
        begins, self._is_loaded = not self._is_loaded and frame.pattern is not None, frame.pattern is not None
        if begins:  # once a load, so that a predictor that can't run is not started again and again
            self.predictor.start()

    def _on_life_cycle_changed(self, state: LifeCycle) -> None:
        if state is not LifeCycle.RUNNING:
            self.clear()

    def _last_mark(self) -> OuterMark | None:
        return next(reversed(self._history.outer_marks()), None)
