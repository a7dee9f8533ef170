"""Kernels for a decode step on an NVIDIA GPU, in Triton, where torch brings it along.

In a graph of a small model each kernel takes a few microseconds, however little it computes. So what a row does with
one head of its keys is one kernel here: it rotates queries and keys, keeps the keys and values, and attends. Torch has
six for it. And it reads as many columns as are held, whatever room there is, so that one graph holds for any length.

Attention goes over blocks of columns with a running maximum, as in FlashAttention-2 (Dao, arXiv 2307.08691).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from service.engine.model.graphs import StepView
from service.engine.model.lean import AT_ONCE, LeanLayer
from service.engine.model.linear import MergedLinear
from service.engine.model.passes import Part

BLOCK: Final = 64  # columns
LEAST_SIDE: Final = 16  # of matrices that are multiplied
GATED_BLOCK: Final = 1024
EXACT: Final[dict[torch.dtype, str]] = {torch.float32: "ieee"}  # by default, float32 is multiplied in fewer bits


class FusedLinear(MergedLinear):
    """With one kernel for what follows the two halves of a feed-forward layer."""

    def joined(self, both: Tensor) -> Tensor:
        return gated(both)


@torch.library.custom_op("batchscope::gated", mutates_args=())
def gated(both: Tensor) -> Tensor:
    """SiLU of the first half of each row, times its second."""
    rows, width = len(both), both.shape[1] // 2
    result = both.new_empty(rows, width)
    _gate[(rows, triton.cdiv(width, GATED_BLOCK))](both, result, width, GATED_BLOCK)
    return result


@gated.register_fake
def _(both: Tensor) -> Tensor:
    return both.new_empty(len(both), both.shape[1] // 2)


def attended(heads: Tensor, rotation: Sequence[Tensor], part: Part, layer: LeanLayer) -> Tensor:
    """What the tokens of a step attend to in a layer, [rows, heads * size]; their keys and values are kept.

    Args:
        heads: queries, keys and values of these tokens, not rotated, [rows, heads of all three, size].
        rotation: cosines and sines, [rows, size].
        part: its mask covers all columns that are held; each token attends to itself, whatever the mask says.

    Raises:
        ValueError: for heads of a size that its matrices cannot have.
    """
    half = layer.size // 2
    if half < LEAST_SIDE or half & (half - 1):
        raise ValueError(f"heads of {layer.size} numbers are left to torch")
    cache = part.cache
    return attended_in(heads, *rotation, *cache.buffers_of(layer.index), part.mask, cache.column, layer.scale)


@torch.library.custom_op("batchscope::attended", mutates_args=("keys", "values"))
def attended_in(
    heads: Tensor,
    cosines: Tensor,
    sines: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    column: Tensor,
    scale: float,
) -> Tensor:
    """As `attended`, of the first rows of `keys` and `values`, [at least rows, heads, columns, size]."""
    rows, all_heads, size = heads.shape
    sharing = (all_heads - 2 * keys.shape[1]) // keys.shape[1]
    result = heads.new_empty(rows, sharing * keys.shape[1] * size)
    _attend[(rows, keys.shape[1])](
        heads,
        cosines,
        sines,
        keys,
        values,
        mask,
        column,
        result,
        heads.stride(0),
        keys.stride(0),
        keys.stride(1),
        mask.stride(0),
        scale,
        sharing,
        keys.shape[1],
        max(LEAST_SIDE, triton.next_power_of_2(sharing)),
        size // 2,
        BLOCK,
        EXACT.get(heads.dtype, "tf32"),
    )
    return result


@attended_in.register_fake
def _(heads: Tensor, cosines: Tensor, sines: Tensor, keys: Tensor, *_: Any) -> Tensor:
    return heads.new_empty(len(heads), (heads.shape[1] - 2 * keys.shape[1]) * heads.shape[2])


def attends(part: Part) -> bool:
    """Whether it is the step of a graph."""
    return isinstance(part.cache, StepView)


AS_FUSED: Final = AT_ONCE._replace(attended=attended, attends=attends)


@triton.jit
def _attend(
    heads,
    cosines,
    sines,
    keys,
    values,
    mask,
    column,
    result,
    heads_row,
    keys_row,
    keys_head,
    mask_row,
    scale,
    sharing: tl.constexpr,  # queries that share a key
    key_heads: tl.constexpr,
    group: tl.constexpr,  # at least as many
    half: tl.constexpr,
    block: tl.constexpr,
    precision: tl.constexpr,
):
    row, head = tl.program_id(0), tl.program_id(1)
    held = tl.load(column)
    low = tl.arange(0, half)
    of_row = row * 2 * half + low
    cosine_low, cosine_high = tl.load(cosines + of_row).to(tl.float32), tl.load(cosines + of_row + half).to(tl.float32)
    sine_low, sine_high = tl.load(sines + of_row).to(tl.float32), tl.load(sines + of_row + half).to(tl.float32)

    key_at = heads + row * heads_row + (sharing * key_heads + head) * 2 * half + low
    key_low, key_high = tl.load(key_at).to(tl.float32), tl.load(key_at + half).to(tl.float32)
    number = keys.dtype.element_ty
    new_low = (key_low * cosine_low - key_high * sine_low).to(number)
    new_high = (key_high * cosine_high + key_low * sine_high).to(number)
    value_at = key_at + key_heads * 2 * half
    value_low, value_high = tl.load(value_at), tl.load(value_at + half)
    of_head = row.to(tl.int64) * keys_row + head * keys_head
    own = of_head + held * 2 * half + low
    tl.store(keys + own, new_low)
    tl.store(keys + own + half, new_high)
    tl.store(values + own, value_low)
    tl.store(values + own + half, value_high)

    member = tl.arange(0, group)[:, None]
    of_queries = (head * sharing + member) * 2 * half + low[None, :]
    query_at = heads + row * heads_row + of_queries
    query_low = tl.load(query_at, mask=member < sharing, other=0.0).to(tl.float32)
    query_high = tl.load(query_at + half, mask=member < sharing, other=0.0).to(tl.float32)
    turned_low = (query_low * cosine_low[None, :] - query_high * sine_low[None, :]).to(number)
    turned_high = (query_high * cosine_high[None, :] + query_low * sine_high[None, :]).to(number)

    # The token attends to itself first: so there is a largest weight, even if nothing else is seen.
    products = turned_low.to(tl.float32) * new_low.to(tl.float32)[None, :]
    products += turned_high.to(tl.float32) * new_high.to(tl.float32)[None, :]
    most = tl.sum(products, axis=1) * scale
    total = tl.full((group,), 1.0, tl.float32)
    sum_low = tl.zeros((group, half), tl.float32) + value_low.to(tl.float32)[None, :]
    sum_high = tl.zeros((group, half), tl.float32) + value_high.to(tl.float32)[None, :]
    for start in range(0, held, block):
        columns = start + tl.arange(0, block)
        seen = tl.load(mask + row * mask_row + columns, mask=columns < held, other=0) != 0
        across = of_head + columns[None, :] * 2 * half + low[:, None]
        keys_low = tl.load(keys + across, mask=seen[None, :], other=0.0)
        keys_high = tl.load(keys + across + half, mask=seen[None, :], other=0.0)
        scores = tl.dot(turned_low, keys_low, input_precision=precision)
        scores = tl.dot(turned_high, keys_high, scores, input_precision=precision) * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        greater = tl.maximum(most, tl.max(scores, axis=1))
        weights = tl.exp(scores - greater[:, None])
        shrunk = tl.exp(most - greater)
        total = total * shrunk + tl.sum(weights, axis=1)
        down = of_head + columns[:, None] * 2 * half + low[None, :]
        values_low = tl.load(values + down, mask=seen[:, None], other=0.0)
        values_high = tl.load(values + down + half, mask=seen[:, None], other=0.0)
        weights = weights.to(number)
        sum_low = tl.dot(weights, values_low, sum_low * shrunk[:, None], input_precision=precision)
        sum_high = tl.dot(weights, values_high, sum_high * shrunk[:, None], input_precision=precision)
        most = greater
    result_at = result + row * sharing * key_heads * 2 * half + of_queries
    tl.store(result_at, (sum_low / total[:, None]).to(number), mask=member < sharing)
    tl.store(result_at + half, (sum_high / total[:, None]).to(number), mask=member < sharing)


@triton.jit
def _gate(both, result, width, block: tl.constexpr):
    """SiLU of the first half of each row, times its second."""
    row, at = tl.program_id(0), tl.program_id(1) * block + tl.arange(0, block)
    inside = at < width
    gates = tl.load(both + row * 2 * width + at, mask=inside).to(tl.float32)
    others = tl.load(both + row * 2 * width + width + at, mask=inside).to(tl.float32)
    tl.store(result + row * width + at, (gates * tl.sigmoid(gates) * others).to(result.dtype.element_ty), mask=inside)
