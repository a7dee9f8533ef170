"""How many answers depend on their batch, and what it costs that none does.

python -m tests.benchmarks.invariance [--dtype bfloat16]

Prompts of 3 to 120 words are completed one by one, in batches of 2, 7 and 32, and joining and leaving one open batch:
by the default engine and by the deterministic one, in turns, so that whatever else the machine does meets both. Exit
code 1 if an answer of the deterministic engine depends on its batch.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Final, TypeAlias

import torch
from tqdm import tqdm

from service.engine.cores import bind_openmp_threads, usable_cores
from service.engine.engine import TextEngine
from service.engine.job import SamplingParams, Sequence
from service.engine.model.load import load
from service.engine.model.resolve import resolve
from service.engine.prefixes import Prefixes
from service.messages.load import USUAL_PROMPTS
from service.messages.options import ServiceOptions

PROMPTS: Final = 64
LONGEST_WORDS: Final = 120
SAMPLING: Final = SamplingParams(max_tokens=24, ignore_eos=True)
PLACES: Final = 16  # of the open batch

Way: TypeAlias = Callable[[TextEngine, list[Sequence]], None]


def prompts() -> list[str]:
    drawn = random.Random(1)
    words = " ".join(USUAL_PROMPTS).split()
    return [" ".join(drawn.choices(words, k=drawn.randint(3, LONGEST_WORDS))) for _ in range(PROMPTS)]


def in_batches_of(size: int) -> Way:
    def run(engine: TextEngine, sequences: list[Sequence]) -> None:
        for first in range(0, len(sequences), size):
            engine.generate(sequences[first : first + size], lambda progress: None)

    return run


def in_an_open_batch(engine: TextEngine, sequences: list[Sequence]) -> None:
    coming = sequences[1:]
    running = 1

    def emit(progress: list[object]) -> None:
        nonlocal running
        running -= sum(each.finish_reason is not None for each in progress)  # type: ignore[attr-defined]

    def admit(work: object, can_join: bool) -> list[Sequence]:
        nonlocal running
        joining = [coming.pop(0) for _ in range(min(PLACES - running, len(coming)))] if can_join else []
        running += len(joining)
        return joining

    engine.generate(sequences[:1], emit, admit)  # type: ignore[arg-type]


WAYS: Final[dict[str, Way]] = {
    "alone": in_batches_of(1),
    "batches of 2": in_batches_of(2),
    "batches of 7": in_batches_of(7),
    "batches of 32": in_batches_of(32),
    f"joining, {PLACES} places": in_an_open_batch,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    bind_openmp_threads()
    torch.set_num_threads(usable_cores())
    folder = resolve(ServiceOptions().model)
    engines = [TextEngine(load(folder, "cpu", options.dtype, is_deterministic=each)) for each in (False, True)]
    times: dict[tuple[str, int], list[float]] = {}
    tokens: dict[tuple[str, int], list[list[int]]] = {}
    with tqdm(total=options.rounds * len(WAYS) * len(engines)) as bar:
        for _ in range(options.rounds):
            for way, run in WAYS.items():
                for number, engine in enumerate(engines):
                    sequences = [Sequence(str(i), engine.encode(p, 24), SAMPLING) for i, p in enumerate(prompts())]
                    if engine.forward.prefixes is not None:
                        engine.forward.prefixes = Prefixes()  # so that both read each prompt in each way
                    begun_s = time.perf_counter()
                    run(engine, sequences)
                    times.setdefault((way, number), []).append(time.perf_counter() - begun_s)
                    tokens[way, number] = [each.tokens for each in sequences]
                    bar.update()
    print(f"{PROMPTS} prompts               differing answers      price of determinism")
    for way in WAYS:
        usual, none = (count_differing(tokens["alone", n], tokens[way, n]) for n in (0, 1))
        price = statistics.median(times[way, 1]) / statistics.median(times[way, 0]) - 1
        print(f"{way:20} {100 * usual / PROMPTS:6.0f} %, deterministic {none}    {100 * price:+8.0f} %")
    return int(any(count_differing(tokens["alone", 1], tokens[way, 1]) for way in WAYS))


def count_differing(ones: list[list[int]], others: list[list[int]]) -> int:
    return sum(one != other for one, other in zip(ones, others, strict=True))


if __name__ == "__main__":
    sys.exit(main())
