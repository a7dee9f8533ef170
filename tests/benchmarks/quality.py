"""What numbers of fewer bits cost in quality: perplexity on a text, and how many greedy tokens stay the same.

python -m tests.benchmarks.quality

The text is Python's own reference, which every installation has (`pydoc_data.topics`), cut into windows of 128 tokens.
Rows go through the engine's forward pass column by column, as they do when they are generated, each time given the
text's own tokens. `dynamic` has one scale for all inputs of a product; it is measured to show why `int8` has one for
each block of a row.
"""

from __future__ import annotations

import math
import pydoc_data.topics
import sys
from collections.abc import Callable
from typing import Final, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from tqdm import tqdm

from service.engine.cores import bind_openmp_threads, usable_cores
from service.engine.model.batch_cache import BatchCache
from service.engine.model.linear import OnlyInferring
from service.engine.model.load import LoadedModel, load
from service.engine.model.optimize import Linear
from service.engine.model.passes import Part
from service.engine.model.resolve import ModelFolder, resolve
from service.messages.options import ServiceOptions

ROWS: Final = 16
COLUMNS: Final = 128
BATCHES: Final = 8
GIVEN: Final = 16  # columns before the first whose probability counts


class Quality(NamedTuple):
    """Of predictions over the whole text.

    Attributes:
        greedy: the most probable token after each column, [batches, columns − 1, rows].
    """

    perplexity: float
    greedy: Tensor


class DynamicLinear(OnlyInferring):
    """Weights in 8 bits with a scale an output, inputs in 8 bits with one scale for all."""

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__()
        weight = torch.cat([layer.weight.detach() for layer in layers]).float()
        scales = (weight.abs().amax(dim=1) / 127).double()
        zeros = torch.zeros(len(scales), dtype=torch.long)
        eight_bits = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self._weight = torch.ops.quantized.linear_prepack(eight_bits, None)

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = torch.ops.quantized.linear_dynamic(inputs.float(), self._weight, False)
        return result.to(inputs.dtype)


def main() -> int:
    bind_openmp_threads()
    torch.set_num_threads(usable_cores())
    folder = resolve(ServiceOptions().model)
    variants: dict[str, Callable[[], LoadedModel]] = {
        dtype: lambda dtype=dtype: load(folder, "cpu", dtype)  # type: ignore[misc]  # mypy can't infer the default's type
        for dtype in ("float32", "bfloat16", "int8")
    }
    variants["dynamic"] = lambda: _dynamic(folder)
    with tqdm(total=len(variants) * BATCHES * (COLUMNS - 1), unit="column") as bar:
        qualities = {name: _quality(make(), bar) for name, make in variants.items()}
    exact = qualities["float32"]
    print("          perplexity         same greedy tokens as float32")
    for name, each in qualities.items():
        change = 100 * (each.perplexity / exact.perplexity - 1)
        same = 100 * (each.greedy == exact.greedy).float().mean().item()
        print(f"{name:9} {each.perplexity:10.3f}  {change:+5.2f} %  {same:8.1f} %")
    return 0


def _dynamic(folder: ModelFolder) -> LoadedModel:
    """Loading would refuse it, by the logits of its first two steps."""
    with patch("service.engine.model.optimize.by_kernels", lambda **_: Linear(DynamicLinear, math.inf)):
        return load(folder, "cpu", "int8")


@torch.inference_mode()
def _quality(model: LoadedModel, bar: tqdm[object]) -> Quality:
    text = "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    ids = torch.tensor(model.tokenizer(text)["input_ids"][: BATCHES * ROWS * COLUMNS])
    surprise, greedy = [], []
    for rows in ids.view(BATCHES, ROWS, COLUMNS):
        cache = BatchCache(ROWS)
        for column in range(COLUMNS - 1):
            positions = torch.full((ROWS, 1), column)
            logits = model.forward([Part(rows[:, column : column + 1], positions, None, cache)]).float()
            greedy.append(logits.argmax(dim=-1))
            if column >= GIVEN:
                surprise.append(nn.functional.cross_entropy(logits, rows[:, column + 1]))
            bar.update()
    return Quality(math.exp(torch.stack(surprise).mean().item()), torch.stack(greedy))


if __name__ == "__main__":
    sys.exit(main())
