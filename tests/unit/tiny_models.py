"""Random models and tokenizers small enough to compute thousands of steps a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from service.engine.engine import TextEngine
from service.engine.job import Progress, SamplingParams, Sequence
from service.engine.model.graphs import GraphedPass
from service.engine.model.load import LoadedModel
from service.engine.model.passes import ForwardPass, OwnPass
from service.engine.row import byte_alphabet
from service.messages.telemetry import BatchWork

END = "<|end|>"
CONTEXT = 128
LAYERS = 2
_VOCABULARY = 260


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """GPT-2's kind: a token for each byte."""
    vocabulary = {character: number for number, character in enumerate(byte_alphabet())}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(["  "])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END)


def byte_fallback_tokenizer() -> PreTrainedTokenizerFast:
    """Llama 2's kind: words with a mark for the space before them, bytes for what the vocabulary lacks."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz"]
    vocabulary = {word: number for number, word in enumerate(words)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END)


def tiny_llama(layers: int = LAYERS, head_size: int = 8) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=_VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_size,
        max_position_embeddings=CONTEXT,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def tiny_gpt2() -> Any:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=_VOCABULARY,
        n_embd=32,
        n_layer=LAYERS,
        n_head=4,
        n_positions=CONTEXT,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config).eval().requires_grad_(False)


def tiny_of(kind: str, **changes: Any) -> Any:
    """Of an architecture by the name that its configurations have."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind,
        **{
            "vocab_size": _VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 512,
            "initializer_range": 0.3,
            "pad_token_id": 0,
            "bos_token_id": None,
            "eos_token_id": None,
            **changes,
        },
    )
    return AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)


def loaded(model: Any, tokenizer: Any = None, forward: ForwardPass | None = None) -> LoadedModel:
    """Computes as transformers does, unless another forward pass is given."""
    tokenizer, device = tokenizer or byte_level_tokenizer(), torch.device("cpu")
    return LoadedModel(
        name="tiny",
        forward=forward or OwnPass(model, device),
        tokenizer=tokenizer,
        device=device,
        dtype=torch.float32,
        context_length=CONTEXT,
        vocabulary=model.get_input_embeddings().num_embeddings,
        end_tokens=frozenset({tokenizer.eos_token_id}),
        layers=LAYERS,
    )


def as_traced_graph(compute: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """What a CUDA graph does, on any device: operations on the tensors of the time, and nothing of Python."""
    graph = make_fx(compute)()
    return lambda: graph()


def graphed(lean: ForwardPass) -> GraphedPass:
    """With buckets so small that texts outgrow them."""
    return GraphedPass(
        lean, torch.device("cpu"), as_traced_graph, LAYERS, rows=(1, 2, 4), columns=(8, 24), prompts=((2, 8),)
    )


def sequence(engine: TextEngine, prompt: str, **sampling: Any) -> Sequence:
    params = SamplingParams(**sampling)
    return Sequence(prompt, engine.encode(prompt, params.max_tokens), params)


class Listener:
    """An `emit` that remembers: the text and the one ending of each sequence, and what the batch computed."""

    def __init__(self) -> None:
        self.work = BatchWork()
        self.steps: list[list[Progress]] = []
        self.texts: dict[str, str] = {}
        self.endings: dict[str, Progress] = {}

    def __call__(self, progress: list[Progress]) -> None:
        self.steps.append(progress)
        for each in progress:
            name = each.job.id
            assert name not in self.endings, f"{name} went on after its end"
            self.texts[name] = self.texts.get(name, "") + each.text
            if each.finish_reason is not None:
                self.endings[name] = each

    def reason(self, name: str) -> str | None:
        return self.endings[name].finish_reason


def run(engine: TextEngine, *sequences: Sequence) -> Listener:
    listener = Listener()
    listener.work = engine.generate(list(sequences), listener)
    assert set(listener.endings) == {each.id for each in sequences}
    return listener


def published(bits: int, outputs: int, inputs: int) -> torch.Tensor:
    """Weights as they are published in 4 or 8 bits, with a scale for 32 inputs each. In bfloat16 they are exact."""
    blocks, largest = -(-inputs // 32), 2**bits - 1
    whole = torch.randint(0, largest + 1, (outputs, blocks, 32))
    whole[..., 0], whole[..., 1] = largest, 0 if bits == 4 else 1
    zeros = torch.randint(1, largest, (outputs, blocks, 1)) if bits == 4 else torch.tensor(128)
    scales = 2.0 ** torch.randint(-9, -4, (outputs, blocks, 1))
    return ((whole - zeros).clamp(min=-127) * scales).flatten(1)[:, :inputs].bfloat16()
