"""The optimized model computes what it did before, to the last bit, and in fewer steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from service.engine.model import optimize as module
from service.engine.model.batch_cache import BatchCache
from service.engine.model.lean import LeanLlama
from service.engine.model.linear import FEW_ROWS, EightBitLinear, PackedLinear, SideBySide, packs
from service.engine.model.load import choose_dtype, load
from service.engine.model.optimize import AS_IT_IS, PACKED, Linear, optimized
from service.engine.model.passes import ForwardPass, OwnPass, Part
from service.engine.model.report import ModelError
from service.engine.model.resolve import ModelFolder
from tests.unit.tiny_models import tiny_gpt2


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
needs_bfloat16 = pytest.mark.skipif(
    choose_dtype("auto", "cpu") != "bfloat16", reason="this processor computes in bfloat16 slowly"
)
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


@pytest.mark.parametrize(
    "changes",
    [{}, {"attention_bias": True, "mlp_bias": True}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}],
    ids=["grouped", "with biases", "a key a query", "tied"],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_that_a_llama_computes_the_same_and_with_packed_weights_in_bfloat16_to_the_last_bit(
    changes: dict[str, Any], dtype: torch.dtype
) -> None:
    model = llama(**changes).to(dtype)
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU)

    assert isinstance(forward, LeanLlama)
    roundings = (PACKED[dtype] if packs(dtype) else AS_IT_IS).roundings
    for found, wanted in zip(logits(forward), expected, strict=True):
        most = 2 * roundings * torch.finfo(dtype).eps * wanted.abs().max().item()
        torch.testing.assert_close(found, wanted, rtol=0, atol=most)


def test_that_a_llama_in_bfloat16_is_lean_where_the_processor_packs_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "packs", lambda dtype: False)

    forward = optimized(llama(), CPU)

    assert isinstance(forward, LeanLlama)
    assert not any(isinstance(each, PackedLinear) for each in forward.modules())


@needs_packing
def test_that_of_another_architecture_the_linear_layers_are_packed() -> None:
    model = tiny_gpt2().to(torch.bfloat16)
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU)

    assert isinstance(model.lm_head, PackedLinear)
    assert all(map(torch.equal, logits(forward), expected))


@needs_packing
@pytest.mark.parametrize("make", [llama, lambda: tiny_gpt2().to(torch.bfloat16)], ids=["llama", "gpt2"])
def test_that_a_model_whose_results_would_change_computes_as_it_did(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(PackedLinear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) + 1

    model = make()
    expected = logits(OwnPass(model, CPU))
    monkeypatch.setattr(module, "PACKED", {torch.bfloat16: Linear(Wrong, 0.0)})

    forward = optimized(model, CPU)

    assert all(map(torch.equal, logits(forward), expected))
    assert type(model.lm_head) is nn.Linear
    assert "its results would be others" in caplog.text


@needs_packing
@pytest.mark.parametrize("make", [llama, lambda: tiny_gpt2().to(torch.bfloat16)], ids=["llama", "gpt2"])
def test_that_weights_in_8_bits_change_little(make: Callable[[], Any]) -> None:
    model = make()
    expected = logits(OwnPass(model, CPU))

    forward = optimized(model, CPU, eight_bit=True)

    assert any(isinstance(each, EightBitLinear) for each in forward.modules())
    for found, wanted in zip(logits(forward), expected, strict=True):
        assert not torch.equal(found, wanted)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0.1 * wanted.abs().max().item())


def test_that_a_model_that_8_bits_would_change_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.model.linear.LARGEST", 3)
    with pytest.raises(ModelError, match=r"cannot be had in 8 bits.*choose another dtype"):
        optimized(llama(), CPU, eight_bit=True)


@needs_packing
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_that_few_rows_and_many_get_the_same_of_weights_in_8_bits_but_for_rounding(bias: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(64, size, bias=bias).to(torch.bfloat16).requires_grad_(False) for size in (32, 16)]
    eight_bit = EightBitLinear(*layers)
    rows = torch.randn(3 * FEW_ROWS, 64).to(torch.bfloat16)

    many = eight_bit(rows)
    few = torch.cat([eight_bit(each) for each in rows.split(FEW_ROWS)])

    torch.testing.assert_close(few, many, rtol=0, atol=0.02)
    torch.testing.assert_close(many, SideBySide(*layers)(rows), rtol=0, atol=0.05)
    assert eight_bit(rows.view(3, FEW_ROWS, 64)).shape == (3, FEW_ROWS, 48)


@needs_packing
def test_that_a_row_of_whole_numbers_is_computed_alike_beside_any_others() -> None:
    torch.manual_seed(0)
    eight_bit = EightBitLinear(nn.Linear(96, 80, bias=False).to(torch.bfloat16))
    rows = torch.randn(64, 96).to(torch.bfloat16)
    together = eight_bit(rows)
    for count in range(FEW_ROWS + 1, 64):
        assert torch.equal(eight_bit(rows[:count]), together[:count])
        assert torch.equal(eight_bit(rows[-count:]), together[-count:])


@needs_packing
def test_that_rows_of_nan_and_of_zeros_spoil_no_others() -> None:
    torch.manual_seed(0)
    eight_bit = EightBitLinear(nn.Linear(96, 80, bias=False).to(torch.bfloat16))
    rows = torch.randn(FEW_ROWS + 3, 96).to(torch.bfloat16)
    expected = eight_bit(rows)
    rows[0, 5], rows[1] = torch.nan, 0
    found = eight_bit(rows)
    assert found[0].isnan().all()
    assert not found[1].any()
    assert torch.equal(found[2:], expected[2:])


def test_that_a_layer_too_wide_for_sums_of_32_bits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.model.linear.WIDEST", 95)
    with pytest.raises(ValueError, match="96 inputs, more than 95"):
        EightBitLinear(nn.Linear(96, 80))


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

    assert not any(isinstance(each, PackedLinear) for each in forward.modules())


@pytest.mark.parametrize(
    ("dtype", "linears"),
    [
        pytest.param("bfloat16", {PackedLinear}, marks=needs_packing),
        ("float32", {PackedLinear}),
        pytest.param("int8", {EightBitLinear}, marks=needs_bfloat16),
    ],
)
def test_that_the_real_model_is_lean_and_on_a_processor_packed(
    model_folder: ModelFolder, dtype: str, linears: set[type[nn.Module]], single_thread: None
) -> None:
    forward = load(model_folder, "cpu", dtype).forward
    assert isinstance(forward, LeanLlama)
    assert {type(each) for each in forward.modules()} & {PackedLinear, EightBitLinear, nn.Linear} == linears
