"""A Llama's pass by kernels of our own: the whole of it as one program, and what it takes layer by layer."""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.engine.model import kernels
from service.engine.model.kernels import Task
from service.engine.model.lean import LeanLayer, Operators, halves_rotated, has_few_columns
from service.engine.model.passes import Part
from service.engine.model.tiled import MANY_ROWS, OUTPUTS, Room, TiledGates, TiledLinear, Weights, addresses

ALONE: Final = 1 << 14  # numbers, up to which one thread is done before others have begun
MOST_PROGRAMS: Final = 256  # some 30 kB each
SEEN: Final = 8  # in a task that attends: what keys and values have to do with it, up to the end

Shape: TypeAlias = tuple[int, ...]
"""Rows and columns of a part."""


class WholePass:
    """Passes of which each is one program: those over parts of few columns, of a model whose layers have no bias."""

    def __init__(self, layers: Sequence[_Layer], norm: _Norm, output: Weights) -> None:
        self._layers = layers
        self._norm = norm
        self._output = output
        self._room = Room(2)
        self._lock = threading.Lock()  # of the memory that the passes of all batches share
        self._programs: dict[tuple[Shape, ...], _Program] = {}
        self._apart = {_are_many(shapes): self._differences(shapes) for shapes in ([(1, 1)], [(1, 2)])}

    @classmethod
    def of(cls, layers: Sequence[LeanLayer], norm: Any, output: Any) -> WholePass | None:
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
        """Those that follow the last column of each part, [rows of all parts, vocabulary].

        Args:
            hidden: the embeddings of all tokens, [tokens, length].
            rotation: cosines and sines, float32, [tokens, size].
        """
        shapes = tuple(tuple(part.ids.shape) for part in parts)
        logits = torch.empty(sum(rows for rows, _ in shapes), self._output.outputs)
        layer, layers = self._layers[0].layer, range(len(self._layers))
        with self._lock:
            program = self._program_for(shapes)
            program.hidden.copy_(hidden)
            program.tasks[-1, OUTPUTS] = logits.data_ptr()
            rotations = zip(*(torch.split(each, _sizes(shapes)) for each in rotation), strict=True)
            seen = [
                _see(program.tasks, own, part, by, layer, layers)
                for own, part, by in zip(program.attending, parts, rotations, strict=True)
            ]
            kernels.run(program.tasks, torch.get_num_threads())
            del seen  # tensors, of which the tasks know the addresses
        return logits

    def _program_for(self, shapes: tuple[Shape, ...]) -> _Program:
        tokens = sum(_sizes(shapes))
        if tokens > self._room.most_rows:
            self._room = Room(1 << (tokens - 1).bit_length())
            self._programs.clear()  # their memory is gone
        if len(self._programs) == MOST_PROGRAMS:
            self._programs.clear()
        if shapes not in self._programs:
            self._programs[shapes] = self._program(shapes)
        return self._programs[shapes]

    def _program(self, shapes: tuple[Shape, ...]) -> _Program:
        """Where its parts attend, and where it writes the logits, follows with each pass."""
        first = kernels.as_program(*self._tasks(self._layers[0], shapes))
        attends = _attends(first)
        layers = np.repeat(first[None], len(self._layers), axis=0)
        layers[:, ~attends] += self._apart[_are_many(shapes)]
        tasks = np.concatenate([layers.reshape(-1, kernels.TASK), kernels.as_program(*self._last_tasks(shapes))])
        begins = len(first) * np.arange(len(layers))[:, None]
        attending = [begins + own for own in np.flatnonzero(attends).reshape(len(shapes), 2)]
        return _Program(tasks, self._hidden(sum(_sizes(shapes))), attending)

    def _differences(self, shapes: Sequence[Shape]) -> NDArray[np.int64]:
        """What layers, which are of one shape, differ by from the first: the addresses of their weights."""
        programs = [kernels.as_program(*self._tasks(each, shapes)) for each in self._layers]
        if len({program[:, 0].tobytes() for program in programs}) > 1:
            raise ValueError("its layers keep their weights in several ways")
        tasks = np.stack(programs)
        own: NDArray[np.int64] = tasks[:, ~_attends(tasks[0])]
        differences: NDArray[np.int64] = own - own[0]
        return differences

    def _tasks(self, of: _Layer, shapes: Sequence[Shape]) -> list[Task]:
        """Those of a layer."""
        layer, room, sizes = of.layer, self._room, _sizes(shapes)
        tokens = sum(sizes)
        hidden = self._hidden(tokens)
        normalized = room.of("normalized", tokens, hidden.shape[1])
        heads = room.of("heads", tokens, layer.queries + 2 * layer.keys, layer.size)
        attended = room.of("attended", tokens, layer.queries, layer.size)
        between = room.of("between", tokens, layer.intermediate)
        tasks = [_normalizing(hidden, of.before_attention, normalized)]
        are_many = _are_many(shapes)
        tasks += of.qkv.tasks(normalized, heads.view(tokens, -1), None, room, are_many=are_many)
        for inputs, outputs in zip(torch.split(heads, sizes), torch.split(attended, sizes), strict=True):
            tasks += _attending(layer, inputs, outputs)
        tasks += of.out.tasks(attended.view(tokens, -1), hidden, hidden, room, are_many=are_many)
        tasks.append(_normalizing(hidden, of.before_mlp, normalized))
        tasks += of.gated.tasks(normalized, between, None, room, are_many=are_many)
        tasks += of.down.tasks(between, hidden, hidden, room, are_many=are_many)
        return tasks

    def _last_tasks(self, shapes: Sequence[Shape]) -> list[Task]:
        """From what the last layer makes of all tokens to the logits, whose place is yet to be filled in."""
        hidden = self._hidden(sum(_sizes(shapes)))
        lasts = list(_lasts(hidden, shapes))
        normalized = self._room.of("normalized", sum(map(len, lasts)), hidden.shape[1])
        each_normalized = torch.split(normalized, list(map(len, lasts)))
        tasks = [_normalizing(last, self._norm, own) for last, own in zip(lasts, each_normalized, strict=True)]
        return tasks + self._output.tasks(normalized, torch.empty(0), None, self._room, are_many=_are_many(shapes))

    def _hidden(self, tokens: int) -> Tensor:
        """What a pass begins with, and what each layer makes of it."""
        return self._room.of("hidden", tokens, self._norm.weight.numel())


class _Norm(NamedTuple):
    """What a norm layer has, in memory of a pass's own: a model's weights may move once it is loaded."""

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


class _Program(NamedTuple):
    """A pass over parts of certain shapes.

    Attributes:
        tasks: see `kernels`.
        hidden: the embeddings of all tokens, [tokens, length].
        attending: the numbers of the two tasks by which each part attends, layer by layer: [layers, 2] for each part.
    """

    tasks: NDArray[np.int64]
    hidden: Tensor
    attending: Sequence[NDArray[np.int64]]


def _weights_of(layer: Any) -> Any:
    """``None`` where it has a bias as well, or is made of several layers."""
    return layer.weights if isinstance(layer, (TiledLinear, TiledGates)) and layer.bias is None else None


def _sizes(shapes: Sequence[Shape]) -> list[int]:
    """The tokens of each part."""
    return [math.prod(shape) for shape in shapes]


def _are_many(shapes: Sequence[Shape]) -> bool:
    """Whether weights for many rows are read, as for each prompt: else short ones would differ alone and in company."""
    return sum(_sizes(shapes)) >= MANY_ROWS or any(columns > 1 for _, columns in shapes)


def _lasts(hidden: Tensor, shapes: Sequence[Shape]) -> Iterator[Tensor]:
    """What belongs to the last column of each row, in blocks without gaps, [rows, length]."""
    for own, (rows, columns) in zip(torch.split(hidden, _sizes(shapes)), shapes, strict=True):
        if columns == 1:
            yield own
        else:
            yield from own.view(rows, columns, -1)[:, -1:]


def _attends(tasks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these, [tasks, TASK], have to do with keys and values."""
    return np.isin(tasks[:, 0], (kernels.KEPT, kernels.ATTENDED))


def _normalizing(inputs: Tensor, norm: Any, outputs: Tensor) -> Task:
    places = addresses(inputs, norm.weight, outputs)
    return kernels.NORMALIZED, *inputs.shape, *places, _bits(norm.variance_epsilon)


def _attending(layer: LeanLayer, inputs: Tensor, outputs: Tensor) -> list[Task]:
    """Without what keys and values have to do with it, which is filled in last."""
    sizes = (len(inputs), layer.keys, layer.queries // layer.keys, layer.size)
    given = (*sizes, *addresses(inputs, outputs), _bits(layer.scale))
    return [(kernels.KEPT, *given), (kernels.ATTENDED, *given)]


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
    tasks[own, SEEN : SEEN + 6] = (width, columns.read, *columns.strides, *addresses(*rotation))
    tasks[own, SEEN + 6], tasks[own, SEEN + 7] = columns.keys[:, None], columns.values[:, None]
    tasks[own, SEEN + 8 :] = addresses(columns.ends, visible)
    return [visible, rotation, columns]


def _normalized(inputs: Tensor, norm: Any) -> Tensor:
    """`inputs`, float32, [rows, length], by the root of their mean square, times the bfloat16 weights of `norm`."""
    outputs = torch.empty_like(inputs)
    threads = 1 if inputs.numel() < ALONE else torch.get_num_threads()
    kernels.run(kernels.as_program(_normalizing(inputs, norm, outputs)), threads)
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


def _rotation(cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    return cosines.contiguous(), sines.contiguous()


def _bits(number: float) -> int:
    """Of its float32."""
    return int.from_bytes(struct.pack("<f", number), "little")


BY_KERNELS: Final = Operators(
    _normalized, _rotation, halves_rotated, torch.float32, _attended, has_few_columns, WholePass.of
)
