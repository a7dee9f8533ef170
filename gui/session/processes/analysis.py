"""Comparing, searching, holding and predicting as child processes, which send events and answers as lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from PySide6.QtCore import QObject, Signal

from gui.session.processes.child import ChildOwner, Ending
from service.analysis.compare.progress import CompareEvent, SweepTask
from service.analysis.compare.run_plan import ComparePlan
from service.analysis.goal.control import HoldEvent, HoldTask, SearchEvent, SearchTask
from service.analysis.predict.control import Ask, Observe, Predicted
from service.analysis.predict.observation import ENCODER, Observation
from service.messages.load import Pattern
from service.messages.options import Attachment
from service.messages.pipes import ExitCode, our_python
from service.messages.settings import Settings

COMPARE_GRACE_MS: Final = 10_000  # to break off what is under way, and to give the service its settings back
PREDICT_GRACE_MS: Final = 1_000
TASK_GRACE_MS: Final = 3_000
SERVICE: Final = our_python("service")
PREDICTOR: Final = (*SERVICE, "predict", "--control")


class TaskProcess(ChildOwner):
    """Owner of a process that carries out one task at a time and sends events; subclasses start it.

    Signals:
        event_received: one of the events.
        ended: empty, or a sentence about an unexpected end.
    """

    event_received = Signal(object)
    ended = Signal(str)
    name = "The process"

    def stop(self) -> None:
        """Let it give back what it holds, and end; `ended` follows."""
        self._child.end(by_end_of_file=True)

    def kill(self) -> None:
        self._child.kill()

    def finish(self) -> None:
        """Kill the process; it has ended when this returns."""
        self._child.finish()

    def _begin(self, command: Sequence[str], task: Any) -> None:
        self._child.start([*SERVICE, *command])
        self._child.write_line(ENCODER.encode(task))

    def _take(self, event: Any) -> None:
        self.event_received.emit(event)

    def _on_child_ended(self, ending: Ending) -> None:
        is_expected = ending.asked or ending.exit_code in (ExitCode.DONE, ExitCode.CANNOT, ExitCode.INTERRUPTED)
        self.ended.emit("" if is_expected else ending.sentence(self.name))


class CompareProcess(TaskProcess):
    """Measures; its events are `CompareEvent`s."""

    name = "The measuring process"

    def __init__(self, parent: QObject) -> None:
        super().__init__(CompareEvent, COMPARE_GRACE_MS, parent)

    def start(self, at: Attachment, task: ComparePlan | SweepTask) -> None:
        """Carry out `task` on the service there."""
        command = "compare" if isinstance(task, ComparePlan) else "sweep"
        self._begin((command, "--control", *at.address), task)


class SearchProcess(TaskProcess):
    """Searches settings that hold a goal; its events are `SearchEvent`s."""

    name = "The search"

    def __init__(self, parent: QObject) -> None:
        super().__init__(SearchEvent, TASK_GRACE_MS, parent)

    def start(self, task: SearchTask) -> None:
        self._begin(("goal", "--control"), task)


class HoldProcess(TaskProcess):
    """Holds objectives by moving settings; its events are `HoldEvent`s."""

    name = "Hold"

    def __init__(self, parent: QObject) -> None:
        super().__init__(HoldEvent, TASK_GRACE_MS, parent)

    def start(self, at: Attachment, task: HoldTask) -> None:
        self._begin(("hold", "--control", *at.address), task)


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
