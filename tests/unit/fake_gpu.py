"""A GPU that is not there: torch's fake tensors, whose device is cuda, on a build of torch without CUDA.

Shapes, dtypes and devices are real, numbers are not. So what goes wrong on a GPU for reasons of devices goes wrong here
too (a mask left on the host, a list of indices in a step), and what a step launches and waits for can be counted.

Two things are done otherwise, because such a build of torch lacks them: indexing takes a CUDA device guard (it raises
"not linked with support for cuda devices"), and `torch.tensor` keeps its value, for which it wants the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from service.engine.batch import Batch, Forward
from service.engine.job import SamplingParams
from service.engine.job import Sequence as Prompt
from service.engine.model.graphs import GraphedPass
from service.engine.model.lean import LeanLlama
from service.engine.model.optimize import AT_A_GPU, Linear, count_layers
from service.engine.row import Detokenizer, Row
from service.engine.steps import Launched
from tests.unit.tiny_models import byte_level_tokenizer

CUDA: Final = torch.device("cuda:0")
FREE_BYTES: Final = 70 << 30
_OPERATORS: Final = {"__invert__": "bitwise_not", "__and__": "bitwise_and", "__or__": "bitwise_or"}
_VIEW_NAMES: Final = """
    view _unsafe_view reshape slice select transpose expand unsqueeze squeeze split split_with_sizes chunk t permute
    detach alias unbind as_strided _reshape_alias lift_fresh empty empty_like empty_strided new_empty narrow unfold
    size stride view_as numpy_T device _pin_memory is_pinned
"""
_VIEWS: Final = frozenset(_VIEW_NAMES.split())
_COPIES: Final = frozenset(("to", "_to_copy", "copy_"))
_ATTENTION: Final = "scaled_dot_product_attention"
_VALUES: Final = frozenset(("_local_scalar_dense", "nonzero", "equal"))


class Work(TorchDispatchMode):
    """What was asked of the GPU.

    Attributes:
        kernels: operators that launch a kernel or more, by name.
        waits: copies that the host waits for, and values that it asks for, by kind.
        replays: of graphs.
        squares: times that attention holds the weights of all columns, as a GPU's kernel for grouped heads under a mask
            does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()
        self.replays = self.squares = 0

    @property
    def launches(self) -> int:
        return self.kernels.total()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        if name in _COPIES:
            source, target = (args[1], args[0]) if name == "copy_" else (args[0], result)
            if source.device.type != target.device.type:
                if not _argument(func, args, kwargs, "non_blocking"):
                    self.waits[f"{source.device.type} to {target.device.type}"] += 1
                return result
            if source is target:
                return result
        if name in _VALUES:
            self.waits[name] += 1
        elif name not in _VIEWS and _is_on_gpu(result):
            self.kernels[name] += 1
            if name == _ATTENTION and _argument(func, args, kwargs, "attn_mask") is not None:
                self.squares += bool(_argument(func, args, kwargs, "enable_gqa"))
        return result


class FakeGpu:
    """Use it as a context: within it, tensors on `CUDA` exist, and `pin_memory` is free.

    Attributes:
        captured: what the last graph holds.
    """

    def __enter__(self) -> FakeGpu:
        self._stack, self._work, self.captured = ExitStack(), Work(), Work()
        patches = (
            mock.patch.object(Tensor, "pin_memory", lambda tensor, *_: tensor),
            mock.patch.object(FakeTensor, "tolist", self._asked("tolist", _ones)),
            mock.patch.object(FakeTensor, "__bool__", self._asked("bool", lambda _: False), create=True),
            mock.patch.object(torch.cuda, "mem_get_info", return_value=(FREE_BYTES, FREE_BYTES)),
            mock.patch.object(torch.cuda, "current_stream"),
            mock.patch.object(torch.cuda, "Event", partial(_Event, self)),
        )
        for each in (*patches, FakeTensorMode(), _WithoutGuard(), torch.inference_mode()):
            self._stack.enter_context(each)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def take(self, model: Any, dtype: torch.dtype = torch.bfloat16) -> Any:
        """The model, which was made before, with its weights on the GPU."""
        for module in model.modules():
            for name, value in module._parameters.items():
                if value is not None:
                    there = torch.empty_strided(value.shape, value.stride(), dtype=dtype, device=CUDA)
                    module._parameters[name] = torch.nn.Parameter(there, requires_grad=False)
            for name, value in module._buffers.items():
                if value is not None:
                    module._buffers[name] = torch.empty(value.shape, dtype=value.dtype, device=CUDA)
        model.tie_weights()
        return model

    def capture(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """As `service.engine.model.graphs.as_cuda_graphs` does."""
        with self.counting() as self.captured:
            result = compute()

        def replay() -> Tensor:
            self._work.replays += 1
            return result

        return replay

    @contextmanager
    def counting(self) -> Iterator[Work]:
        with Work() as self._work:
            yield self._work

    def wait(self, how: str) -> None:
        self._work.waits[how] += 1

    def _asked(self, how: str, answer: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        def ask(tensor: Tensor) -> Any:
            if tensor.is_cuda:
                self.wait(how)
            return answer(tensor)

        return ask


@dataclass(frozen=True)
class _Event:
    """What was launched before it was recorded."""

    gpu: FakeGpu

    def record(self, stream: object) -> None:
        """All that is launched here is in order."""

    def synchronize(self) -> None:
        self.gpu.wait("event")


@dataclass(frozen=True)
class GpuEngine:
    """The parts of a text engine on a GPU, whose steps are counted.

    Attributes:
        captured: what its last graph holds.
    """

    gpu: FakeGpu
    forward: Forward
    detokenizer: Detokenizer
    captured: Work

    @classmethod
    @contextmanager
    def of(
        cls, model: Any, rows: Sequence[int], columns: Sequence[int], linear: Linear = AT_A_GPU
    ) -> Iterator[GpuEngine]:
        """Of a Llama, which lies on the GPU from then on, with graphs for these buckets."""
        has_kernel = linear.operators.attended is not None
        detokenizer, layers = Detokenizer(byte_level_tokenizer()), count_layers(model)
        with FakeGpu() as gpu:
            lean = LeanLlama(gpu.take(model), linear.make, operators=linear.operators)
            graphed = GraphedPass(lean, CUDA, gpu.capture, layers, rows, columns, has_kernel)
            yield cls(gpu, Forward(graphed, CUDA, layers), detokenizer, gpu.captured)

    def row(self, tokens: int = 20, sampling: SamplingParams | None = None) -> Row:
        params = sampling or SamplingParams(max_tokens=64)
        return Row(Prompt("r", [1] * tokens, params), self.detokenizer, frozenset())

    def step(self, batches: list[Batch]) -> Work:
        with self.gpu.counting() as work:
            Launched(self.forward, batches).read()
        return work


class _WithoutGuard(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.tensor:
            return _tensor(*args, **kwargs)
        if func is Tensor.__getitem__ and args[0].is_cuda:
            return _get(*args)
        if func is Tensor.__setitem__ and args[0].is_cuda:
            return _set(*args)
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if "not linked with support for cuda" not in str(error):
                raise
            return getattr(torch.ops.aten, _OPERATORS.get(func.__name__, func.__name__))(*args, **kwargs)


def _argument(func: Any, args: Any, kwargs: Any, name: str) -> Any:
    """What an operator was called with, however it was given."""
    place = next((i for i, each in enumerate(func._schema.arguments) if each.name == name), len(args))
    return kwargs.get(name) if place >= len(args) else args[place]


def _is_on_gpu(result: Any) -> bool:
    results = result if isinstance(result, tuple | list) else (result,)
    return any(isinstance(each, Tensor) and each.is_cuda for each in results)


def _ones(tensor: Tensor) -> Any:
    return np.ones(tuple(tensor.shape), dtype=int).tolist()


def _tensor(values: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    array = np.array(values)
    kinds = {"f": torch.float32, "b": torch.bool}
    host = torch.empty(array.shape, dtype=dtype or kinds.get(array.dtype.kind, torch.long))
    return host if device is None else host.to(device)


def _get(tensor: Tensor, index: Any) -> Tensor:
    view, left = _view(tensor, index)
    return torch.ops.aten.index(view, _indices(view, left)) if left else view


def _set(tensor: Tensor, index: Any, value: Any) -> None:
    view, left = _view(tensor, index)
    is_tensor = isinstance(value, Tensor)
    if left:
        new = value if is_tensor else torch.full((), value, dtype=tensor.dtype, device=tensor.device)
        torch.ops.aten.index_put_(view, _indices(view, left), new)
    elif is_tensor:
        torch.ops.aten.copy_(view, value)
    else:
        torch.ops.aten.fill_(view, value)


def _view(tensor: Tensor, index: Any) -> tuple[Tensor, dict[int, Any]]:
    """`tensor[index]` as far as it is a view, and the indices that are left, by dimension."""
    items, left, dim = list(index if isinstance(index, tuple) else (index,)), {}, 0
    aten = torch.ops.aten
    if any(each is Ellipsis for each in items):
        at = next(i for i, each in enumerate(items) if each is Ellipsis)
        named = sum(each is not None and each is not Ellipsis for each in items)
        items[at : at + 1] = [slice(None)] * (tensor.ndim - named)
    for each in items:
        if each is None:
            tensor, dim = aten.unsqueeze(tensor, dim), dim + 1
        elif isinstance(each, slice):
            if each != slice(None):
                tensor = aten.slice(tensor, dim, each.start, each.stop, each.step or 1)
            dim += 1
        elif isinstance(each, int):
            tensor = aten.select(tensor, dim, each)
        else:
            left[dim], dim = each, dim + 1
    return tensor, left


def _indices(tensor: Tensor, left: dict[int, Any]) -> list[Tensor | None]:
    """A list becomes a tensor on the host that is copied while the host waits, as torch does it."""

    def indices(each: Any) -> Tensor:
        return each if isinstance(each, Tensor) else torch.empty(len(each), dtype=torch.long).to(tensor.device)

    return [indices(left[dim]) if dim in left else None for dim in range(max(left) + 1)]
