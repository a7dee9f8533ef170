"""The network that estimates prices, with the scales of its features inside."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH = 32


class PriceNetwork(nn.Module):
    """Features as they are in the table, none of them negative, [rows, features], to dollars, [rows]."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(features))
        self.register_buffer("deviations", torch.ones(features))
        self.register_buffer("price_scale", torch.tensor([0.0, 1.0]))  # mean and deviation of the prices' logarithms
        self._layers = nn.Sequential(
            nn.Linear(features, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1)
        )

    def set_scales(self, features: Tensor, prices: Tensor) -> None:
        """Take the scales of a table."""
        logarithms = prices.log()
        scaled = features.log1p()
        self.means, self.deviations = scaled.mean(0), scaled.std(0)
        self.price_scale = torch.stack((logarithms.mean(), logarithms.std()))

    def standing(self, features: Tensor) -> Tensor:
        """How many deviations the prices' logarithms lie above their mean, [rows]; what is trained."""
        result: Tensor = self._layers((features.log1p() - self.means) / self.deviations)[:, 0]
        return result

    def forward(self, features: Tensor) -> Tensor:
        mean, deviation = self.price_scale
        return torch.exp(self.standing(features) * deviation + mean)
