"""Layers for a processor whose kernels are our own: `service.engine.model.kernels`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn

from service.engine.model import kernels
from service.engine.model.lean import Operators, halves_rotated
from service.engine.model.linear import OnlyInferring
from service.engine.model.vectors import BLOCKS, GROUP, LANES

ALONE: Final = 1 << 14  # numbers, up to which one thread is done before others have begun
WIDEST: Final = (2**31 - 1) // (255 * kernels.LARGEST)  # inputs whose products a sum of 32 bits holds
TINIEST: Final = torch.finfo(torch.float32).tiny


class Weights(Protocol):
    """Of one matrix, or of two that get the same inputs, of which the first gates the second."""

    @classmethod
    def of(cls, *matrices: Tensor) -> Self:
        """Of matrices of one shape, [outputs, inputs]. Raises `ValueError` if no kernel takes them."""

    def product(self, inputs: Tensor, before: Tensor | None = None) -> Tensor:
        """The products of `inputs`, float32, [rows, inputs], with the matrix: float32, [rows, outputs].

        `before` is added, if it is given. Of two matrices it is the product with the second, times what SiLU gives of
        the product with the first.
        """


class HalfWeights(NamedTuple):
    """In bfloat16, packed: [groups, matrices, blocks, inputs / 2, lanes, 2]. Zeros stand for what a group lacks."""

    packed: Tensor
    outputs: int

    @classmethod
    def of(cls, *matrices: Tensor) -> Self:
        outputs, length = matrices[0].shape
        if matrices[0].dtype != torch.bfloat16 or length % 2:
            raise ValueError(f"no kernel takes weights in {matrices[0].dtype} with {length} inputs")
        return cls(torch.stack([_in_groups(each, 2) for each in matrices], dim=1), outputs)

    def product(self, inputs: Tensor, before: Tensor | None = None) -> Tensor:
        rows, length = inputs.shape
        outputs = torch.empty(rows, self.outputs)
        places = _addresses(inputs, self.packed, outputs if before is None else before, outputs)
        kind = _kind(self.packed, before)
        kernels.start(kernels.product_kernel, torch.get_num_threads(), kind, rows, length, self.outputs, *places)
        return outputs


class ByteWeights(NamedTuple):
    """In 8 bits, with inputs of 16. For a processor with VNNI.

    Attributes:
        packed: [groups, matrices, blocks, inputs / 4, lanes, 4].
        scales: of each output, float32, [groups, matrices, outputs of a group].
        shifts: what the sums of an output are too large by, since each byte of an input is.
        outputs: how many a matrix has.
    """

    packed: Tensor
    scales: Tensor
    shifts: Tensor
    outputs: int

    @classmethod
    def of(cls, *matrices: Tensor) -> Self:
        outputs, length = matrices[0].shape
        if length > WIDEST:
            raise ValueError(f"a layer has {length:,} inputs, more than {WIDEST:,}")
        scales = [(each.float().abs().amax(dim=1) / kernels.LARGEST).clamp_(min=TINIEST) for each in matrices]
        whole = [
            (each.float() / scale[:, None]).round_().clamp_(-kernels.LARGEST, kernels.LARGEST).to(torch.int8)
            for each, scale in zip(matrices, scales, strict=True)
        ]
        shifts = [kernels.BYTE_ZERO * each.sum(dim=1, dtype=torch.int32) for each in whole]
        return cls(
            torch.stack([_in_groups(each, 4) for each in whole], dim=1),
            torch.stack([_in_groups(each[:, None] / kernels.LARGEST_INPUT) for each in scales], dim=1),
            torch.stack([_in_groups(each[:, None]) for each in shifts], dim=1),
            outputs,
        )

    def product(self, inputs: Tensor, before: Tensor | None = None) -> Tensor:
        rows, length = inputs.shape
        padded = 4 * self.packed.shape[3]
        outputs, largest = torch.empty(rows, self.outputs), torch.empty(rows)
        as_bytes = torch.empty(rows, 2, padded, dtype=torch.uint8)
        places = _addresses(inputs, largest, as_bytes)
        kernels.start(kernels.as_bytes_kernel, _threads_for(inputs.numel()), rows, length, padded, *places)
        places = _addresses(
            as_bytes, self.packed, outputs if before is None else before, outputs, largest, self.scales, self.shifts
        )
        kind = _kind(self.packed, before)
        kernels.start(kernels.byte_product_kernel, torch.get_num_threads(), kind, rows, padded, self.outputs, *places)
        return outputs


def _in_groups(matrix: Tensor, together: int = 1) -> Tensor:
    """[outputs, inputs] as [groups, blocks, inputs / together, lanes, together], filled up with zeros."""
    outputs, length = matrix.shape
    filled = matrix.new_zeros(-(-outputs // GROUP) * GROUP, -(-length // together) * together)
    filled[:outputs, :length] = matrix
    return filled.view(-1, BLOCKS, LANES, filled.shape[1] // together, together).transpose(2, 3).contiguous()


def _kind(packed: Tensor, before: Tensor | None) -> int:
    if packed.shape[1] == 2:
        return kernels.GATED
    return kernels.PLAIN if before is None else kernels.ADDED


def _threads_for(numbers: int) -> int:
    return 1 if numbers < ALONE else torch.get_num_threads()


def _bits(number: float) -> int:
    """Of its float32."""
    return int.from_bytes(struct.pack("<f", number), "little")


def _addresses(*tensors: Tensor | None) -> list[int]:
    return [0 if each is None else each.data_ptr() for each in tensors]


class TiledLinear(OnlyInferring):
    """With weights in bfloat16. Gives a row the same bits alone and beside others."""

    weights: ClassVar[type[Weights]] = HalfWeights

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__()
        self._weights = self.weights.of(torch.cat([layer.weight.detach() for layer in layers]))
        has_bias = layers[0].bias is not None
        self._bias = torch.cat([layer.bias.detach() for layer in layers]) if has_bias else None

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.reshape(-1, inputs.shape[-1]).float().contiguous()
        outputs = self._weights.product(rows)
        if self._bias is not None:
            outputs += self._bias
        return outputs.view(*inputs.shape[:-1], -1).to(inputs.dtype)

    def added(self, inputs: Tensor, before: Tensor) -> Tensor:
        if self._bias is not None or inputs.dtype != torch.float32:
            return super().added(inputs, before)
        return self._weights.product(inputs, before)

    @classmethod
    def gated(cls, gates: nn.Linear, others: nn.Linear) -> nn.Module:
        return super().gated(gates, others) if gates.bias is not None else _TiledGates(cls.weights, gates, others)


class EightBitLinear(TiledLinear):
    """With weights in 8 bits. Each output has a scale of its own, by which its largest weight becomes 127.

    Inputs are whole numbers of 16 bits, with a scale for each row, by which its largest becomes 32,512. Their high and
    their low bytes are two rows of one product of bytes, whose sums are exact.
    """

    weights = ByteWeights


class _TiledGates(nn.Module):
    """Two layers without bias in one product, of which the first gates the second."""

    def __init__(self, weights: type[Weights], gates: nn.Linear, others: nn.Linear) -> None:
        super().__init__()
        self._weights = weights.of(gates.weight.detach(), others.weight.detach())

    def forward(self, inputs: Tensor) -> Tensor:
        return self._weights.product(inputs)


def _normalized(inputs: Tensor, norm: Any) -> Tensor:
    """`inputs`, float32, [rows, length], by the root of their mean square, times the bfloat16 weights of `norm`."""
    outputs = torch.empty_like(inputs)
    places = _addresses(inputs, norm.weight, outputs)
    kernels.start(
        kernels.normalized_kernel, _threads_for(inputs.numel()), *inputs.shape, *places, _bits(norm.variance_epsilon)
    )
    return outputs


def _attended(
    inputs: Tensor,
    rotation: Sequence[Tensor],
    keys: Tensor,
    values: Tensor,
    ends: Tensor | None,
    visible: Tensor | None,
    scale: float,
) -> Tensor:
    """What one token of each row attends to, itself included: float32, [rows, heads * size].

    Args:
        inputs: queries, keys and values of these tokens, float32, [rows, heads of all three, size].
        rotation: cosines and sines, float32, [rows, size].
        keys: bfloat16, [rows, heads, columns, size], to which those of these tokens are written.
        values: the same.
        ends: the column of each row to which they are written; ``None``: the last.
        visible: which columns a row attends to, [rows, columns]; ``None``: all.
        scale: of the products of queries and keys.
    """
    rows, heads, columns, size = keys.shape
    sharing = inputs.shape[1] // heads - 2
    outputs = torch.empty(rows, heads * sharing * size)
    sizes = (rows, heads, sharing, size, columns, keys.stride(0), keys.stride(1))
    places = _addresses(inputs, *rotation, keys, values, ends, visible, outputs)
    kernels.start(kernels.attended_kernel, _threads_for(keys.numel()), *sizes, *places, _bits(scale))
    return outputs


def _rotation(cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    return cosines.contiguous(), sines.contiguous()


BY_KERNELS: Final = Operators(_normalized, _rotation, halves_rotated, torch.float32, _attended)
