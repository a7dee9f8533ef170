"""The simulation as a child process: what was observed and questions in, predictions out."""

from __future__ import annotations

import sys
from typing import Final

from PySide6.QtCore import QObject, Signal

from gui.session.processes.child import Ending
from gui.session.processes.owner import ChildOwner
from service.analysis.predict.control import Ask, Observe, Predicted
from service.analysis.predict.observation import ENCODER, Observation
from service.messages.settings import Settings

GRACE_MS: Final = 1_000
PREDICTOR: Final = (sys.executable, "-m", "service", "predict", "--control")


class PredictProcess(ChildOwner):
    """Owner of the predictor's process.

    Signals:
        predicted: a `Prediction` for the settings asked for last, or ``None`` if nothing observed tells of them.
        logged: also how it died; it is started anew for the next question.
    """

    predicted = Signal(object)

    def __init__(self, program: tuple[str, ...] = PREDICTOR, parent: QObject | None = None) -> None:
        super().__init__(Predicted, GRACE_MS, parent)
        self._program = program
        self._number = 0

    def start(self) -> None:
        """Have it ready for a question to come; nothing happens where it runs."""
        if not self._child.is_running:
            self._child.start(self._program)

    def observe(self, observation: Observation) -> None:
        """What the questions from now on are about."""
        self.start()
        self._child.write_line(ENCODER.encode(Observe(observation=observation)))

    def ask(self, settings: Settings) -> None:
        """What would they give? Answers to earlier questions are no longer told."""
        self._number += 1
        self._child.write_line(ENCODER.encode(Ask(number=self._number, settings=settings)))

    def forget(self) -> None:
        """Nobody waits for an answer any more."""
        self._number += 1

    def finish(self) -> None:
        """End it now; it is gone when this returns."""
        self._child.finish()

    def _take(self, answer: Predicted) -> None:
        if answer.number == self._number:
            self.predicted.emit(answer.prediction)

    def _on_child_ended(self, ending: Ending) -> None:
        if not ending.asked:
            self.logged.emit(ending.sentence("The predictor"))
