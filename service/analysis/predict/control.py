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
from dataclasses import replace
from queue import SimpleQueue
from typing import BinaryIO, Final, TypeAlias

import msgspec

from service.analysis.predict.cost import prepare
from service.analysis.predict.observation import Observation, as_array
from service.analysis.predict.predict import Prediction, Predictor
from service.messages.load import Pattern
from service.messages.settings import Settings

NICENESS: Final = 5  # the service and the window have priority


class Observe(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="observe"):
    """An observation of the service."""

    observation: Observation


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="ask"):
    """A question: the prediction for these settings. The answer bears the same number.

    Attributes:
        pattern: of arrivals, instead of the present one.
    """

    number: int
    settings: Settings
    pattern: Pattern | None = None


class Predicted(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="predicted"):
    """The answer; ``None`` if the observation allows no prediction for these settings."""

    number: int
    prediction: Prediction | None


PredictCommand: TypeAlias = Observe | Ask


def read_commands(lines: BinaryIO, commands: SimpleQueue[PredictCommand | None]) -> None:
    """Put the command of each line into the queue, and ``None`` after the last."""
    decoder: msgspec.json.Decoder[PredictCommand] = msgspec.json.Decoder(PredictCommand, dec_hook=as_array)
    for line in lines:
        try:
            commands.put(decoder.decode(line))
        except (msgspec.MsgspecError, ValueError) as error:
            print(f"predict: a command was not understood: {error}", file=sys.stderr)
    commands.put(None)


def answer(commands: SimpleQueue[PredictCommand | None], out: BinaryIO) -> None:
    """Answer the latest question whenever no newer command has come, until the commands end."""
    observation: Observation | None = None
    predictor: Predictor | None = None
    question: Ask | None = None
    is_open = True
    while is_open:
        match commands.get():
            case Observe(observation=observation):
                predictor = None
            case Ask() as question:
                pass
            case None:
                is_open = False
        if question is not None and commands.empty():
            if predictor is None and observation is not None:
                predictor = Predictor.of(observation)
            prediction = None if predictor is None else _prediction(predictor, question)
            out.write(msgspec.json.encode(Predicted(number=question.number, prediction=prediction)) + b"\n")
            out.flush()
            question = None


def _prediction(predictor: Predictor, question: Ask) -> Prediction | None:
    load = predictor.load if question.pattern is None else predictor.load.of_pattern(question.pattern)
    return None if load is None else replace(predictor, load=load).predict(question.settings)


def main() -> int:
    """Run until standard input ends, which it does with the window."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    prepare()
    commands: SimpleQueue[PredictCommand | None] = SimpleQueue()
    threading.Thread(target=read_commands, args=(sys.stdin.buffer, commands), name="commands", daemon=True).start()
    answer(commands, sys.stdout.buffer)
    return 0
