"""The prediction as a process of its own: observations and questions come in as lines, answers go out.

    in   {"do": "observe", "observation": {…}}              which all further questions are about
    in   {"do": "ask", "number": 7, "settings": {…}}
    out  {"event": "predicted", "number": 7, "prediction": {…}}

Of the questions that come while one is answered only the latest is answered, since a dragged slider asks many.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec

from service.analysis.predict.observation import Observation, as_array
from service.analysis.predict.predict import Prediction, Predictor
from service.messages.settings import Settings

NICENESS: Final = 5  # the service and the window have priority


class Observe(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="observe"):
    """An observation of the service."""

    observation: Observation


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="ask"):
    """A question: the prediction for these settings. The answer bears the same number."""

    number: int
    settings: Settings


class Predicted(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="predicted"):
    """The answer; ``None`` if the observation allows no prediction for these settings."""

    number: int
    prediction: Prediction | None


PredictCommand: TypeAlias = Observe | Ask


class Inbox:
    """The latest of each kind of command, filled by a thread that reads lines."""

    def __init__(self, lines: BinaryIO) -> None:
        self._lines = lines
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(PredictCommand, dec_hook=as_array)
        self._news = threading.Condition()
        self._observation: Observation | None = None
        self._question: Ask | None = None
        self._has_ended = False

    def start(self) -> None:
        threading.Thread(target=self.read, name="commands", daemon=True).start()

    def read(self) -> None:
        for line in self._lines:
            self._take(line)
        with self._news:
            self._has_ended = True
            self._news.notify()

    def next(self) -> tuple[Ask, Observation | None] | None:
        """Wait for the next question and return it with its observation; ``None`` after the last."""
        with self._news:
            self._news.wait_for(lambda: self._question is not None or self._has_ended)
            question, self._question = self._question, None
            return None if question is None else (question, self._observation)

    def _take(self, line: bytes) -> None:
        try:
            command = self._decoder.decode(line)
        except (msgspec.MsgspecError, ValueError) as error:
            print(f"predict: a command was not understood: {error}", file=sys.stderr)
            return
        with self._news:
            if isinstance(command, Observe):
                self._observation = command.observation
            else:
                self._question = command
            self._news.notify()


def answer(inbox: Inbox, out: BinaryIO) -> None:
    """Answer until the questions end."""
    about: Observation | None = None
    predictor: Predictor | None = None
    while (asked := inbox.next()) is not None:
        question, observation = asked
        if observation is not about:
            about = observation
            predictor = None if observation is None else Predictor.of(observation)
        prediction = predictor.predict(question.settings) if predictor is not None else None
        out.write(msgspec.json.encode(Predicted(number=question.number, prediction=prediction)) + b"\n")
        out.flush()


def main() -> int:
    """Run until standard input ends, which it does with the window."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    import_module("scipy.optimize")  # slow, so it is done before the first question
    inbox = Inbox(sys.stdin.buffer)
    inbox.start()
    answer(inbox, sys.stdout.buffer)
    return 0
