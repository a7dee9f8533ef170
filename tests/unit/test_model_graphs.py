"""Decode steps that are replayed give what they give operation by operation; the engine's own tests hold it too.

Here a graph is traced on the processor. What stays untested without a GPU is `as_cuda_graphs` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from service.engine.engine import TextEngine
from service.engine.job import SamplingParams
from service.engine.job import Sequence as Prompt
from service.engine.model import optimize
from service.engine.model.batch_cache import BatchCache
from service.engine.model.gpu_kernels import AS_FUSED, FusedLinear
from service.engine.model.graphs import GraphedPass, LaunchedPass
from service.engine.model.lean import LeanLlama
from service.engine.model.optimize import columns_that_hold, optimized
from service.engine.model.passes import ForwardPass, OwnPass, Part
from service.messages.life import LoadProgress
from service.messages.telemetry import GraphUse
from tests.unit.tiny_models import LAYERS, as_traced_graph, loaded, run, tiny_gpt2, tiny_llama, tiny_of

CPU = torch.device("cpu")


class Counting:
    """A forward pass that counts how often it is called; replaying doesn't call it."""

    def __init__(self, lean: ForwardPass, has_kernel: bool) -> None:
        self.lean = lean
        self.has_kernel = has_kernel
        self.calls = 0

    def __call__(self, parts: Sequence[Part]) -> torch.Tensor:
        self.calls += 1
        logits: torch.Tensor = self.lean(parts)
        return logits


class Text:
    """A batch of random tokens, the same for the same seed, which goes on with a column a step."""

    def __init__(self, rows: int, columns: int, seed: int, padded: bool = False) -> None:
        random = torch.Generator().manual_seed(seed)
        self._ids = torch.randint(0, 260, (rows, 64), generator=random)
        self._pads = torch.arange(rows)[:, None] if padded else None
        self._end, self._first = 0, columns
        self.cache = BatchCache(rows, LAYERS)

    def next_part(self) -> Part:
        begin, self._end = self._end, self._end + (1 if self._end else self._first)
        columns = torch.arange(self._end)
        pads = torch.zeros(1, 1, dtype=torch.long) if self._pads is None else self._pads
        mask = None if self._pads is None else columns >= pads
        positions = (columns[begin:] - pads).clamp(min=0).expand(len(self._ids), -1)
        return Part(self._ids[:, begin : self._end], positions, mask, self.cache)


@pytest.fixture(scope="module", params=[False, True], ids=["torch's operators", "kernels of our own"])
def counting(single_thread: None, request: pytest.FixtureRequest) -> Counting:
    if not request.param:
        return Counting(optimized(tiny_llama(), CPU), has_kernel=False)
    return Counting(LeanLlama(tiny_llama(head_size=32), FusedLinear, operators=AS_FUSED), has_kernel=True)


@pytest.fixture(scope="module")
def captured(counting: Counting) -> GraphedPass:
    return graphed_pass(counting, rows=(1, 2, 4), columns=(8, 16))


@pytest.fixture(scope="module")
def reading(counting: Counting) -> GraphedPass:
    return graphed_pass(counting, rows=(4,), columns=(16,), prompts=((1, 4), (2, 6), (4, 6)))


def graphed_pass(counting: Counting, prompts: Sequence[tuple[int, int]] = (), **buckets: Sequence[int]) -> GraphedPass:
    has_kernel = counting.has_kernel
    return GraphedPass(counting, CPU, as_traced_graph, LAYERS, **buckets, has_kernel=has_kernel, prompts=prompts)


@pytest.fixture
def graphed(captured: GraphedPass, counting: Counting) -> GraphedPass:
    counting.calls = 0
    return captured


def test_that_one_graph_holds_for_all_columns_where_it_reads_but_what_is_held(counting: Counting) -> None:
    told: list[LoadProgress] = []
    GraphedPass(counting, CPU, as_traced_graph, LAYERS, (1, 2), (8, 16), True, prompts=(), report=told.append)
    assert told[-1] == LoadProgress("graphs", 2, 2)


def test_that_capturing_tells_how_far_it_is(counting: Counting) -> None:
    told: list[LoadProgress] = []
    GraphedPass(counting, CPU, as_traced_graph, LAYERS, (1, 2), (8, 16), prompts=((1, 4),), report=told.append)
    assert told == [LoadProgress("graphs", done, 5) for done in range(6)]


@torch.inference_mode()
def same(graphed: GraphedPass, counting: Counting, text: Text, again: Text) -> None:
    torch.testing.assert_close(graphed([text.next_part()]), counting.lean([again.next_part()]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("padded", [False, True], ids=["as long", "padded"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_that_steps_are_replayed_and_prompts_are_not(
    graphed: GraphedPass, counting: Counting, rows: int, padded: bool
) -> None:
    text, again = (Text(rows, 5, seed=1, padded=padded) for _ in range(2))
    for _ in range(1 + 10):  # into the second bucket of columns
        same(graphed, counting, text, again)
    assert counting.calls == 1


@pytest.mark.parametrize("padded", [False, True], ids=["as long", "padded"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_that_short_prompts_are_replayed_too(reading: GraphedPass, counting: Counting, rows: int, padded: bool) -> None:
    counting.calls = 0
    for columns in (1, 3, 6):
        text, again = (Text(rows, columns + rows - 1, seed=columns, padded=padded) for _ in range(2))
        for _ in range(3):
            same(reading, counting, text, again)
    longer = [columns + rows - 1 > (4 if rows == 1 else 6) for columns in (1, 3, 6)]
    assert counting.calls == sum(longer) - (rows == 1), "one row has room in the graph for two"


def test_that_prompts_of_one_pass_do_not_disturb_each_other(reading: GraphedPass, counting: Counting) -> None:
    counting.calls = 0
    texts, again = ([Text(2, columns, seed) for seed, columns in ((1, 5), (2, 4), (3, 9))] for _ in range(2))
    for _ in range(3):
        with torch.inference_mode():
            found, wanted = reading([each.next_part() for each in texts]), counting.lean([e.next_part() for e in again])
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)
    assert counting.calls == 1 + 2, "the long prompt, and the steps of those that are not the first"


def test_that_prompts_are_read_again_after_a_pass_that_failed(reading: GraphedPass, counting: Counting) -> None:
    text, again = Text(2, 5, seed=1), Text(2, 5, seed=1)
    part = text.next_part()
    with torch.inference_mode():
        reading([part])
        part.cache.rewind(0)
        found, wanted = reading([part]), counting.lean([again.next_part()])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)
    same(reading, counting, text, again)


def test_that_what_outgrows_the_buckets_is_computed_as_before(graphed: GraphedPass, counting: Counting) -> None:
    many, many_again = Text(5, 3, seed=1), Text(5, 3, seed=1)
    long, long_again = Text(2, 14, seed=2), Text(2, 14, seed=2)
    for _ in range(3):
        same(graphed, counting, many, many_again)
    for _ in range(1 + 4):  # to column 18
        same(graphed, counting, long, long_again)
    assert counting.calls == 3 + (1 + 2)


def test_that_a_few_rows_of_a_batch_too_large_are_computed_as_before(graphed: GraphedPass, counting: Counting) -> None:
    text, again = Text(2, 3, seed=1), Text(2, 3, seed=1)
    text.cache, again.cache = (
        BatchCache(5, LAYERS),
        BatchCache(5, LAYERS),
    )  # of which the other three have not begun yet
    for _ in range(3):
        same(graphed, counting, text, again)
    assert counting.calls == 3


def test_that_batches_that_take_turns_do_not_disturb_each_other(graphed: GraphedPass, counting: Counting) -> None:
    pairs = [[Text(rows, 4, seed) for _ in range(2)] for rows, seed in ((2, 1), (3, 2))]
    for _ in range(6):
        for text, again in pairs:
            same(graphed, counting, text, again)
    assert counting.calls == 2


def test_that_a_step_that_reads_prompts_too_goes_on_where_the_replayed_ones_ended(
    graphed: GraphedPass, counting: Counting
) -> None:
    (text, again), (newcomer, newcomer_again) = ([Text(2, 4, seed) for _ in range(2)] for seed in (1, 2))
    for _ in range(3):
        same(graphed, counting, text, again)
    with torch.inference_mode():
        found = graphed([text.next_part(), newcomer.next_part()])
        wanted = counting.lean([again.next_part(), newcomer_again.next_part()])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)
    for _ in range(2):
        same(graphed, counting, text, again)
        same(graphed, counting, newcomer, newcomer_again)


def use_of(graphed: GraphedPass, before: GraphUse) -> tuple[int, int]:
    """Steps and replayed ones since `before`."""
    return graphed.use.steps - before.steps, graphed.use.replayed - before.replayed


def test_that_replayed_steps_are_counted_and_the_others_say_why(graphed: GraphedPass, counting: Counting) -> None:
    before = graphed.use
    text, again = Text(2, 13, seed=1), Text(2, 13, seed=1)
    for _ in range(1 + 3):  # a prompt, then steps to column 16
        same(graphed, counting, text, again)
    assert use_of(graphed, before) == (3, 3)
    same(graphed, counting, text, again)
    assert use_of(graphed, before) == (4, 3)
    expected = "A batch of 2 rows and 17 columns exceeds the largest graph: 4 rows and 16 columns."
    assert graphed.use.why_not == expected


@torch.inference_mode()
def test_that_each_batch_of_a_pass_counts_as_a_step(graphed: GraphedPass) -> None:
    text, apart, newcomer = Text(2, 3, seed=1), Text(2, 3, seed=2), Text(1, 3, seed=3)
    for each in (text, apart):
        graphed([each.next_part()])
    before = graphed.use
    graphed([text.next_part(), apart.next_part(), newcomer.next_part()])
    assert use_of(graphed, before) == (2, 1)
    assert graphed.use.why_not.startswith("Rows of very different length are decoded apart")


ARCHITECTURES: dict[str, Callable[[str], Any]] = {
    "qwen2": tiny_of,
    "qwen3": tiny_of,
    "mistral": partial(tiny_of, sliding_window=40),
    "gemma": tiny_of,
    "gemma2": partial(tiny_of, sliding_window=40),
    "gemma3_text": partial(tiny_of, sliding_window=40),
    "phi3": partial(tiny_of, sliding_window=None),
    "gpt2": lambda _: tiny_gpt2(),
}


@torch.inference_mode()
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_that_what_transformers_computes_of_any_architecture_is_replayed_too(kind: str, single_thread: None) -> None:
    """Its masks are made in the graph, from which columns are there, and for prompts as for steps."""
    own = OwnPass(ARCHITECTURES[kind](kind), CPU)
    graphed = GraphedPass(own, CPU, as_traced_graph, LAYERS, rows=(1, 4), columns=(16, 32), prompts=((4, 6),))
    for columns, padded in ((3, False), (3, True), (12, True)):
        text, again = (Text(3, columns, seed=1, padded=padded) for _ in range(2))
        for _ in range(1 + 14):  # into the second bucket
            found, wanted = graphed([text.next_part()]), own([again.next_part()])
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert graphed.use == GraphUse(steps=3 * 14, replayed=3 * 14)


OF_NEIGHBOURS = {"attention_types": [[["global", "local"], 1]], "num_layers": LAYERS, "num_heads": 4}
"""GPT-Neo's: every other layer attends to the last `window_size` columns alone."""


@pytest.mark.parametrize(("context", "columns"), [(1000, (128, 256, 512, 1024)), (300, (128, 256, 512))])
def test_that_graphs_hold_as_many_columns_as_a_model_has(
    context: int, columns: tuple[int, ...], single_thread: None
) -> None:
    model = tiny_of("qwen3", max_position_embeddings=context)
    assert columns_that_hold(OwnPass(model, CPU), model, lambda: as_traced_graph) == [*columns]


@pytest.mark.parametrize("names", [optimize.WINDOWS, ()], ids=["which it says", "which is seen"])
def test_that_graphs_hold_no_more_columns_than_each_layer_attends_to(
    names: tuple[str, ...], single_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimize, "WINDOWS", names)
    model = tiny_of("gpt_neo", window_size=256, max_position_embeddings=1024, **OF_NEIGHBOURS)
    assert columns_that_hold(OwnPass(model, CPU), model, lambda: as_traced_graph) == [128, 256]


def test_that_an_architecture_of_which_no_graph_holds_is_said(
    single_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_of("gpt_neo", window_size=6, **OF_NEIGHBOURS)
    monkeypatch.setattr(optimize, "WINDOWS", ())
    with pytest.raises(ValueError, match="GPTNeoForCausalLM attends in a way that no graph holds"):
        columns_that_hold(OwnPass(model, CPU), model, lambda: as_traced_graph)


def test_that_an_engine_on_a_processor_reports_no_graphs_and_a_launched_pass_why_there_are_none() -> None:
    assert TextEngine(loaded(tiny_llama())).graphs is None
    engine = TextEngine(loaded(tiny_llama(), forward=LaunchedPass(optimized(tiny_llama(), CPU), "None was made.")))
    run(engine, Prompt("a", [1, 2, 3], SamplingParams(max_tokens=4)))
    assert engine.graphs == GraphUse(steps=3, replayed=0, why_not="None was made.")


def test_that_a_row_of_nan_leaves_nothing_to_those_that_come_to_its_place(single_thread: None) -> None:
    """It holds NaN in a column that a graph multiplies with a mask's zero when a shorter row is there."""

    def answers(engine: TextEngine) -> tuple[list[int], list[int]]:
        long, short = (Prompt(str(ids), ids, SamplingParams(max_tokens=5)) for ids in ([*range(20)], [1, 2, 3]))
        run(engine, long)
        run(engine, short)
        return long.tokens, short.tokens

    def engine(model: Any) -> TextEngine:
        graphs = GraphedPass(optimized(model, CPU), CPU, as_traced_graph, LAYERS, rows=(1,), columns=(32,))
        return TextEngine(loaded(model, forward=graphs))

    long, short = answers(engine(tiny_llama()))
    assert long[1] not in short
    poisoned = tiny_llama()
    poisoned.model.embed_tokens.weight.data[long[1]] = torch.nan
    assert answers(engine(poisoned)) == (long[:2], short)
