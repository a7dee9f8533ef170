"""The scripted engine keeps the promises of the real one."""

from __future__ import annotations

import pytest

from service.engine.job import SamplingParams, Sequence
from tests.scripted_engine import Fault, ScriptedEngine
from tests.unit.tiny_models import Listener


def asked(engine: ScriptedEngine, prompt: str, max_tokens: int = 2) -> Sequence:
    return Sequence(prompt, engine.encode(prompt, max_tokens), SamplingParams(max_tokens=max_tokens))


def test_that_each_gets_its_own_answer_and_one_ending_a_step_at_a_time() -> None:
    waits: list[float] = []
    engine = ScriptedEngine(0.02, {"bad": Fault("No.", at_token=2)}, waits.append)
    rows = [asked(engine, "a"), asked(engine, "bad one", 5), asked(engine, "c", 3), asked(engine, "gone")]
    rows[3].cancel()
    listener = Listener()
    engine.generate(rows, listener)
    assert listener.texts == {"a": "<a#1><a#2>", "bad one": "<bad one#1>", "c": "<c#1><c#2><c#3>", "gone": ""}
    assert [listener.reason(row.id) for row in rows] == ["length", "error", "length", "cancelled"]
    assert waits == [0.02] * 3
    assert engine.batches == [["a", "bad one", "c", "gone"]]


def test_that_a_crash_to_order_leaves_generate() -> None:
    engine = ScriptedEngine(faults={"boom": Fault(raises=SystemExit(1))})
    with pytest.raises(SystemExit):
        engine.generate([asked(engine, "boom")], Listener())
