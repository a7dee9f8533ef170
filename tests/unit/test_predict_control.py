"""The predictor's process: lines in, lines out, and only the last of many questions."""

from __future__ import annotations

import io
import subprocess
import sys
from queue import SimpleQueue

import msgspec

from service.analysis.predict.control import Ask, Observe, PredictCommand, Predicted, answer, read_commands
from service.analysis.predict.observation import ENCODER, Observation
from service.messages.settings import Settings
from tests.unit.test_predict import OBSERVED, observed, predicted


def line(command: Observe | Ask) -> bytes:
    return ENCODER.encode(command) + b"\n"


def observation() -> Observation:
    result = Observation.of_history(observed(), over_s=60.0)
    assert result is not None
    return result


def answers_to(*lines: bytes) -> list[Predicted]:
    commands, out = SimpleQueue[PredictCommand | None](), io.BytesIO()
    read_commands(io.BytesIO(b"".join(lines)), commands)
    answer(commands, out)
    return [msgspec.json.decode(each, type=Predicted) for each in out.getvalue().splitlines()]


def test_that_an_observation_says_the_same_after_its_journey() -> None:
    (answered,) = answers_to(line(Observe(observation=observation())), line(Ask(number=3, settings=OBSERVED)))
    assert answered.number == 3
    assert answered.prediction == predicted(OBSERVED)


def test_that_only_the_last_of_many_questions_is_answered() -> None:
    questions = [line(Ask(number=number, settings=OBSERVED)) for number in range(5)]
    assert [answered.number for answered in answers_to(line(Observe(observation=observation())), *questions)] == [4]


def test_that_a_question_about_nothing_is_answered_with_nothing() -> None:
    (answered,) = answers_to(line(Ask(number=1, settings=Settings())))
    assert answered.prediction is None


def test_that_a_line_that_is_no_command_is_told_and_passed_over() -> None:
    assert [answered.number for answered in answers_to(b"nonsense\n", line(Ask(number=1, settings=OBSERVED)))] == [1]


def test_that_the_process_ends_with_its_input() -> None:
    command = [sys.executable, "-m", "service", "predict", "--control"]
    run = subprocess.run(command, input=line(Ask(number=7, settings=OBSERVED)), capture_output=True, timeout=120)
    assert run.returncode == 0
    assert msgspec.json.decode(run.stdout, type=Predicted) == Predicted(number=7, prediction=None)
