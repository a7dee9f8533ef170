"""The optimized model computes what it did before, within rounding, and in fewer steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from service.engine.model import optimize as module
from service.engine.model.batch_cache import BatchCache
from service.engine.model.lean import LeanLlama
from service.engine.model.linear import PackedLinear, SideBySide, has_kernels, packs
from service.engine.model.load import load, takes_int8
from service.engine.model.optimize import AS_IT_IS, PACKED, Linear, by_kernels, deterministic, on_a_processor, optimized
from service.engine.model.passes import ForwardPass, OwnPass, Part
from service.engine.model.report import ModelError
from service.engine.model.resolve import ModelFolder
from tests.unit.tiny_models import published, tiny_gpt2, tiny_of


def llama(**changes: Any) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        **{
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "initializer_range": 0.3,
            "attn_implementation": "sdpa",
            **changes,
        }
    )
    return LlamaForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(False)


CPU = torch.device("cpu")


PACKED_LAYERS = {"TiledLinear", "TwofoldLinear", "PublishedLinear", "PackedLinear", "EightBitLinear"}


def has_pairs() -> bool:
    """Whether this processor has products of pairs of bfloat16."""
    if not has_kernels():
        return False
    from service.engine.model.vectors import HAS_PAIRS

    return HAS_PAIRS


needs_kernels = pytest.mark.skipif(not has_kernels(), reason="there are no kernels for this processor")
needs_bytes = pytest.mark.skipif(not takes_int8(), reason="this processor has no products of bytes")
needs_pairs = pytest.mark.skipif(not has_pairs(), reason="this processor has no products of bfloat16")
needs_packing = pytest.mark.skipif(
    not packs(torch.bfloat16), reason="this processor has no kernels for packed bfloat16"
)
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3]]


@torch.inference_mode()
def logits(compute: ForwardPass) -> list[torch.Tensor]:
    """Of padded prompts, of those in parts, and of a step in which newcomers are read."""
    batches = [Pencil(PROMPTS), Pencil(PROMPTS), Pencil([[7, 7, 7]])]
    whole, parted, newcomer = batches
    return [
        compute([whole.part(5)]),
        compute([parted.part(3)]),
        compute([parted.part(2)]),
        compute([whole.part(1)]),
        compute([whole.part(1), newcomer.part(3)]),
        compute([parted.part(1), newcomer.part(1)]),
    ]


class Pencil:
    """Rows of known tokens, some columns at a time."""

    def __init__(self, rows: list[list[int]]) -> None:
        width = max(map(len, rows))
        self._pads = torch.tensor([[width - len(row)] for row in rows])
        self._ids = torch.tensor([[0] * (width - len(row)) + row + [8] * 9 for row in rows])
        self._cache, self._end = BatchCache(len(rows)), 0

    def part(self, columns: int) -> Part:
        begin, self._end = self._end, self._end + columns
        numbers = torch.arange(self._end)
        mask = numbers >= self._pads if self._pads.any() else None
        positions = (numbers[begin:] - self._pads).clamp(min=0)
        return Part(self._ids[:, begin : self._end], positions, mask, self._cache)


@pytest.fixture
def quick_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that has products of pairs of bfloat16 takes them quickly, whatever a trial would say."""
    monkeypatch.setattr("service.engine.model.tiled.pairs_are_quicker", has_pairs)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_kernels", lambda: False)


CHANGES = pytest.mark.parametrize(
    "changes",
    [{}, {"attention_bias": True, "mlp_bias": True}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}],
    ids=["grouped", "with biases", "a key a query", "tied"],
)
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)


def assert_same_within_rounding(forward: ForwardPass, expected: list[torch.Tensor], roundings: float) -> None:
    for found, wanted in zip(logits(forward), expected, strict=True):
        most = 2 * roundings * torch.finfo(wanted.dtype).eps * wanted.abs().max().item()
        torch.testing.assert_close(found, wanted, rtol=0, atol=most, check_dtype=False)


@CHANGES
@DTYPES
def test_that_a_llama_computes_the_same_within_rounding(changes: dict[str, Any], dtype: torch.dtype) -> None:
    model = llama(**changes).to(dtype)
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU)

    assert isinstance(forward, LeanLlama)
    assert_same_within_rounding(forward, expected, next(iter(on_a_processor(dtype)), AS_IT_IS).roundings)


@needs_kernels
@pytest.mark.parametrize(
    ("make", "how"),
    [
        pytest.param(llama, {}, id="bfloat16"),
        pytest.param(llama, {"eight_bit": True}, id="8 bits", marks=needs_bytes),
        pytest.param(lambda: in_few_bits(llama()), {}, id="few bits", marks=needs_bytes),
    ],
)
def test_that_a_step_that_is_computed_at_once_has_the_bits_of_one_layer_after_the_other(
    make: Callable[[], Any], how: dict[str, bool]
) -> None:
    at_once = by_kernels(**how)
    by_layer = at_once.operators._replace(whole=None)
    found = logits(LeanLlama(make(), at_once.make, operators=at_once.operators))
    wanted = logits(LeanLlama(make(), at_once.make, operators=by_layer))
    assert all(map(torch.equal, found, wanted))


@needs_kernels
def test_that_weights_that_move_once_a_model_is_loaded_are_read_where_they_are() -> None:
    linear = by_kernels()
    forward = LeanLlama(llama(), linear.make, operators=linear.operators)
    expected = logits(forward)
    for each in forward.parameters():
        before, each.data = each.data, each.data.clone()
        before.fill_(torch.nan)
    assert all(map(torch.equal, logits(forward), expected))


@needs_kernels
def test_that_steps_of_several_threads_share_no_memory_at_a_time() -> None:
    linear = by_kernels()
    forward = LeanLlama(llama(), linear.make, operators=linear.operators)
    expected = logits(forward)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: logits(forward), range(40)):
            assert all(map(torch.equal, found, expected))


@CHANGES
@DTYPES
@pytest.mark.usefixtures("without_kernels")
def test_that_without_kernels_of_our_own_packed_weights_in_bfloat16_give_the_same_bits(
    changes: dict[str, Any], dtype: torch.dtype
) -> None:
    model = llama(**changes).to(dtype)
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU)

    assert isinstance(forward, LeanLlama)
    assert_same_within_rounding(forward, expected, (PACKED[dtype] if packs(dtype) else AS_IT_IS).roundings)


@pytest.mark.usefixtures("without_kernels")
def test_that_a_llama_in_bfloat16_is_lean_where_the_processor_packs_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "packs", lambda dtype: False)

    forward = optimized(llama(), CPU)

    assert isinstance(forward, LeanLlama)
    assert not any(isinstance(each, PackedLinear) for each in forward.modules())


@DTYPES
@pytest.mark.parametrize("kind", ["mistral", "qwen2"])
def test_that_what_computes_as_a_llama_does_is_computed_as_one(kind: str, dtype: torch.dtype) -> None:
    model = tiny_of(kind, sliding_window=None).to(dtype)
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU)

    assert isinstance(forward, LeanLlama)
    assert_same_within_rounding(forward, expected, next(iter(on_a_processor(dtype)), AS_IT_IS).roundings)


def test_that_a_model_whose_layers_attend_to_the_last_columns_alone_is_not() -> None:
    assert isinstance(optimized(tiny_of("mistral", sliding_window=40), CPU), OwnPass)


@needs_kernels
def test_that_of_another_architecture_the_linear_layers_are_computed_by_kernels() -> None:
    model = tiny_gpt2().to(torch.bfloat16)
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU)

    assert type(model.lm_head) is by_kernels(twofold=True).make
    assert_same_within_rounding(forward, expected, 1.0)


@needs_packing
@pytest.mark.usefixtures("without_kernels")
def test_that_without_kernels_the_linear_layers_of_another_architecture_are_packed() -> None:
    model = tiny_gpt2().to(torch.bfloat16)
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU)

    assert isinstance(model.lm_head, PackedLinear)
    assert all(map(torch.equal, logits(forward), expected))


@pytest.mark.parametrize("make", [llama, lambda: tiny_gpt2().to(torch.bfloat16)], ids=["llama", "gpt2"])
def test_that_a_model_whose_results_would_change_computes_as_it_did(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(SideBySide):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) + 1

    model = make()
    expected = logits(OwnPass(model, CPU))
    monkeypatch.setattr(module, "on_a_processor", lambda *_, **__: [Linear(Wrong, 0.0)])

    forward = optimized(model, CPU)

    assert all(map(torch.equal, logits(forward), expected))
    assert type(model.lm_head) is nn.Linear
    assert "its results would be others" in caplog.text


def in_few_bits(model: Any) -> Any:
    """A model as one is published in 4 bits, with an output layer in 8."""
    for name, layer in model.named_modules():
        if type(layer) is nn.Linear:
            layer.weight.data = published(8 if name == "lm_head" else 4, *layer.weight.shape)
    return model


def weights_in(forward: nn.Module) -> list[Any]:
    return [each.weights for each in forward.modules() if hasattr(each, "weights")]


def bits_of(forward: nn.Module) -> list[int]:
    """Of the weights that are kept in few."""
    in_few = [getattr(each, "few", each) for each in weights_in(forward)]
    return [each.bits for each in in_few if hasattr(each, "bits")]


def are_twofold(forward: nn.Module) -> set[bool]:
    """Whether these are kept in bfloat16 as well."""
    return {hasattr(each, "many") for each in weights_in(forward)}


@needs_bytes
def test_that_a_model_that_was_published_in_few_bits_is_computed_in_them() -> None:
    model = in_few_bits(llama())
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU)

    assert bits_of(forward) == [4] * 8 + [8]
    assert_same_within_rounding(forward, expected, by_kernels().roundings)


@needs_bytes
@needs_pairs
@pytest.mark.parametrize(("times", "replicas", "is_twofold"), [(5, 1, True), (3, 1, False), (5, 2, False)])
def test_that_such_a_model_is_kept_in_bfloat16_too_where_memory_holds_that_well(
    times: int, replicas: int, is_twofold: bool, monkeypatch: pytest.MonkeyPatch, quick_pairs: None
) -> None:
    model = in_few_bits(llama())
    weights_bytes = sum(each.nbytes for each in model.parameters())
    monkeypatch.setattr(module, "free_memory_bytes", lambda: times * weights_bytes)

    forward = optimized(model, CPU, replicas=replicas)

    assert bits_of(forward) == [4] * 8 + [8]
    assert are_twofold(forward) == {is_twofold}


@needs_bytes
@needs_pairs
@pytest.mark.parametrize(
    ("rows", "columns", "are_many"), [(1, 1, False), (7, 1, False), (8, 1, True), (1, 2, True), (3, 5, True)]
)
def test_that_steps_of_few_rows_are_computed_in_few_bits_and_prompts_and_those_of_many_in_bfloat16(
    rows: int, columns: int, are_many: bool, quick_pairs: None
) -> None:
    def first_logits(**how: bool) -> torch.Tensor:
        linear = by_kernels(**how)
        forward = LeanLlama(in_few_bits(llama()), linear.make, operators=linear.operators)
        return forward([Pencil([list(range(row, row + columns)) for row in range(rows)]).part(columns)])

    found = first_logits(twofold=True)
    in_few, in_halves = first_logits(), first_logits(as_published=False)
    assert not torch.equal(in_few, in_halves)
    assert torch.equal(found, in_halves if are_many else in_few)


@needs_bytes
def test_that_a_deterministic_model_is_kept_in_few_bits_alone(quick_pairs: None) -> None:
    forward = deterministic(in_few_bits(llama()))
    assert bits_of(forward) == [4] * 8 + [8]
    assert are_twofold(forward) == {False}


@needs_bytes
def test_that_a_model_of_which_one_layer_was_published_otherwise_is_computed_in_bfloat16(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = in_few_bits(llama())
    other = model.model.layers[1].mlp.down_proj.weight
    other.data = torch.randn_like(other)
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU)

    assert isinstance(forward, LeanLlama)
    assert bits_of(forward) == []
    assert_same_within_rounding(forward, expected, by_kernels().roundings)
    assert "its layers keep their weights in several ways" in caplog.text


@needs_bytes
@pytest.mark.parametrize("make", [llama, lambda: tiny_gpt2().to(torch.bfloat16)], ids=["llama", "gpt2"])
def test_that_weights_in_8_bits_change_little(make: Callable[[], Any]) -> None:
    model = make()
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU, eight_bit=True)

    assert "EightBitLinear" in {type(each).__name__ for each in forward.modules()}
    for found, wanted in zip(logits(forward), expected, strict=True):
        assert not torch.equal(found, wanted)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0.1 * wanted.abs().max().item(), check_dtype=False)


@needs_bytes
def test_that_a_model_that_8_bits_would_change_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.model.tiled.LARGEST", 3)
    with pytest.raises(ModelError, match=r"cannot be had in 8 bits.*choose another dtype"):
        optimized(llama(), CPU, eight_bit=True)


def test_that_kernels_that_cannot_be_had_are_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "service.engine.model.kernels", None)
    has_kernels.cache_clear()
    try:
        assert all(each.make is PackedLinear for each in on_a_processor(torch.bfloat16))
    finally:
        has_kernels.cache_clear()
    assert "own kernels are left out, which is slower" in caplog.text


@pytest.mark.parametrize("rope", ["dynamic", "longrope"])
def test_that_a_llama_whose_rotation_depends_on_the_longest_row_is_computed_batch_by_batch(rope: str) -> None:
    factors = {"long_factor": [1.0] * 4, "short_factor": [1.0] * 4} if rope == "longrope" else {"factor": 2.0}
    model = llama(rope_parameters={"rope_type": rope, "rope_theta": 10000.0, **factors})
    assert isinstance(optimized(model, CPU), OwnPass)


def test_that_weights_for_which_memory_lacks_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        available = 0
        total = 1 << 30

    monkeypatch.setattr(psutil, "virtual_memory", Full)
    forward = optimized(llama(), CPU)

    assert {type(each).__name__ for each in forward.modules()}.isdisjoint(PACKED_LAYERS)


@pytest.mark.parametrize(
    ("dtype", "linears"),
    [
        pytest.param("bfloat16", {"TwofoldLinear" if takes_int8() else "TiledLinear"}, marks=needs_kernels),
        ("float32", {"PackedLinear"}),
        pytest.param("int8", {"EightBitLinear"}, marks=needs_bytes),
    ],
)
def test_that_the_real_model_is_lean_and_on_a_processor_packed(
    model_folder: ModelFolder, dtype: str, linears: set[str], single_thread: None
) -> None:
    forward = load(model_folder, "cpu", dtype).forward
    assert isinstance(forward, LeanLlama)
    kinds = {type(each).__name__ for each in forward.modules()}
    assert kinds & {*PACKED_LAYERS, "Linear"} == linears
