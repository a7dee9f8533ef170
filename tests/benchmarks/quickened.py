"""What packed weights and fewer operations gain on this processor, and that nothing else changes.

python -m tests.benchmarks.quickened

The same rows are decoded step by step with the model as transformers made it and with the quickened one, in turns, so
that whatever else the machine does meets both. Exit code 1 if the tokens differ.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any, Final
from unittest.mock import patch

import torch
from tqdm import tqdm

from service.engine.batch import Batch, make_step
from service.engine.cores import bind_openmp_threads, usable_cores
from service.engine.engine import TextEngine
from service.engine.sequence import SamplingParams, Sequence
from service.messages.patterns import USUAL_PROMPTS
from service.model.load import load
from service.model.passes import OwnPass
from service.model.resolve import resolve
from service.options import ServiceOptions

ROWS: Final = (1, 4, 8, 16, 32)
STEPS: Final = 32
WARM_UP: Final = 4


def batch_of(engine: TextEngine, rows: int) -> Batch:
    sampling = SamplingParams(max_tokens=STEPS + WARM_UP + 1, ignore_eos=True)
    prompts = (USUAL_PROMPTS[i % len(USUAL_PROMPTS)] for i in range(rows))
    sequences = [Sequence(str(i), engine.encode(p, sampling.max_tokens), sampling) for i, p in enumerate(prompts)]
    return Batch(engine._forward, engine._rows(sequences))


def compare(plain: TextEngine, quick: TextEngine, rows: int, bar: tqdm[Any]) -> tuple[float, float, bool]:
    """Median step of both in seconds, and whether all tokens are the same."""
    batches = batch_of(plain, rows), batch_of(quick, rows)
    times: tuple[list[float], list[float]] = [], []
    is_same = True
    for step in range(WARM_UP + STEPS):
        tokens = []
        for engine, batch, taken in zip((plain, quick), batches, times, strict=True):
            begun_s = time.perf_counter()
            (result,) = make_step(engine._forward, [batch])
            if step >= WARM_UP:
                taken.append(time.perf_counter() - begun_s)
            tokens.append(None if result is None else result.tokens)
        is_same &= tokens[0] == tokens[1]
        bar.update()
    return statistics.median(times[0]), statistics.median(times[1]), is_same


def main() -> int:
    bind_openmp_threads()
    torch.set_num_threads(usable_cores())
    folder = resolve(ServiceOptions().model)
    quick = TextEngine(load(folder, "cpu", "bfloat16"))
    with patch("service.model.quicken.quickened", OwnPass):
        plain = TextEngine(load(folder, "cpu", "bfloat16"))
    with tqdm(total=len(ROWS) * (WARM_UP + STEPS), unit="step") as bar:
        results = [(rows, *compare(plain, quick, rows, bar)) for rows in ROWS]
    print("rows  as loaded (ms)  quickened (ms)  gain   tokens")
    for rows, before_s, after_s, is_same in results:
        verdict = "same" if is_same else "DIFFER"
        print(f"{rows:4}  {1e3 * before_s:14.1f}  {1e3 * after_s:14.1f}  ×{before_s / after_s:.2f}  {verdict}")
    return 0 if all(is_same for *_, is_same in results) else 1


if __name__ == "__main__":
    sys.exit(main())
