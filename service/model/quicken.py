"""Lets a model on the CPU compute the same in less time: packed weights, and a Llama in fewer operations.

`python -m tests.benchmarks.quickened` tells by how much.
"""

from __future__ import annotations

import logging
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from service.model.lean import LeanLayer, LeanRotation
from service.model.packed import PackedLinear

logger = logging.getLogger(__name__)


def quicken(model: Any) -> None:
    """Replace the layers of a model in bfloat16 that computes on the CPU.

    Its results stay the same, which is tried out; a model for which they do not, or for which memory lacks to hold both
    kinds of layers for a moment, stays as it is.
    """
    has_kernels = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch gives it no types
    if not has_kernels or _bytes(model) > psutil.virtual_memory().available:
        return
    replaced: list[tuple[nn.Module, str, nn.Module]] = []
    expected = _logits(model)
    try:
        _replace_layers(model, replaced)
        if not torch.equal(_logits(model), expected):
            raise ValueError("its results would be others")
    except Exception as error:  # such as of an architecture that looks at its layers' weights
        for parent, name, child in replaced:
            setattr(parent, name, child)
        logger.warning("The model keeps its layers as they are, which is slower: %s", error)


def _replace_layers(parent: nn.Module, replaced: list[tuple[nn.Module, str, nn.Module]]) -> None:
    for name, child in list(parent.named_children()):
        quicker = _quicker(child)
        if quicker is None:
            _replace_layers(child, replaced)
        else:
            replaced.append((parent, name, child))
            setattr(parent, name, quicker)


def _quicker(layer: nn.Module) -> nn.Module | None:
    """What computes the same as this very kind of layer; a subclass may compute something else."""
    if type(layer) is LlamaDecoderLayer:
        return LeanLayer(layer)
    if type(layer) is LlamaRotaryEmbedding:
        return LeanRotation(layer)
    return PackedLinear(layer) if type(layer) is nn.Linear else None


def _bytes(model: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in model.parameters())


@torch.inference_mode()
def _logits(model: Any) -> Tensor:
    """For two rows of a few columns, one of them padded."""
    ids = torch.arange(8).reshape(2, 4) % model.get_input_embeddings().num_embeddings
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1]])
    logits: Tensor = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, 1:]
    return logits
