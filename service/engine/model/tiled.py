"""Linear layers for a processor whose kernels are our own: `service.engine.model.kernels`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from service.engine.model import kernels
from service.engine.model.kernels import Task
from service.engine.model.linear import OnlyInferring
from service.engine.model.vectors import BLOCK, BLOCKS, GROUP, HAS_PAIRS, LANES, input_block_bytes

TRIED_ROWS, TRIED_INPUTS, TRIED_OUTPUTS = 16, 576, 3072
TRIALS: Final = 20
WORTH_ROUNDING: Final = 1.2  # times as quick
MANY_ROWS: Final = 8  # from here on numbers in few bits take more time than bfloat16, which is read from more memory
OUTPUTS: Final = 8  # in the task of a product: their address
TINIEST: Final = torch.finfo(torch.float32).tiny
LEVELS: Final = 16  # of a weight in 4 bits
LARGEST: Final = 127  # of a weight in 8 bits, which `BYTE_ZERO` is added to
BYTE_ZERO: Final = 128
MOST_FITTED: Final = 1 << 20  # weights at a time, which takes some 30 MB
NEAR: Final = 1.5 * 2**-8  # of the largest of its block, what rounding to bfloat16 and a scale may change of a weight
BY_CHANCE: Final = 0.25  # of a scale, by which numbers are rounded on average


class Weights(Protocol):
    """Of one matrix, or of two that get the same inputs, of which the first gates the second."""

    @classmethod
    def of(cls, *matrices: Tensor) -> Self:
        """Of matrices of one shape, [outputs, inputs]. Raises `ValueError` if no kernel takes them."""

    @property
    def packed(self) -> Tensor:
        """As a kernel reads them."""

    @property
    def outputs(self) -> int:
        """How many a matrix has."""

    def tasks(
        self, inputs: Tensor, outputs: Tensor, before: Tensor | None, room: Room, *, are_many: bool
    ) -> list[Task]:
        """How to make `outputs`, float32, [rows, outputs], the products of `inputs`, [rows, inputs], with the matrix.

        `before` is added, if it is given. Of two matrices it is the product with the second, times what SiLU gives of
        the product with the first. Where weights are kept for few rows and for many, `are_many` chooses.
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
    tasks = weights.tasks(inputs, outputs, before, room, are_many=len(inputs) >= MANY_ROWS)
    kernels.run(kernels.as_program(*tasks), torch.get_num_threads())
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

    def tasks(
        self, inputs: Tensor, outputs: Tensor, before: Tensor | None, room: Room, *, are_many: bool
    ) -> list[Task]:
        return [self.task(inputs, outputs, before)]

    def task(self, inputs: Tensor, outputs: Tensor, before: Tensor | None) -> Task:
        """As `tasks`, of inputs in float32, or in bfloat16 where the processor `HAS_PAIRS`."""
        places = addresses(inputs, self.packed, outputs if before is None else before, outputs)
        of = kernels.PAIRS if inputs.dtype == torch.bfloat16 else kernels.FLOATS
        return kernels.PRODUCT, _kind(self.packed, before), *inputs.shape, self.outputs, *places, of


class PairWeights(HalfWeights):
    """The same for a processor that `HAS_PAIRS`: inputs are rounded to bfloat16."""

    def tasks(
        self, inputs: Tensor, outputs: Tensor, before: Tensor | None, room: Room, *, are_many: bool
    ) -> list[Task]:
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
    programs = [kernels.as_program(*weights.tasks(inputs, outputs, None, room, are_many=True)) for weights in tried]
    of_floats_s, of_pairs_s = (min(timed_s(program) for _ in range(TRIALS)) for program in programs)
    return WORTH_ROUNDING * of_pairs_s < of_floats_s


def timed_s(program: NDArray[np.int64]) -> float:
    begun_s = time.perf_counter()
    kernels.run(program, torch.get_num_threads())
    return time.perf_counter() - begun_s


class BlockWeights(NamedTuple):
    """In 4 or 8 bits, with a scale for each output of each block of inputs. For a processor with VNNI.

    A weight is `scale` times a whole number without a sign, and `lowest`. Inputs become whole numbers too, with a scale
    for each block of a row.

    Attributes:
        packed: uint8, [groups, matrices, BLOCKS, blocks of inputs, bytes]: of each block the whole numbers, four inputs
            of each of `LANES` outputs after four others, then scales and lowest in float16, [2, LANES].
        bits: of a weight.
        outputs: how many a matrix has.
        input_bits: 16, which change hardly any result, or 8, which take half of the time where rows are many.
    """

    packed: Tensor
    bits: int
    outputs: int
    input_bits: int = 16

    @classmethod
    def of(cls, *matrices: Tensor, rounds: bool = True) -> Self:
        """In 4 bits where the weights were published so, and else in 8.

        With `rounds` they are rounded to 8 bits; without it there is a `ValueError` if they were not published so.
        """
        for bits, may_round in ((4, False), (8, rounds)):
            packed = [_in_blocks(each, bits, may_round) for each in matrices]
            if all(each is not None for each in packed):
                return cls(torch.stack(packed, dim=1), bits, len(matrices[0]))  # type: ignore[arg-type]  # none is None
        raise ValueError("the weights were not published in 4 or 8 bits")

    def tasks(
        self, inputs: Tensor, outputs: Tensor, before: Tensor | None, room: Room, *, are_many: bool
    ) -> list[Task]:
        rows, length = inputs.shape
        blocks = room.of("blocks", rows, -(-length // BLOCK), input_block_bytes(self.input_bits), dtype=torch.uint8)
        places = addresses(blocks, self.packed, outputs if before is None else before, outputs)
        of = kernels.NIBBLES if self.bits == 4 else kernels.BYTES
        return [
            (kernels.AS_BLOCKS, rows, length, *addresses(inputs, blocks), self.input_bits),
            (kernels.PRODUCT, _kind(self.packed, before), rows, length, self.outputs, *places, of, self.input_bits),
        ]


class TwofoldWeights(NamedTuple):
    """In few bits for few rows, and rounded to bfloat16 for many."""

    few: BlockWeights
    many: PairWeights

    @classmethod
    def of(cls, *matrices: Tensor) -> Self:
        """Raises `ValueError` if they were not published in 4 or 8 bits."""
        return cls(BlockWeights.of(*matrices, rounds=False), PairWeights.of(*matrices))

    @property
    def packed(self) -> Tensor:
        return self.few.packed

    @property
    def outputs(self) -> int:
        return self.few.outputs

    def tasks(
        self, inputs: Tensor, outputs: Tensor, before: Tensor | None, room: Room, *, are_many: bool
    ) -> list[Task]:
        weights = self.many if are_many else self.few
        return weights.tasks(inputs, outputs, before, room, are_many=are_many)


def as_published(*matrices: Tensor) -> Weights:
    """In 4 or 8 bits if the weights were published so, and else in bfloat16."""
    try:
        return BlockWeights.of(*matrices, rounds=False)
    except ValueError:
        return in_halves(*matrices)


def as_published_and_in_halves(*matrices: Tensor) -> Weights:
    """The same, and for many rows in bfloat16 too, where that is quicker."""
    if not pairs_are_quicker():
        return as_published(*matrices)
    try:
        return TwofoldWeights.of(*matrices)
    except ValueError:
        return in_halves(*matrices)


def in_bytes(*matrices: Tensor) -> Weights:
    """In 8 bits, or in 4 if the weights were published so, with inputs in 8 bits."""
    return BlockWeights.of(*matrices)._replace(input_bits=8)


def in_halves(*matrices: Tensor) -> Weights:
    """In bfloat16, with inputs as this processor takes them quickest."""
    return (PairWeights if pairs_are_quicker() else HalfWeights).of(*matrices)


def _in_groups(matrix: Tensor, together: int) -> Tensor:
    """[outputs, inputs] as [groups, blocks, inputs / together, lanes, together], filled up with zeros."""
    filled = _filled(matrix, GROUP, together)
    return filled.view(-1, BLOCKS, LANES, filled.shape[1] // together, together).transpose(2, 3).contiguous()


def _filled(matrix: Tensor, outputs: int, inputs: int) -> Tensor:
    """With zeros, to multiples of these."""
    filled = matrix.new_zeros(*(-(-size // of) * of for size, of in zip(matrix.shape, (outputs, inputs), strict=True)))
    filled[: matrix.shape[0], : matrix.shape[1]] = matrix
    return filled


def _in_blocks(matrix: Tensor, bits: int, may_round: bool) -> Tensor | None:
    """[outputs, inputs] as `BlockWeights.packed` has a matrix; ``None`` where it must not be rounded and would be."""
    parts = []
    for part in torch.split(matrix, GROUP * max(1, MOST_FITTED // (GROUP * matrix.shape[1]))):
        blocks = _filled(part, GROUP, BLOCK).float()
        blocks = blocks.view(len(blocks), -1, BLOCK).permute(2, 0, 1).contiguous()
        whole, *others = _in_nibbles(blocks) if bits == 4 else _in_bytes(blocks)
        scales, lowest = (each.half() for each in others)
        if not (may_round or _are_alike(blocks, whole, scales.float(), lowest.float())):
            return None
        parts.append(_packed(bits, whole, scales, lowest))
    return torch.cat(parts)


def _in_nibbles(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whole numbers up to 15, scales and lowest, by least squares, of weights, [BLOCK, outputs, blocks]."""
    lowest = blocks.amin(0)
    scales = (blocks.amax(0) - lowest) / (LEVELS - 1)
    whole = ((blocks - lowest) / scales.clamp(min=TINIEST)).round_()
    apart = whole - whole.mean(0)
    scales = (apart * blocks).sum(0) / apart.square().sum(0).clamp_(min=TINIEST)
    return whole, scales, blocks.mean(0) - scales * whole.mean(0)


def _in_bytes(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same up to 255, of which `BYTE_ZERO` stands for 0."""
    scales = blocks.abs().amax(0) / LARGEST
    whole = (blocks / scales.clamp(min=TINIEST)).round_()
    scales = (whole * blocks).sum(0) / whole.square().sum(0).clamp_(min=TINIEST)
    whole = (blocks / scales.clamp(min=TINIEST)).round_().clamp_(-LARGEST, LARGEST)
    return whole + BYTE_ZERO, scales, -BYTE_ZERO * scales


def _are_alike(blocks: Tensor, whole: Tensor, scales: Tensor, lowest: Tensor) -> bool:
    """Whether weights are what these numbers say, but for being rounded to bfloat16: by chance none of a matrix are."""
    apart = (whole * scales + lowest - blocks).abs_()
    is_near = (apart <= NEAR * blocks.abs().amax(0)).all()
    return bool(is_near) and apart.mean().item() <= BY_CHANCE / 2 * scales.mean().item()


def _packed(bits: int, whole: Tensor, scales: Tensor, lowest: Tensor) -> Tensor:
    """Of whole numbers, [BLOCK, outputs, blocks], and scales and lowest in float16, [outputs, blocks]."""
    _, outputs, blocks = whole.shape
    numbers = whole.to(torch.uint8).permute(1, 2, 0)
    if bits == 4:  # four inputs stand in the low bits, the four after them in the high ones
        firsts, seconds = numbers.reshape(outputs, blocks, -1, 2, 4).unbind(3)
        numbers = firsts | seconds << 4
    numbers = numbers.reshape(-1, BLOCKS, LANES, blocks, BLOCK * bits // 32, 4).permute(0, 1, 3, 4, 2, 5).flatten(3)
    both = torch.stack([scales, lowest]).view(2, -1, BLOCKS, LANES, blocks).permute(1, 2, 4, 0, 3)
    return torch.cat([numbers, both.contiguous().flatten(3).view(torch.uint8)], dim=3)


def _kind(packed: Tensor, before: Tensor | None) -> int:
    if packed.shape[1] == 2:
        return kernels.GATED
    return kernels.PLAIN if before is None else kernels.ADDED


def addresses(*tensors: Tensor | None) -> list[int]:
    return [0 if each is None else each.data_ptr() for each in tensors]


class TiledLinear(OnlyInferring):
    """With weights in bfloat16. Gives a row the same bits alone and beside others."""

    weigh: ClassVar[Callable[..., Weights]] = in_halves
    weights: Weights
    bias: Tensor | None

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__()
        self.weights = type(self).weigh(torch.cat([layer.weight.detach() for layer in layers]))
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
        return super().gated(gates, others) if gates.bias is not None else TiledGates(cls.weigh, gates, others)


class PublishedLinear(TiledLinear):
    """With weights in as few bits as they were published in."""

    weigh = as_published


class TwofoldLinear(PublishedLinear):
    """With weights in bfloat16 beside them for many rows, whose results are rounded otherwise than those of few."""

    weigh = as_published_and_in_halves


class EightBitLinear(TiledLinear):
    """With inputs in 8 bits, and weights in 8 or, if they were published so, in 4."""

    weigh = in_bytes


class TiledGates(nn.Module):
    """Two layers without bias in one product, of which the first gates the second."""

    weights: Weights
    bias = None

    def __init__(self, weigh: Callable[..., Weights], gates: nn.Linear, others: nn.Linear) -> None:
        super().__init__()
        self.weights = weigh(gates.weight.detach(), others.weight.detach())

    def forward(self, inputs: Tensor) -> Tensor:
        return product(self.weights, inputs)
