"""The stub keeps the promises of a real engine, takes the time that it is told to, and fails to order."""

from __future__ import annotations

import pytest

from service.engine.job import Conversation, DeviceLostError, PromptError, SamplingParams, Sequence, TokenIds
from service.engine.model.report import ModelError
from service.engine.stub import AT_ONCE, FAULTS, Fault, StubEngine, StubTimes, raising
from service.messages.options import is_stub
from tests.unit.tiny_models import Listener


def asked(engine: StubEngine, prompt: str, max_tokens: int = 2) -> Sequence:
    return Sequence(prompt, engine.encode(prompt, max_tokens), SamplingParams(max_tokens=max_tokens))


def test_that_each_gets_its_own_answer_and_one_ending_a_step_at_a_time() -> None:
    waits: list[float] = []
    times = StubTimes(step_ms=20.0, row_ms=0.0, prompt_token_ms=0.0)
    engine = StubEngine(times, {"bad": Fault("No.", at_token=2)}, waits.append)
    rows = [asked(engine, "a"), asked(engine, "bad one", 5), asked(engine, "c", 3), asked(engine, "gone")]
    rows[3].cancel()
    listener = Listener()
    engine.generate(rows, listener)
    assert listener.texts == {"a": "<a#1><a#2>", "bad one": "<bad one#1>", "c": "<c#1><c#2><c#3>", "gone": ""}
    assert [listener.reason(row.id) for row in rows] == ["length", "error", "length", "cancelled"]
    assert waits == [0.02] * 3


def test_that_a_step_takes_its_time_by_rows_and_by_the_prompts_that_it_reads() -> None:
    waits: list[float] = []
    engine = StubEngine(StubTimes(step_ms=10.0, row_ms=2.0, prompt_token_ms=1.0), wait=waits.append)
    joining = [[asked(engine, "xy", 1)], []]
    work = engine.generate(
        [asked(engine, "abc", 3)], Listener(), lambda work, can_join: joining.pop(0) if joining else []
    )
    assert waits == pytest.approx([0.015, 0.016, 0.012])
    assert (work.steps, work.computed, work.prompts, work.prefill_s) == (3, 4 + 5, 5, pytest.approx(0.005))


@pytest.mark.parametrize(
    ("word", "raised"), [("stub:raise", RuntimeError), ("stub:lost", DeviceLostError), ("boom", SystemExit)]
)
def test_that_a_crash_to_order_leaves_generate(word: str, raised: type[BaseException]) -> None:
    engine = StubEngine(AT_ONCE, FAULTS | {"boom": Fault(does=raising(SystemExit(1)))})
    with pytest.raises(raised):
        engine.generate([asked(engine, f"please {word}")], Listener())


def test_that_messages_and_token_ids_are_prompts_too() -> None:
    engine, listener = StubEngine(AT_ONCE), Listener()
    messages = Conversation(({"role": "user", "content": "Hi"},))
    sampling = SamplingParams(max_tokens=10_000, may_be_fewer=True)
    chat = engine.job("chat", messages, sampling)
    assert chat.max_tokens == engine.context_length - len(chat.prompt_ids)
    ids = engine.job("ids", TokenIds(map(ord, "a🙂")), SamplingParams(max_tokens=1))
    engine.generate([engine.job("chat", messages, SamplingParams(max_tokens=1)), ids], listener)
    assert listener.texts == {"chat": "<user: Hi\nassistant:#1>", "ids": "<a🙂#1>"}
    assert b"".join(map(engine.spell, ids.prompt_ids)) == "a🙂".encode()


@pytest.mark.parametrize("token", [0xD800, 0x110000, 2**31 - 1])
def test_that_what_is_no_character_is_refused(token: int) -> None:
    with pytest.raises(PromptError, match="is a character"):
        StubEngine().encode(TokenIds((token,)), 1)


def test_that_a_prompt_can_order_its_own_error() -> None:
    engine, listener = StubEngine(AT_ONCE), Listener()
    engine.generate([asked(engine, "a stub:error"), asked(engine, "b")], listener)
    assert [listener.reason(name) for name in ("a stub:error", "b")] == ["error", "length"]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("stub?step_ms=fast", "Expected `float`"),
        ("stub?steps=3", "unknown field `steps`"),
        ("stub?row_ms=-1", "a time is 0 or more"),
    ],
)
def test_that_times_that_cannot_be_are_refused_in_words(model: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        StubTimes.of(model)


def test_which_models_are_stubs() -> None:
    assert all(map(is_stub, ("stub", "stub?step_ms=1")))
    assert not any(map(is_stub, ("stubborn", "org/stub", "auto")))
