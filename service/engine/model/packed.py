"""Weights of a linear layer in the order in which the processor's matrix kernels read them.

Given plain weights, oneDNN reorders them at every call: about a fifth of the time of a decode step on two cores, at
any batch size. Packed once, when the model is loaded, they give the same results to the last bit.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

EXPECTED_ROWS: Final = 16  # that the order is chosen for; others are computed as well, and hardly slower


class PackedLinear(nn.Module):
    """A linear layer that only infers, or several that get the same: their outputs stand one behind the other.

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


class SideBySide(nn.Module):
    """Linear layers that get the same, as they are: their outputs stand one behind the other."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self._layers = nn.ModuleList(layers)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = [layer(inputs) for layer in self._layers]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
