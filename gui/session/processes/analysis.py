"""Comparing, sweeping and predicting as child processes, which send events and answers as lines."""

from __future__ import annotations

from typing import Final

import msgspec
from PySide6.QtCore import QObject, Signal

from gui.session.processes.child import ChildOwner, Ending
from service.analysis.compare.progress import CompareEvent, SweepTask
from service.analysis.compare.run_plan import ComparePlan
from service.analysis.predict.control import Ask, Observe, Predicted
from service.analysis.predict.observation import ENCODER, Observation
from service.messages.load import Pattern
from service.messages.pipes import ExitCode, our_python
from service.messages.settings import Settings

COMPARE_GRACE_MS: Final = 10_000  # to break off what is under way, and to give the service its settings back
PREDICT_GRACE_MS: Final = 1_000
SERVICE: Final = our_python("service")
PREDICTOR: Final = (*SERVICE, "predict", "--control")


class CompareProcess(ChildOwner):
    """Owner of the process that measures; one at a time."""

    event_received = Signal(object)  # a `CompareEvent`
    ended = Signal(str)  # empty, or a sentence about an unexpected end

    def __init__(self, parent: QObject) -> None:
        super().__init__(CompareEvent, COMPARE_GRACE_MS, parent)

    def start(self, url: str, task: ComparePlan | SweepTask) -> None:
        """Carry out `task` on the service at `url`."""
        command = "compare" if isinstance(task, ComparePlan) else "sweep"
        self._child.start([*SERVICE, command, "--control", "--url", url])
        self._child.write_line(msgspec.json.encode(task))

    def stop(self) -> None:
        """Cancel the measurement; `ended` follows."""
        self._child.end(by_end_of_file=True)

    def kill(self) -> None:
        self._child.kill()

    def _take(self, event: CompareEvent) -> None:
        self.event_received.emit(event)

    def _on_child_ended(self, ending: Ending) -> None:
        is_expected = ending.asked or ending.exit_code in (ExitCode.DONE, ExitCode.CANNOT, ExitCode.INTERRUPTED)
        self.ended.emit("" if is_expected else ending.sentence("The measuring process"))


class PredictProcess(ChildOwner):
    """Owner of the predictor's process; after an unexpected end, which is logged, the next observation starts it."""

    predicted = Signal(object)  # a `Prediction` for the last settings asked about; None if the observation allows none

    def __init__(self, parent: QObject) -> None:
        super().__init__(Predicted, PREDICT_GRACE_MS, parent)
        self._number = 0

    def start(self) -> None:
        """Start the process, unless it runs."""
        if not self._child.is_running:
            self._child.start(PREDICTOR)

    def observe(self, observation: Observation) -> None:
        """Send the observation that later questions are about."""
        self.start()
        self._child.write_line(ENCODER.encode(Observe(observation=observation)))

    def ask(self, settings: Settings, pattern: Pattern | None = None) -> None:
        """Ask for the prediction of `settings` under the present load, or where requests come as `pattern` says.

        Answers to earlier questions are dropped.
        """
        self._number += 1
        self._child.write_line(ENCODER.encode(Ask(number=self._number, settings=settings, pattern=pattern)))

    def forget(self) -> None:
        """Drop the answer to the last question."""
        self._number += 1

    def finish(self) -> None:
        """Kill the process; it has ended when this returns."""
        self._child.finish()

    def _take(self, answer: Predicted) -> None:
        if answer.number == self._number:
            self.predicted.emit(answer.prediction)

    def _on_child_ended(self, ending: Ending) -> None:
        if not ending.asked:
            self.logged.emit(ending.sentence("The predictor"))
