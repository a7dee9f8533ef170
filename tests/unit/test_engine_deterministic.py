"""A deterministic engine gives each prompt the same bits alone and beside others; the default one need not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from service.engine.engine import TextEngine
from service.engine.job import SamplingParams
from service.engine.job import Sequence as Prompt
from service.engine.model import optimize
from service.engine.model.folder import ModelFolder
from service.engine.model.load import LoadedModel, load
from service.engine.model.passes import ForwardPass, Part
from service.engine.model.report import ModelError
from service.messages.settings import Settings
from tests.unit.model_files import write_model_folder
from tests.unit.test_model_optimize import llama, needs_bytes, needs_kernels
from tests.unit.tiny_models import LAYERS, byte_level_tokenizer, run, tiny_gpt2

LENGTHS = (3, 63, 64, 65, 130, 20, 140, 64)
VOCABULARY = 200
CPU = torch.device("cpu")


class Seen:
    """A forward pass that keeps the bits of each row of logits."""

    def __init__(self, compute: ForwardPass) -> None:
        self.rows: set[bytes] = set()
        self._compute = compute

    def __call__(self, parts: Sequence[Part]) -> Tensor:
        logits = self._compute(parts)
        self.rows |= {row.float().numpy().tobytes() for row in logits}
        return logits


def prompts(lengths: Sequence[int] = LENGTHS, max_tokens: int = 12) -> list[Prompt]:
    drawn = random.Random(7)
    return [
        Prompt(str(n), [drawn.randrange(VOCABULARY) for _ in range(length)], SamplingParams(max_tokens=max_tokens + n))
        for n, length in enumerate(lengths)
    ]


def engine_of(make: Callable[[], Any], forward: Callable[[Any], ForwardPass], *, is_deterministic: bool) -> TextEngine:
    model = make()
    return TextEngine(
        LoadedModel(
            name="tiny",
            forward=Seen(forward(model)),
            tokenizer=byte_level_tokenizer(),
            device=CPU,
            dtype=torch.float32,
            context_length=512,
            vocabulary=VOCABULARY,
            end_tokens=frozenset(),
            layers=LAYERS,
            is_deterministic=is_deterministic,
        )
    )


def float32() -> TextEngine:
    return engine_of(lambda: llama(vocab_size=VOCABULARY).float(), optimize.deterministic, is_deterministic=True)


def bfloat16() -> TextEngine:
    return engine_of(lambda: llama(vocab_size=VOCABULARY), optimize.deterministic, is_deterministic=True)


def int8() -> TextEngine:
    return engine_of(
        lambda: llama(vocab_size=VOCABULARY),
        lambda model: optimize.deterministic(model, eight_bit=True),
        is_deterministic=True,
    )


def usual() -> TextEngine:
    return engine_of(
        lambda: llama(vocab_size=VOCABULARY).float(),
        lambda model: optimize.optimized(model, CPU),
        is_deterministic=False,
    )


ENGINES = [
    float32,
    pytest.param(bfloat16, marks=needs_kernels),
    pytest.param(int8, marks=needs_bytes),
]


def seen_by(engine: TextEngine) -> set[bytes]:
    forward = engine.forward.compute
    assert isinstance(forward, Seen)
    seen, forward.rows = forward.rows, set()
    return seen


def alone(engine: TextEngine) -> tuple[list[list[int]], set[bytes]]:
    """The tokens of each prompt that is computed alone, and the logits."""
    each = prompts()
    for prompt in each:
        run(engine, prompt)
        assert len(prompt.tokens) == prompt.max_tokens
    return [prompt.tokens for prompt in each], seen_by(engine)


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize("size", [2, 3, 8])
def test_that_a_batch_computes_what_its_prompts_alone_do(
    make: Callable[[], TextEngine], size: int, single_thread: None
) -> None:
    engine = make()
    tokens, expected = alone(engine)
    together = prompts()
    for first in range(0, len(together), size):
        run(engine, *together[first : first + size])
    assert [prompt.tokens for prompt in together] == tokens
    assert seen_by(engine) <= expected


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize("chunk", [0, 16, 256], ids=["the usual chunk", "a small chunk", "a large chunk"])
def test_that_so_do_prompts_that_join_while_others_run_and_leave(
    make: Callable[[], TextEngine], chunk: int, single_thread: None
) -> None:
    engine = make()
    tokens, expected = alone(engine)
    engine.adopt(Settings(prefill_chunk_tokens=chunk))
    together = prompts()
    coming = together[2:]

    def admit(work: object, can_join: bool) -> list[Prompt]:
        count = 2 if can_join and len(coming) % 3 else 1
        return [coming.pop(0) for _ in range(min(count, len(coming)))] if can_join else []

    engine.generate(together[:2], lambda progress: None, admit)
    assert not coming
    assert [prompt.tokens for prompt in together] == tokens
    assert seen_by(engine) <= expected


def test_that_the_usual_engine_computes_other_bits_in_a_batch(single_thread: None) -> None:
    engine = usual()
    _, expected = alone(engine)
    run(engine, *prompts())
    assert not seen_by(engine) <= expected


def test_that_what_is_drawn_by_a_seed_is_the_same_in_any_batch(single_thread: None) -> None:
    engine = float32()
    sampling = SamplingParams(max_tokens=12, temperature=0.9, top_p=0.8, seed=5)
    drawn = [Prompt(each.id, each.prompt_ids, sampling) for each in prompts()]
    again = [Prompt(each.id, each.prompt_ids, sampling) for each in prompts()]
    for each in drawn:
        run(engine, each)
    run(engine, *again)
    assert [each.tokens for each in again] == [each.tokens for each in drawn]


def test_that_another_architecture_is_refused() -> None:
    with pytest.raises(ModelError, match="GPT2LMHeadModel cannot be computed deterministically"):
        optimize.deterministic(tiny_gpt2())


def test_that_a_processor_whose_products_depend_on_the_number_of_rows_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Dependent(optimize.InvariantLinear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs) * (1 + len(inputs) / 1000)

    linear = optimize.Linear(Dependent, float("inf"))
    monkeypatch.setattr(optimize, "INVARIANT", {torch.float32: linear})
    with pytest.raises(ModelError, match="depend on the number of rows"):
        optimize.deterministic(llama(vocab_size=VOCABULARY).float())


def test_that_a_gpu_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ModelFolder("tiny", write_model_folder(tmp_path / "tiny"))
    monkeypatch.setattr("service.engine.model.load.choose_device", lambda wanted: "cuda")
    with pytest.raises(ModelError, match=r"Only a processor computes deterministically.*choose the device cpu"):
        load(folder, "cuda", "float32", is_deterministic=True)


def test_that_the_real_model_answers_alike_alone_and_in_a_batch(model_folder: ModelFolder) -> None:
    engine = TextEngine(load(model_folder, "cpu", "auto", is_deterministic=True))
    texts = ["Once upon a time", "The sea is blue because", "A short list:", " ".join(["stars and rain"] * 30)]
    sampling = SamplingParams(max_tokens=16)
    each, together = ([engine.job(text, text, sampling) for text in texts] for _ in range(2))
    for job in each:
        engine.generate([job], lambda progress: None)
    engine.generate(together, lambda progress: None)
    assert [job.tokens for job in together] == [job.tokens for job in each]
