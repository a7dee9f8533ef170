"""Weights of a linear layer in 8 bits, inputs and results as they were: weight-only quantization.

A step of a few rows mostly waits for the weights to be read, and 8 bits take half the time of 16. With more rows the
products decide, for which the processor's kernels are quicker in bfloat16: they get the same rounded numbers.

Rounding inputs to 8 bits too (dynamic quantization, `torch.ops.quantized.linear_dynamic`) is quicker still at 8 rows
and more, but costs this project's model a twentieth of its perplexity and a sixth of its greedy tokens, and with one
scale for all rows what a prompt gets depends on who is in its batch. `python -m tests.benchmarks.quality` measures it.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from service.engine.model.packed import PackedLinear

FEW_ROWS: Final = 6  # up to here 8 bits are quicker; measured by tests.benchmarks.quickened
LARGEST: Final = 127


class EightBitLinear(nn.Module):
    """A linear layer that only infers, or several that get the same: their outputs stand one behind the other.

    Each output has a scale of its own, by which its largest weight becomes 127.

    WORKAROUND torch 2.13: the operator has no public name yet.
    """

    _eight_bits: Tensor
    _scales: Tensor

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__()
        weight = torch.cat([layer.weight.detach() for layer in layers]).float()
        scales = (weight.abs().amax(dim=1) / LARGEST).clamp_(min=torch.finfo(torch.float32).tiny).bfloat16()
        eight_bits = (weight / scales[:, None].float()).round_().clamp_(-LARGEST, LARGEST)
        self._bias = torch.cat([layer.bias.detach() for layer in layers]) if layers[0].bias is not None else None
        self._many = PackedLinear(_linear((eight_bits * scales[:, None].float()).bfloat16(), self._bias))
        self.register_buffer("_eight_bits", eight_bits.to(torch.int8))
        self.register_buffer("_scales", scales)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.reshape(-1, inputs.shape[-1])
        if len(rows) > FEW_ROWS:
            many: Tensor = self._many(inputs)
            return many
        result = torch._weight_int8pack_mm(rows, self._eight_bits, self._scales)
        if self._bias is not None:
            result += self._bias
        return result.view(*inputs.shape[:-1], -1)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer
