"""Small tables of numbers for the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def on_device(values: Any, device: torch.device) -> Tensor:
    """`values` (nested sequences of numbers) as a tensor there; a GPU copies them when it comes to it, nobody waits."""
    tensor = torch.tensor(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
