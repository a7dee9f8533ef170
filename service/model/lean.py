"""Llama's layers in as few operations as they take.

A decode step of a small model is hundreds of operations of a few microseconds each, and what calls them costs as much
as they do. Here queries, keys and values come from one product, as do the two halves of the feed-forward layer, and
queries and keys are rotated together. Every number is rounded where transformers rounds it, so the results are the same
to the last bit; everything else of the model is transformers' own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from service.model.packed import PackedLinear


class LeanRotation(nn.Module):
    """Cosines and sines of the positions, ready to be multiplied with [rows, columns, heads, size]."""

    def __init__(self, rotation: Any) -> None:
        super().__init__()
        self._rotation = rotation

    def forward(self, inputs: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        cosines, sines = self._rotation(inputs, position_ids=position_ids)
        low, high = sines.chunk(2, dim=-1)
        return cosines.unsqueeze(2), torch.cat((-low, high), dim=-1).unsqueeze(2)


class LeanLayer(nn.Module):
    """A decoder layer."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self._index: int = attention.layer_idx
        self._scale: float = attention.scaling
        self._size: int = attention.head_dim
        self._queries = attention.q_proj.out_features // self._size
        self._keys = attention.k_proj.out_features // self._size
        self._qkv = PackedLinear(attention.q_proj, attention.k_proj, attention.v_proj)
        self._out = PackedLinear(attention.o_proj)
        self._gate_up = PackedLinear(mlp.gate_proj, mlp.up_proj)
        self._down = PackedLinear(mlp.down_proj)
        self._before_attention, self._before_mlp = layer.input_layernorm, layer.post_attention_layernorm

    def forward(
        self,
        hidden: Tensor,
        *,
        attention_mask: Tensor | None,
        position_embeddings: tuple[Tensor, Tensor],
        past_key_values: Any = None,
        **_: Any,
    ) -> Tensor:
        attended = self._attend(
            normalized(hidden, self._before_attention), attention_mask, position_embeddings, past_key_values
        )
        hidden = hidden + attended
        gate, up = self._gate_up(normalized(hidden, self._before_mlp)).chunk(2, dim=-1)
        result: Tensor = hidden + self._down(functional.silu(gate) * up)
        return result

    def _attend(self, inputs: Tensor, mask: Tensor | None, rotation: tuple[Tensor, Tensor], cache: Any) -> Tensor:
        rows, columns, _ = inputs.shape
        heads = self._qkv(inputs).view(rows, columns, -1, self._size)
        rotated = rotate(heads[:, :, : self._queries + self._keys], *rotation)
        queries, keys = torch.split(rotated.transpose(1, 2), [self._queries, self._keys], dim=1)
        values = heads[:, :, self._queries + self._keys :].transpose(1, 2)
        if cache is not None:
            keys, values = cache.update(keys, values, self._index)
        if columns == 1:  # all queries that share a key are rows of one product
            queries = queries.reshape(rows, self._keys, -1, self._size)
        is_causal = mask is None and columns > 1
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, mask, is_causal=is_causal, scale=self._scale, enable_gqa=columns > 1
        )
        if columns > 1:
            attended = attended.transpose(1, 2)
        result: Tensor = self._out(attended.reshape(rows, columns, -1))
        return result


def normalized(inputs: Tensor, norm: Any) -> Tensor:
    """By the root of the mean square; rounded before the weights count, as transformers does."""
    result: Tensor = norm.weight * functional.rms_norm(inputs, inputs.shape[-1:], None, norm.variance_epsilon)
    return result


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary positions; `sines` have the signs of the halves that change places."""
    low, high = heads.chunk(2, dim=-1)
    return heads * cosines + torch.cat((high, low), dim=-1) * sines
