"""Linear layers that only infer, faster than torch's. Those of kernels of our own are in `service.engine.model.tiled`.

Packed weights lie in the order in which the processor's matrix kernels read them. Given plain weights in bfloat16,
oneDNN reorders them at every call: about a fifth of the time of a decode step on two cores, at any batch size. Packed
once, when the model is loaded, they give bit-identical results. Plain weights in float32 are MKL's, which is slow on
processors that are not Intel's; packed they are oneDNN's, which adds in another order.
"""

from __future__ import annotations

import functools
import importlib
import logging
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

logger = logging.getLogger(__name__)

EXPECTED_ROWS: Final = 16  # that the order is chosen for; others are computed as well, and hardly slower


def packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN has kernels for packed weights of `dtype` on this processor: with AVX2 alone none in bfloat16."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch gives it no types
    if dtype == torch.bfloat16:
        return bool(has_onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(has_onednn and dtype == torch.float32)


@functools.cache
def has_kernels() -> bool:
    """Whether there are kernels of our own for this processor; if not, the log says why."""
    try:
        importlib.import_module("service.engine.model.kernels")
    except Exception as error:  # whatever the compiler says of a processor, a library or a folder that it cannot use
        logger.warning("The processor's own kernels are left out, which is slower: %s", error)
        return False
    return True


class OnlyInferring(nn.Module):
    """A linear layer, or several that get the same: their outputs stand one behind the other."""

    def added(self, inputs: Tensor, before: Tensor) -> Tensor:
        """`before` and the output; it may be written there."""
        result: Tensor = before + self(inputs)
        return result

    @classmethod
    def gated(cls, gates: nn.Linear, others: nn.Linear) -> nn.Module:
        """A layer that gives the output of `others`, times what SiLU gives of that of `gates`."""
        return _Gated(cls(gates, others))

    def joined(self, both: Tensor) -> Tensor:
        """SiLU of the first half of each row, times its second."""
        gates, others = both.chunk(2, dim=-1)
        result: Tensor = functional.silu(gates) * others
        return result


class _Gated(nn.Module):
    def __init__(self, both: OnlyInferring) -> None:
        super().__init__()
        self._both = both

    def forward(self, inputs: Tensor) -> Tensor:
        return self._both.joined(self._both(inputs))


class PackedLinear(OnlyInferring):
    """With weights in the order of the processor's kernels.

    WORKAROUND torch 2.13: the operators have no public name yet.
    """

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__()
        weight = torch.cat([layer.weight.detach() for layer in layers])
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, EXPECTED_ROWS)
        has_bias = layers[0].bias is not None
        self._bias = torch.cat([layer.bias.detach() for layer in layers]) if has_bias else None

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._weight, self._bias, "none", [], "")
        return result


class InvariantLinear(PackedLinear):
    """Gives a row the same bits alone and beside others; `is_invariant` probes whether it does on this processor."""

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) > 1:
            return super().forward(inputs)
        return super().forward(inputs.expand(2, -1))[:1]  # one row alone has kernels of its own, which add otherwise


class SideBySide(OnlyInferring):
    """The layers as they are."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self._layers = nn.ModuleList(layers)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = [layer(inputs) for layer in self._layers]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)


class MergedLinear(OnlyInferring):
    """With all weights in one matrix, of which the layers keep a part each, and one product with it for all.

    What is `added` before is added within the product, and rounded once.
    """

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__()
        weights = [layer.weight.detach() for layer in layers]
        self._weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        parts = torch.split(self._weight, [len(each) for each in weights])
        for layer, part in zip(layers, parts, strict=True):
            layer.weight.data = part
        has_bias = layers[0].bias is not None
        self._bias = torch.cat([layer.bias.detach() for layer in layers]) if has_bias else None

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self._weight, self._bias)

    def added(self, inputs: Tensor, before: Tensor) -> Tensor:
        if self._bias is not None:
            return super().added(inputs, before)
        return before.addmm_(inputs, self._weight.T)  # in another place it would first be copied there


PROBED_ROWS: Final = (1, 2, 3, 4, 7, 8, 16, 31, 64, 65)


@torch.inference_mode()
def is_invariant(layer: nn.Module, inputs: int, dtype: torch.dtype) -> bool:
    """Whether `layer` gives a row the same bits beside any number of other rows, of those that are probed.

    `inputs`: the length of a row.
    """
    rows = torch.linspace(-1, 1, PROBED_ROWS[-1] * inputs).sin_().view(-1, inputs).to(dtype)
    together = layer(rows)
    return all(torch.equal(layer(rows[-count:]), together[-count:]) for count in PROBED_ROWS)
