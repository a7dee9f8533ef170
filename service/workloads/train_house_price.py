"""`python -m service.workloads.train_house_price`: trains the weights beside this file and prints their held-out error.

The table, `assets/ames.csv`, has 2,930 sales of houses in Ames, Iowa, 2006 to 2010 (D. De Cock, "Ames, Iowa:
Alternative to the Boston Housing Data", Journal of Statistics Education 19/3, 2011), as the R package modeldata has it.
One in five is held out.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from service.workloads.house_price import FEATURES, WEIGHTS
from service.workloads.price_network import PriceNetwork

TABLE = Path(__file__).parents[2] / "assets" / "ames.csv"
PRICE = "price"
LARGEST_SQFT = 4000  # De Cock advises to leave out the five that are larger: most were sold unfinished
HELD_OUT = 5
EPOCHS = 600
SEED = 1


class Houses(NamedTuple):
    features: Tensor
    prices: Tensor

    def part(self, chosen: Tensor) -> Houses:
        return Houses(self.features[chosen], self.prices[chosen])


class HeldOutError(NamedTuple):
    """On houses that were not trained on: the median of |estimate / price − 1|, and R² of the prices."""

    median: float
    r_squared: float


def read_table(path: Path = TABLE) -> tuple[Houses, Houses]:
    """The houses to train on and those held out, the same ones each time."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    names = head.split(",")
    rows = torch.from_numpy(np.loadtxt(lines, delimiter=",", dtype=np.float32))
    rows = rows[rows[:, names.index("living_area_sqft")] <= LARGEST_SQFT]
    houses = Houses(rows[:, [names.index(name) for name in FEATURES]], rows[:, names.index(PRICE)])
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(SEED))
    is_held_out = torch.arange(len(rows)) % HELD_OUT == 0
    return houses.part(order[~is_held_out]), houses.part(order[is_held_out])


def train(houses: Houses, epochs: int = EPOCHS) -> PriceNetwork:
    """By AdamW on the logarithms of all prices at once, in ever smaller steps."""
    torch.manual_seed(SEED)
    network = PriceNetwork(len(FEATURES))
    network.set_scales(*houses)
    mean, deviation = network.price_scale
    wanted = (houses.prices.log() - mean) / deviation
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = torch.nn.functional.smooth_l1_loss(network.standing(houses.features), wanted, beta=0.3)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return network.eval().requires_grad_(False)


def held_out_error(network: PriceNetwork, held_out: Houses) -> HeldOutError:
    estimates, prices = network(held_out.features), held_out.prices
    unexplained = (estimates - prices).square().sum() / (prices - prices.mean()).square().sum()
    return HeldOutError((estimates / prices - 1).abs().median().item(), 1 - unexplained.item())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the weights of the workload house-price.")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    training, held_out = read_table()
    network = train(training)
    save_file(network.state_dict(), options.out)
    error = held_out_error(network, held_out)
    print(f"trained on {len(training.prices)} houses, held out {len(held_out.prices)}")
    print(f"median error {error.median:.1%}, R² {error.r_squared:.3f}; weights in {options.out}")


if __name__ == "__main__":
    main()
