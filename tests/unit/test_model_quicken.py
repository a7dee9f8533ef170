"""The quickened model computes what it did before, to the last bit, and in fewer steps."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from service.model import quicken as module
from service.model.lean import LeanLayer
from service.model.load import LoadedModel, load
from service.model.packed import PackedLinear
from service.model.quicken import quicken
from service.model.resolve import ModelFolder
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


IDS, MASK = torch.arange(12).reshape(3, 4), torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]])


@torch.inference_mode()
def generated(model: Any) -> Any:
    return model.generate(IDS, attention_mask=MASK, max_new_tokens=6, do_sample=False, pad_token_id=0)


@pytest.mark.parametrize(
    "changes",
    [{}, {"attention_bias": True, "mlp_bias": True}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}],
    ids=["grouped", "with biases", "a key a query", "tied"],
)
def test_that_a_llama_computes_the_same_to_the_last_bit(changes: dict[str, Any]) -> None:
    model = llama(**changes)
    with torch.inference_mode():
        logits = model(input_ids=IDS).logits
    tokens = generated(model)

    quicken(model)

    assert {type(layer) for layer in model.model.layers} == {LeanLayer}
    assert isinstance(model.lm_head, PackedLinear)
    with torch.inference_mode():
        assert torch.equal(model(input_ids=IDS).logits, logits)
    assert torch.equal(generated(model), tokens)


def test_that_of_another_architecture_the_linear_layers_are_packed() -> None:
    model = tiny_gpt2().to(torch.bfloat16)
    tokens = generated(model)

    quicken(model)

    assert isinstance(model.lm_head, PackedLinear)
    assert torch.equal(generated(model), tokens)


def test_that_a_model_whose_results_would_change_keeps_its_layers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) + 1

    model = llama()
    monkeypatch.setattr(module, "PackedLinear", lambda layer: Wrong(layer.in_features, layer.out_features).bfloat16())

    quicken(model)

    assert {type(layer) for layer in model.model.layers} == {LlamaDecoderLayer}
    assert type(model.lm_head) is nn.Linear
    assert "keeps its layers" in caplog.text


def test_that_a_model_for_which_memory_lacks_keeps_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        available = 0

    monkeypatch.setattr(psutil, "virtual_memory", Full)
    model = llama()

    quicken(model)

    assert type(model.lm_head) is nn.Linear


@pytest.mark.parametrize(("dtype", "is_quickened"), [("bfloat16", True), ("float32", False)])
def test_that_the_real_model_is_quickened_in_bfloat16_only(
    model_folder: ModelFolder, dtype: str, is_quickened: bool, single_thread: None
) -> None:
    loaded: LoadedModel = load(model_folder, "cpu", dtype)
    assert isinstance(loaded.model.lm_head, PackedLinear) is is_quickened
