"""House prices by a small network, whose weights lie beside this; `service.workloads.train_house_price` made them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, Final

from service.workloads.workload import Workload

FEATURES: Final = (
    "living_area_sqft",
    "lot_area_sqft",
    "basement_area_sqft",
    "year_built",
    "year_remodelled",
    "baths",
    "fireplaces",
    "garage_cars",
)
"""Columns of `assets/ames.csv`."""

WEIGHTS: Final = Path(__file__).with_name("house_price.safetensors")


class HousePrice(Workload):
    """Prices, in dollars of 2006 to 2010, of houses in Ames, Iowa."""

    name: ClassVar = "house-price"
    description: ClassVar = "Estimates what houses in Ames, Iowa, were sold for, with a small neural network"
    examples: ClassVar = (
        "[1656, 31770, 1080, 1960, 1960, 1, 2, 2]",
        "[1097, 9672, 1040, 1984, 1985, 2, 0, 2]",
        "[2978, 11275, 710, 1967, 2007, 2.5, 1, 2]",
        "[1212, 10420, 1212, 2009, 2009, 2, 0, 2]",
        "[1908, 14191, 967, 2002, 2002, 2.5, 0, 2]",
    )
    unit: ClassVar = "houses"
    query: ClassVar = "features"
    inputs: ClassVar = "features"
    outputs: ClassVar = "predictions"
    computes_on_device: ClassVar = True

    def check(self, value: Any) -> list[float]:
        if not isinstance(value, list) or len(value) != len(FEATURES) or not all(map(_is_measure, value)):
            raise ValueError(f"A house is a list of {len(FEATURES)} numbers, none negative: {', '.join(FEATURES)}.")
        return [float(each) for each in value]

    def load(self, device: str) -> None:
        from safetensors.torch import load_file

        from service.workloads.price_network import PriceNetwork

        self.network = PriceNetwork(len(FEATURES))
        self.network.load_state_dict(load_file(WEIGHTS))
        self.network.eval().requires_grad_(False).to(device)
        self._device = device

    def __call__(self, inputs: list[list[float]]) -> list[float]:
        import torch

        prices = self.network(torch.tensor(inputs, device=self._device))
        return [round(price, 2) for price in prices.tolist()]


def _is_measure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value < 1e9
