"""Linear layers for a processor whose kernels are our own: `service.engine.model.kernels`."""

from __future__ import annotations

import functools
import time
from typing import ClassVar, Final, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from service.engine.model import kernels
from service.engine.model.kernels import Task
from service.engine.model.linear import OnlyInferring
from service.engine.model.vectors import BLOCKS, GROUP, HAS_PAIRS, LANES

WIDEST: Final = (2**31 - 1) // (255 * kernels.LARGEST)  # inputs whose products a sum of 32 bits holds
TRIED_ROWS, TRIED_INPUTS, TRIED_OUTPUTS = 16, 576, 3072
TRIALS: Final = 20
WORTH_ROUNDING: Final = 1.2  # times as quick
OUTPUTS: Final = 8  # in the task of a product: their address
TINIEST: Final = torch.finfo(torch.float32).tiny


class Weights(Protocol):
    """Of one matrix, or of two that get the same inputs, of which the first gates the second."""

    @classmethod
    def of(cls, *matrices: Tensor) -> Self:
        """Of matrices of one shape, [outputs, inputs]. Raises `ValueError` if no kernel takes them."""

    @property
    def outputs(self) -> int:
        """How many a matrix has."""

    def tasks(self, inputs: Tensor, outputs: Tensor, before: Tensor | None, room: Room) -> list[Task]:
        """How to make `outputs`, float32, [rows, outputs], the products of `inputs`, [rows, inputs], with the matrix.

        `before` is added, if it is given. Of two matrices it is the product with the second, times what SiLU gives of
        the product with the first.
        """


class Room:
    """Memory for up to `most_rows` rows, by what is kept there. Tasks of a program share it, since none overlap."""

    def __init__(self, most_rows: int) -> None:
        self.most_rows = most_rows
        self._held: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def of(self, name: str, rows: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """[rows, *shape]; the same place whenever it is asked for."""
        if (name, shape) not in self._held:
            self._held[name, shape] = torch.empty(self.most_rows, *shape, dtype=dtype)
        return self._held[name, shape][:rows]


def product(weights: Weights, inputs: Tensor, before: Tensor | None = None) -> Tensor:
    """The products of `inputs`, float32, [rows, inputs], with the matrix: float32, [rows, outputs].

    `before` is added, if it is given. Of two matrices see `Weights.tasks`.
    """
    outputs, room = torch.empty(len(inputs), weights.outputs), Room(len(inputs))
    kernels.run(kernels.as_program(*weights.tasks(inputs, outputs, before, room)), torch.get_num_threads())
    return outputs


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

    def tasks(self, inputs: Tensor, outputs: Tensor, before: Tensor | None, room: Room) -> list[Task]:
        return [self.task(inputs, outputs, before)]

    def task(self, inputs: Tensor, outputs: Tensor, before: Tensor | None) -> Task:
        """As `tasks`, of inputs in float32, or in bfloat16 where the processor `HAS_PAIRS`."""
        places = addresses(inputs, self.packed, outputs if before is None else before, outputs)
        are_halves = int(inputs.dtype == torch.bfloat16)
        return kernels.PRODUCT, _kind(self.packed, before), *inputs.shape, self.outputs, *places, are_halves


class PairWeights(HalfWeights):
    """The same for a processor that `HAS_PAIRS`: inputs are rounded to bfloat16."""

    def tasks(self, inputs: Tensor, outputs: Tensor, before: Tensor | None, room: Room) -> list[Task]:
        halves = room.of("halves", *inputs.shape, dtype=torch.bfloat16)
        rounding = (kernels.AS_HALVES, inputs.numel(), *addresses(inputs, halves))
        return [rounding, self.task(halves, outputs, before)]


@functools.cache
def pairs_are_quicker() -> bool:
    """Whether this processor takes products of bfloat16 with bfloat16 much more quickly than with float32.

    It is tried out: of two that were measured, one takes half as long for them, the other twice as long.
    """
    if not HAS_PAIRS:
        return False
    matrix, inputs = torch.ones(TRIED_OUTPUTS, TRIED_INPUTS).bfloat16(), torch.ones(TRIED_ROWS, TRIED_INPUTS)
    outputs, room = torch.empty(TRIED_ROWS, TRIED_OUTPUTS), Room(TRIED_ROWS)
    tried = [kind.of(matrix) for kind in (HalfWeights, PairWeights)]
    programs = [kernels.as_program(*weights.tasks(inputs, outputs, None, room)) for weights in tried]
    of_floats_s, of_pairs_s = (min(timed_s(program) for _ in range(TRIALS)) for program in programs)
    return WORTH_ROUNDING * of_pairs_s < of_floats_s


def timed_s(program: NDArray[np.int64]) -> float:
    begun_s = time.perf_counter()
    kernels.run(program, torch.get_num_threads())
    return time.perf_counter() - begun_s


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

    def tasks(self, inputs: Tensor, outputs: Tensor, before: Tensor | None, room: Room) -> list[Task]:
        rows, length = inputs.shape
        padded = 4 * self.packed.shape[3]
        largest, as_bytes = room.of("largest", rows), room.of("bytes", rows, 2, padded, dtype=torch.uint8)
        packing = (rows, length, padded, *addresses(inputs, largest, as_bytes))
        places = addresses(
            as_bytes, self.packed, outputs if before is None else before, outputs, largest, self.scales, self.shifts
        )
        given = (_kind(self.packed, before), rows, padded, self.outputs, *places)
        return [
            (kernels.AS_BYTES, *packing),
            (kernels.BYTE_PRODUCT, *given),
        ]


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


def addresses(*tensors: Tensor | None) -> list[int]:
    return [0 if each is None else each.data_ptr() for each in tensors]


class TiledLinear(OnlyInferring):
    """With weights in bfloat16. Gives a row the same bits alone and beside others."""

    kind: ClassVar[type[Weights]] = HalfWeights
    weights: Weights
    bias: Tensor | None

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__()
        self.weights = self.kind.of(torch.cat([layer.weight.detach() for layer in layers]))
        has_bias = layers[0].bias is not None
        self.bias = torch.cat([layer.bias.detach() for layer in layers]) if has_bias else None

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.reshape(-1, inputs.shape[-1]).float().contiguous()
        outputs = product(self.weights, rows)
        if self.bias is not None:
            outputs += self.bias
        return outputs.view(*inputs.shape[:-1], -1).to(inputs.dtype)

    def added(self, inputs: Tensor, before: Tensor) -> Tensor:
        if self.bias is not None or inputs.dtype != torch.float32:
            return super().added(inputs, before)
        return product(self.weights, inputs, before)

    @classmethod
    def gated(cls, gates: nn.Linear, others: nn.Linear) -> nn.Module:
        return super().gated(gates, others) if gates.bias is not None else TiledGates(cls.kind, gates, others)


class PairLinear(TiledLinear):
    """With weights in bfloat16, and inputs that are rounded to it."""

    kind = PairWeights


class EightBitLinear(TiledLinear):
    """With weights in 8 bits. Each output has a scale of its own, by which its largest weight becomes 127.

    Inputs are whole numbers of 16 bits, with a scale for each row, by which its largest becomes 32,512. Their high and
    their low bytes are two rows of one product of bytes, whose sums are exact.
    """

    kind = ByteWeights


class TiledGates(nn.Module):
    """Two layers without bias in one product, of which the first gates the second."""

    weights: Weights
    bias = None

    def __init__(self, kind: type[Weights], gates: nn.Linear, others: nn.Linear) -> None:
        super().__init__()
        self.weights = kind.of(gates.weight.detach(), others.weight.detach())

    def forward(self, inputs: Tensor) -> Tensor:
        return product(self.weights, inputs)
