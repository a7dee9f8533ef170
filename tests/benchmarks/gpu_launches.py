"""What a step of SmolLM2-135M launches on a GPU and waits for, counted without one.

python -m tests.benchmarks.gpu_launches

The forward pass, the cache, the bookkeeping of graphs and sampling are the service's; the GPU is made of fake tensors.
So the counts are real, and no time is. A replay of a graph is one launch of everything that it holds.
"""

from __future__ import annotations

import sys
from typing import Final

from transformers import LlamaConfig, LlamaForCausalLM

from service.engine.batch import Batch
from service.engine.groups import Groups
from service.engine.job import SamplingParams
from service.engine.model.graphs import COLUMNS
from service.engine.model.optimize import AT_A_GPU, on_a_gpu
from tests.unit.fake_gpu import GpuEngine, Work

ROWS: Final = 32
SMOLLM2_135M: Final = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}
NUCLEUS: Final = SamplingParams(max_tokens=64, temperature=0.8, top_p=0.9)


def main() -> int:
    model = LlamaForCausalLM(LlamaConfig(**SMOLLM2_135M)).eval().requires_grad_(False)
    print(f"{'a step of 32 rows':42}{'launches':>10}{'replays':>9}{'waits':>7}")
    with GpuEngine.of(model, (ROWS,), COLUMNS[:1], AT_A_GPU) as engine:
        print(f"{'  what its graph holds, of torch alone':42}{engine.captured.launches:>10}")
    with GpuEngine.of(model, (ROWS,), COLUMNS[:1], on_a_gpu()[0]) as engine:
        print(f"{'  what its graph holds':42}{engine.captured.launches:>10}")
        _late(engine)
        _continuous(engine)
    return 0


def _late(engine: GpuEngine) -> None:
    for name, sampling in (("greedy", None), ("nucleus", NUCLEUS)):
        batch = Batch(engine.forward, [engine.row(20 + i % 3, sampling) for i in range(ROWS)])
        _say(f"  {name}: reads prompts", engine.step([batch]))
        engine.step([batch])
        _say("  the next", engine.step([batch]))
        batch.rows[3].is_done = True
        _say("  the next, in which a row has ended", engine.step([batch]))


def _continuous(engine: GpuEngine) -> None:
    rows = [engine.row() for _ in range(ROWS - 1)]
    batch = Groups(engine.forward, rows, is_open=True)
    for _ in range(3):
        engine.step(batch.for_step())
    for tokens in (20, 60):
        batch.join([engine.row(tokens)])
        _say(f"  another reads its prompt, {tokens} tokens", engine.step(batch.for_step()))
        work = engine.step(batch.for_step())
        _say("  and has joined", work)
        rows.pop().is_done = True
        engine.step(batch.for_step())


def _say(what: str, work: Work) -> None:
    print(f"{what:42}{work.launches:>10}{work.replays:>9}{work.waits.total():>7}")


if __name__ == "__main__":
    sys.exit(main())
