"""Layers for a processor whose kernels are our own: `service.engine.model.kernels`."""

from __future__ import annotations

import functools
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from service.engine.model import kernels
from service.engine.model.kernels import Task
from service.engine.model.lean import LeanLayer, Operators, halves_rotated
from service.engine.model.linear import OnlyInferring
from service.engine.model.passes import Part
from service.engine.model.vectors import BLOCKS, GROUP, HAS_PAIRS, LANES

ALONE: Final = 1 << 14  # numbers, up to which one thread is done before others have begun
MOST_PROGRAMS: Final = 256  # of steps, some 30 kB each
WIDEST: Final = (2**31 - 1) // (255 * kernels.LARGEST)  # inputs whose products a sum of 32 bits holds
TRIED_ROWS, TRIED_INPUTS, TRIED_OUTPUTS = 16, 576, 3072
TRIALS: Final = 20
WORTH_ROUNDING: Final = 1.2  # times as quick
_OUTPUTS: Final = 8  # in the task of a product: their address
_SEEN: Final = 8  # in a task that attends: what keys and values have to do with it, up to the end
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
        places = _addresses(inputs, self.packed, outputs if before is None else before, outputs)
        are_halves = int(inputs.dtype == torch.bfloat16)
        return kernels.PRODUCT, _kind(self.packed, before), *inputs.shape, self.outputs, *places, are_halves


class PairWeights(HalfWeights):
    """The same for a processor that `HAS_PAIRS`: inputs are rounded to bfloat16."""

    def tasks(self, inputs: Tensor, outputs: Tensor, before: Tensor | None, room: Room) -> list[Task]:
        halves = room.of("halves", *inputs.shape, dtype=torch.bfloat16)
        rounding = (kernels.AS_HALVES, inputs.numel(), *_addresses(inputs, halves))
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
        packing = (rows, length, padded, *_addresses(inputs, largest, as_bytes))
        places = _addresses(
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


def _threads_for(numbers: int) -> int:
    return 1 if numbers < ALONE else torch.get_num_threads()


def _bits(number: float) -> int:
    """Of its float32."""
    return int.from_bytes(struct.pack("<f", number), "little")


def _addresses(*tensors: Tensor | None) -> list[int]:
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
        return super().gated(gates, others) if gates.bias is not None else _TiledGates(cls.kind, gates, others)


class PairLinear(TiledLinear):
    """With weights in bfloat16, and inputs that are rounded to it."""

    kind = PairWeights


class EightBitLinear(TiledLinear):
    """With weights in 8 bits. Each output has a scale of its own, by which its largest weight becomes 127.

    Inputs are whole numbers of 16 bits, with a scale for each row, by which its largest becomes 32,512. Their high and
    their low bytes are two rows of one product of bytes, whose sums are exact.
    """

    kind = ByteWeights


class _TiledGates(nn.Module):
    """Two layers without bias in one product, of which the first gates the second."""

    weights: Weights
    bias = None

    def __init__(self, kind: type[Weights], gates: nn.Linear, others: nn.Linear) -> None:
        super().__init__()
        self.weights = kind.of(gates.weight.detach(), others.weight.detach())

    def forward(self, inputs: Tensor) -> Tensor:
        return product(self.weights, inputs)


def _normalizing(inputs: Tensor, norm: Any, outputs: Tensor) -> Task:
    places = _addresses(inputs, norm.weight, outputs)
    return kernels.NORMALIZED, *inputs.shape, *places, _bits(norm.variance_epsilon)


def _normalized(inputs: Tensor, norm: Any) -> Tensor:
    """`inputs`, float32, [rows, length], by the root of their mean square, times the bfloat16 weights of `norm`."""
    outputs = torch.empty_like(inputs)
    kernels.run(kernels.as_program(_normalizing(inputs, norm, outputs)), _threads_for(inputs.numel()))
    return outputs


def _attended(inputs: Tensor, rotation: Sequence[Tensor], part: Part, layer: LeanLayer) -> Tensor:
    """What the tokens of `part` attend to in a layer, each up to itself: float32, [tokens, heads * size].

    Args:
        inputs: queries, keys and values of these tokens, float32, [tokens, heads of all three, size].
        rotation: cosines and sines, float32, [tokens, size].
    """
    outputs = torch.empty(len(inputs), layer.queries, layer.size)
    tasks = kernels.as_program(*_attending(layer, inputs, outputs))
    seen = _see(tasks, np.arange(2)[None], part, rotation, layer, range(layer.index, layer.index + 1))
    kernels.run(tasks, torch.get_num_threads())
    del seen  # tensors, of which the tasks know the addresses
    return outputs.view(len(inputs), -1)


def _attending(layer: LeanLayer, inputs: Tensor, outputs: Tensor) -> list[Task]:
    """Without what keys and values have to do with it, which is filled in last."""
    sizes = (len(inputs), layer.keys, layer.queries // layer.keys, layer.size)
    given = (*sizes, *_addresses(inputs, outputs), _bits(layer.scale))
    return [(kernels.KEPT, *given), (kernels.ATTENDED, *given)]


def _rotation(cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    return cosines.contiguous(), sines.contiguous()


class Step:
    """A pass over parts of few columns, as one program."""

    def __init__(self, layers: Sequence[_Layer], norm: _Norm, output: Weights) -> None:
        self._layers = layers
        self._norm = norm
        self._output = output
        self._lock = threading.Lock()  # of the memory that the passes of all batches share
        self._room = Room(0)
        self._programs: dict[tuple[int, ...], _Program] = {}

    @classmethod
    def of(cls, layers: Sequence[LeanLayer], norm: Any, output: nn.Module) -> Step | None:
        """``None`` where a layer has a bias, which no kernel adds."""
        known = [
            _Layer(
                each,
                _Norm.of(each.before_attention),
                _Norm.of(each.before_mlp),
                *map(_weights_of, (each.qkv, each.out, each.gated, each.down)),
            )
            for each in layers
        ]
        weights = _weights_of(output)
        has_all = weights is not None and all(each is not None for layer in known for each in layer)
        return cls(known, _Norm.of(norm), weights) if has_all else None

    def logits(self, hidden: Tensor, rotation: Sequence[Tensor], parts: Sequence[Part]) -> Tensor:
        """[tokens, vocabulary], from the embeddings of these tokens, [tokens, length]."""
        logits = torch.empty(len(hidden), self._output.outputs)
        with self._lock:
            program = self._program_for([part.ids.numel() for part in parts])
            program.tasks[-1, _OUTPUTS] = logits.data_ptr()
            self._compute(program, program.tasks, hidden, rotation, parts)
        return logits

    def hidden(self, hidden: Tensor, rotation: Sequence[Tensor], parts: Sequence[Part]) -> Tensor:
        """What the last layer makes of these, [tokens, length]."""
        with self._lock:
            program = self._program_for([part.ids.numel() for part in parts])
            self._compute(program, program.tasks[: program.layers], hidden, rotation, parts)
            return program.hidden.clone()

    def _compute(
        self,
        program: _Program,
        tasks: NDArray[np.int64],
        hidden: Tensor,
        rotation: Sequence[Tensor],
        parts: Sequence[Part],
    ) -> None:
        program.hidden.copy_(hidden)
        rotations = zip(*(torch.split(each, program.sizes) for each in rotation), strict=True)
        layer, layers = self._layers[0].layer, range(len(self._layers))
        seen = [
            _see(program.tasks, own, part, by, layer, layers)
            for own, part, by in zip(program.attending, parts, rotations, strict=True)
        ]
        kernels.run(tasks, torch.get_num_threads())
        del seen  # tensors, of which the tasks know the addresses

    def _program_for(self, sizes: list[int]) -> _Program:
        rows = sum(sizes)
        if rows > self._room.most_rows:
            self._room = Room(1 << (rows - 1).bit_length())
            self._programs.clear()  # their memory is gone
        if len(self._programs) == MOST_PROGRAMS:
            self._programs.clear()
        key = tuple(sizes)
        if key not in self._programs:
            self._programs[key] = self._program(sizes)
        return self._programs[key]

    def _program(self, sizes: list[int]) -> _Program:
        """For parts of so many tokens; where they attend, and where the logits are written, follows with each pass."""
        rows, room, tasks = sum(sizes), self._room, list[Task]()
        length = self._norm.weight.numel()
        hidden, normalized = room.of("hidden", rows, length), room.of("normalized", rows, length)
        attending: list[list[list[int]]] = [[] for _ in sizes]
        for layer, before_attention, before_mlp, qkv, out, gated, down in self._layers:
            heads = room.of("heads", rows, layer.queries + 2 * layer.keys, layer.size)
            attended = room.of("attended", rows, layer.queries, layer.size)
            between = room.of("between", rows, layer.intermediate)
            tasks.append(_normalizing(hidden, before_attention, normalized))
            tasks += qkv.tasks(normalized, heads.view(rows, -1), None, room)
            for own, inputs, outputs in zip(
                attending, torch.split(heads, sizes), torch.split(attended, sizes), strict=True
            ):
                own.append([len(tasks), len(tasks) + 1])
                tasks += _attending(layer, inputs, outputs)
            tasks += out.tasks(attended.view(rows, -1), hidden, hidden, room)
            tasks.append(_normalizing(hidden, before_mlp, normalized))
            tasks += gated.tasks(normalized, between, None, room)
            tasks += down.tasks(between, hidden, hidden, room)
        layers = len(tasks)
        tasks.append(_normalizing(hidden, self._norm, normalized))
        tasks += self._output.tasks(normalized, torch.empty(0), None, room)
        return _Program(kernels.as_program(*tasks), layers, sizes, hidden, [np.array(own) for own in attending])


class _Norm(NamedTuple):
    """What a norm layer has, in memory of a step's own: a model's weights may move once it is loaded."""

    weight: Tensor
    variance_epsilon: float

    @classmethod
    def of(cls, norm: Any) -> Self:
        return cls(norm.weight.detach().clone(), norm.variance_epsilon)


class _Layer(NamedTuple):
    """A layer, and the weights of its norms and products."""

    layer: LeanLayer
    before_attention: _Norm
    before_mlp: _Norm
    qkv: Weights
    out: Weights
    gated: Weights
    down: Weights


def _weights_of(layer: Any) -> Any:
    """``None`` where it has a bias as well, or is made of several layers."""
    return layer.weights if isinstance(layer, (TiledLinear, _TiledGates)) and layer.bias is None else None


class _Program(NamedTuple):
    """The tasks of a pass for parts of these `sizes`, in tokens.

    Attributes:
        layers: the number of tasks of all layers, without those of the logits.
        hidden: what it begins with, and what the layers make of it, [tokens of all parts, length].
        attending: the numbers of the two tasks by which each part attends, layer by layer: [layers, 2] for each part.
    """

    tasks: NDArray[np.int64]
    layers: int
    sizes: list[int]
    hidden: Tensor
    attending: Sequence[NDArray[np.int64]]


def _see(
    tasks: NDArray[np.int64],
    own: NDArray[np.int64],
    part: Part,
    rotation: Sequence[Tensor],
    layer: LeanLayer,
    layers: range,
) -> list[Any]:
    """Let tasks, [layers, 2], attend to what a part's cache holds; returns what must not be freed before they end.

    `layer`: one of them, which are of one shape.
    """
    rows, width = part.ids.shape
    like = torch.empty(1, dtype=layer.kept).expand(rows, layer.keys, width, layer.size)  # in no memory of its own
    columns = part.cache.next_columns(like, layers)
    visible = None if part.mask is None else part.mask.contiguous()
    tasks[own, _SEEN : _SEEN + 6] = (width, columns.read, *columns.strides, *_addresses(*rotation))
    tasks[own, _SEEN + 6], tasks[own, _SEEN + 7] = columns.keys[:, None], columns.values[:, None]
    tasks[own, _SEEN + 8 :] = _addresses(columns.ends, visible)
    return [visible, rotation, columns]


BY_KERNELS: Final = Operators(_normalized, _rotation, halves_rotated, torch.float32, _attended, Step.of)
