"""What our own kernels, fewer operations and weights in 8 bits gain on this processor.

python -m tests.benchmarks.optimized

The same rows are decoded step by step with the model as transformers made it, with the optimized one, both in the dtype
that `auto` takes, and where that is bfloat16 with the optimized one in `int8`: in turns, so that whatever else the
machine does meets all. How many rows get the same tokens of the first two stands beside: where two tokens are nearly as
likely, rounding decides, and a row goes on differently.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterable
from typing import Any, Final
from unittest.mock import patch

import torch
from tqdm import tqdm

from service.engine.batch import Batch
from service.engine.cores import bind_openmp_threads, usable_cores
from service.engine.engine import TextEngine
from service.engine.job import SamplingParams, Sequence
from service.engine.model.load import choose_dtype, load
from service.engine.model.passes import OwnPass
from service.engine.model.resolve import resolve
from service.engine.steps import Launched
from service.messages.load import USUAL_PROMPTS
from service.messages.options import ServiceOptions

ROWS: Final = (1, 2, 4, 6, 8, 16, 32)
STEPS: Final = 32
WARM_UP: Final = 4


def batch_of(engine: TextEngine, rows: int) -> Batch:
    sampling = SamplingParams(max_tokens=STEPS + WARM_UP + 1, ignore_eos=True)
    prompts = (USUAL_PROMPTS[i % len(USUAL_PROMPTS)] for i in range(rows))
    sequences = [Sequence(str(i), engine.encode(p, sampling.max_tokens), sampling) for i, p in enumerate(prompts)]
    return Batch(engine.forward, engine._rows(sequences))


def compare(engines: Iterable[TextEngine], rows: int, bar: tqdm[Any]) -> tuple[list[float], int]:
    """Median step of each in seconds, and of how many rows the first two gave the same tokens."""
    batches = [(engine, batch_of(engine, rows)) for engine in engines]
    times: list[list[float]] = [[] for _ in batches]
    same = set(range(rows))
    for step in range(WARM_UP + STEPS):
        tokens = []
        for (engine, batch), taken in zip(batches, times, strict=True):
            begun_s = time.perf_counter()
            result, _ = Launched(engine.forward, [batch]).read()
            if step >= WARM_UP:
                taken.append(time.perf_counter() - begun_s)
            tokens.append([each.token for each in result])
        same &= {row for row, (one, other) in enumerate(zip(*tokens[:2], strict=True)) if one == other}
        bar.update()
    return [statistics.median(each) for each in times], len(same)


def main() -> int:
    bind_openmp_threads()
    torch.set_num_threads(usable_cores())
    folder = resolve(ServiceOptions().model)
    dtype = choose_dtype("auto", "cpu")
    with patch("service.engine.model.optimize.optimized", lambda model, device, **_: OwnPass(model, device)):
        plain = TextEngine(load(folder, "cpu", dtype))
    dtypes = (dtype, "int8") if dtype == "bfloat16" else (dtype,)
    engines = [plain, *(TextEngine(load(folder, "cpu", each)) for each in dtypes)]
    with tqdm(total=len(ROWS) * (WARM_UP + STEPS), unit="step") as bar:
        results = [(rows, *compare(engines, rows, bar)) for rows in ROWS]
    print(f"rows  as loaded (ms)  {''.join(f'{each} (ms)  gain   ' for each in dtypes)}rows alike")
    for rows, (plain_s, *quicker_s), same in results:
        gains = "".join(
            f"{1e3 * step_s:{len(each) + 5}.1f}  ×{plain_s / step_s:.2f}  "
            for each, step_s in zip(dtypes, quicker_s, strict=True)
        )
        print(f"{rows:4}  {1e3 * plain_s:14.1f}  {gains}{same}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
