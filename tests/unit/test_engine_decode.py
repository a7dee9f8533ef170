"""Batched decoding gives each prompt what it would get alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from transformers import AutoModelForCausalLM

from service.engine import steps
from service.engine.engine import TextEngine
from service.engine.job import SamplingParams, Sequence
from service.engine.model.batch_cache import BatchCache
from service.engine.model.load import LoadedModel, load
from service.engine.model.resolve import ModelFolder
from service.messages.telemetry import BatchWork
from tests.unit.tiny_models import CONTEXT, Listener, run, sequence

PROMPTS = [
    "Once upon a time",
    "Hi",
    "The capital of France is Paris, and the capital of Italy is",
    "def fibonacci(n):",
    "Q: Why is the sky blue?\nA:",
]
LENGTHS = [16, 3, 12, 1, 8]


def generated_by_transformers(model: Any, ids: list[int], max_tokens: int) -> list[int]:
    prompt = torch.tensor([ids])
    output: Any = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=max_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    tokens: list[int] = output[0, len(ids) :].tolist()
    return tokens


@pytest.fixture(scope="module")
def real_model(model_folder: ModelFolder, single_thread: None) -> LoadedModel:
    return load(model_folder, "cpu", "float32")


def test_that_in_float32_a_batch_of_the_real_model_equals_each_prompt_alone(
    real_model: LoadedModel, model_folder: ModelFolder
) -> None:
    engine = TextEngine(real_model)
    model = AutoModelForCausalLM.from_pretrained(model_folder.path, dtype=torch.float32)
    together = [sequence(engine, p, max_tokens=n) for p, n in zip(PROMPTS, LENGTHS, strict=True)]
    run(engine, *together)
    for each in together:
        alone = Sequence(each.id, each.prompt_ids, each.sampling)
        run(engine, alone)
        assert each.tokens == alone.tokens
        assert each.tokens == generated_by_transformers(model, list(each.prompt_ids), each.sampling.max_tokens)


def test_that_the_real_models_text_arrives_in_pieces_that_add_up_to_the_whole(real_model: LoadedModel) -> None:
    engine = TextEngine(real_model)
    one = sequence(engine, "The capital of France is", max_tokens=12)
    listener = run(engine, one)
    assert "Paris" in listener.texts[one.id]
    assert len([step for step in listener.steps if step[0].text]) > 5
    assert listener.texts[one.id] == real_model.tokenizer.decode(one.tokens, skip_special_tokens=True)


def test_that_the_engine_counts_padding_and_the_places_of_rows_that_had_ended(tiny_engine: TextEngine) -> None:
    long, short = sequence(tiny_engine, "abcdefgh", max_tokens=4), sequence(tiny_engine, "ab", max_tokens=1)
    work = tiny_engine.generate([long, short], lambda _: None)
    width, padding = len(long.prompt_ids), len(long.prompt_ids) - len(short.prompt_ids)
    more = int(tiny_engine.forward.is_ahead)  # of the short row, which had ended when its token was read
    expected = BatchWork(steps=4, computed=2 * width + 3 + more, padding=padding, vacant=3 - more, prompts=2 * width)
    assert replace(work, prefill_s=0.0) == expected
    assert work.prefill_s > 0


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.text(min_size=1, max_size=15), st.integers(1, 20)), min_size=1, max_size=6),
    prefill_tokens=st.sampled_from([1, 7, 32, 512]),
    free_padding=st.sampled_from([0, 8, 512]),
)
def test_that_any_batch_equals_each_prompt_alone(
    tiny_engine: TextEngine, rows: list[tuple[str, int]], prefill_tokens: int, free_padding: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_engine.forward, "prefill_tokens", prefill_tokens)
        patch.setattr(tiny_engine.forward, "free_padding", free_padding)
        together = [
            Sequence(str(i), tiny_engine.encode(text, n), SamplingParams(max_tokens=n))
            for i, (text, n) in enumerate(rows)
        ]
        run(tiny_engine, *together)
    for each in together:
        alone = Sequence(each.id, each.prompt_ids, each.sampling)
        run(tiny_engine, alone)
        assert each.tokens == alone.tokens


def test_that_a_short_mate_is_untouched_when_a_long_one_leaves_and_its_columns_are_trimmed(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed: list[int] = []
    trim = BatchCache.trim
    monkeypatch.setattr(BatchCache, "trim", lambda cache, columns: (trimmed.append(columns), trim(cache, columns)))
    long = sequence(tiny_engine, "x" * 60, max_tokens=2)
    short = sequence(tiny_engine, "abc", max_tokens=30)
    alone = sequence(tiny_engine, "abc", max_tokens=30)
    run(tiny_engine, long, short)
    run(tiny_engine, alone)
    assert trimmed == [57]
    assert short.tokens == alone.tokens


def test_that_a_prompt_may_fill_the_context_to_its_last_token(tiny_engine: TextEngine) -> None:
    full = sequence(tiny_engine, "a" * (CONTEXT - 10), max_tokens=10)
    run(tiny_engine, full, sequence(tiny_engine, "b", max_tokens=10))
    assert len(full.tokens) == 10


def test_that_rows_which_are_done_leave_the_computation(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    forward = tiny_engine.forward
    compute = forward.compute
    monkeypatch.setattr(
        forward, "compute", lambda parts: (sizes.extend(len(part.ids) for part in parts), compute(parts))[1]
    )
    run(tiny_engine, *(sequence(tiny_engine, "abcd"[: i + 1], max_tokens=n) for i, n in enumerate([1, 3, 3, 5])))
    assert sizes == ([4, 4, 3, 3, 1] if tiny_engine.forward.is_ahead else [4, 3, 3, 1, 1])


def test_that_the_end_token_ends_a_completion_unless_it_is_ignored(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = sequence(tiny_engine, "hello", max_tokens=12, ignore_eos=True)
    run(tiny_engine, free)
    end = free.tokens[5]
    monkeypatch.setattr(tiny_engine, "_eos", frozenset({end}))
    ended = sequence(tiny_engine, "hello", max_tokens=12)
    again = Sequence("again", free.prompt_ids, free.sampling)
    listener = run(tiny_engine, ended, again)
    assert ended.tokens == free.tokens[: free.tokens.index(end) + 1]
    assert listener.reason("hello") == "stop"
    assert again.tokens == free.tokens
    assert listener.reason("again") == "length"


def test_that_each_step_reports_all_rows_at_once(tiny_engine: TextEngine) -> None:
    listener = run(tiny_engine, *(sequence(tiny_engine, text, max_tokens=4) for text in ("a", "bb", "ccc")))
    assert [len(step) for step in listener.steps] == [3, 3, 3, 3]
    assert [progress.tokens for step in listener.steps for progress in step] == [n for n in (1, 2, 3, 4) for _ in "abc"]


def test_that_reading_long_prompts_shows_signs_of_life(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_engine.forward, "prefill_tokens", 16)
    listener = run(tiny_engine, sequence(tiny_engine, "a" * 64, max_tokens=1))
    assert [len(step) for step in listener.steps] == [0, 0, 0, 1]


def test_that_no_sequences_are_no_work(tiny_engine: TextEngine) -> None:
    assert run(tiny_engine).steps == []


class CancelAfter(Listener):
    """Cancels a sequence when it has so many tokens."""

    def __init__(self, victim: Sequence, tokens: int) -> None:
        super().__init__()
        self._victim, self._tokens = victim, tokens

    def __call__(self, progress: list[Any]) -> None:
        super().__call__(progress)
        if len(self._victim.tokens) >= self._tokens:
            self._victim.cancel()


def test_that_a_cancelled_sequence_is_left_out_from_the_next_step_on(tiny_engine: TextEngine) -> None:
    victim = sequence(tiny_engine, "abc", max_tokens=50)
    mate = sequence(tiny_engine, "defg", max_tokens=12)
    alone = sequence(tiny_engine, "defg", max_tokens=12)
    listener = CancelAfter(victim, 5)
    tiny_engine.generate([victim, mate], listener)
    run(tiny_engine, alone)
    assert listener.reason("abc") == "cancelled"
    assert len(victim.tokens) == 5
    assert mate.tokens == alone.tokens


def test_that_what_is_cancelled_before_it_starts_is_never_computed(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "next_tokens", None)
    early = sequence(tiny_engine, "abc")
    early.cancel()
    assert run(tiny_engine, early).reason("abc") == "cancelled"
    assert early.tokens == []


def test_that_a_long_prompt_can_be_cancelled_while_it_is_read(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_engine.forward, "prefill_tokens", 16)
    victim = sequence(tiny_engine, "x" * 90, max_tokens=4)
    mates = [sequence(tiny_engine, text, max_tokens=9) for text in ("ab", "cde", "y" * 40)]
    alone = [sequence(tiny_engine, each.id, max_tokens=9) for each in mates]
    listener = CancelAfter(victim, 0)
    tiny_engine.generate([victim, *mates], listener)
    for each in alone:
        run(tiny_engine, each)
    assert victim.tokens == []
    assert listener.reason(victim.id) == "cancelled"
    assert [each.tokens for each in mates] == [each.tokens for each in alone]
