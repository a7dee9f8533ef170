"""What a step launches on a GPU and waits for, counted on one that is made of fake tensors.

A launch takes a few microseconds of the host, a wait leaves the GPU idle until the host has come to the next step: both
are what a step of a small model takes longest for. What is replayed from a graph counts as one launch.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.engine.batch import Batch
from service.engine.compute_thread import ComputeThread
from service.engine.decoding import Decoding
from service.engine.groups import Groups
from service.engine.job import SamplingParams
from service.engine.model.graphs import MEMORY_SHARE
from service.engine.model.optimize import AT_A_GPU, Linear, on_a_gpu
from service.engine.out_of_memory import MemoryLimit
from service.engine.row import Row
from service.messages.telemetry import BatchWork
from tests.unit import fake_gpu
from tests.unit.fake_gpu import GpuEngine
from tests.unit.tiny_models import tiny_llama

ROWS = 32
LAYERS = 8
GREEDY = SamplingParams(max_tokens=64)
WAITS_A_STEP = 1
LAUNCHES_A_STEP = 16
WAITS_OF_A_CHANGE = 2
LAUNCHES_OF_A_CHANGE = 48


@pytest.fixture(scope="module")
def engine() -> Iterator[GpuEngine]:
    with GpuEngine.of(tiny_llama(LAYERS), rows=(ROWS,), columns=(64,)) as made:
        yield made


@pytest.fixture
def open_batch(engine: GpuEngine) -> Groups:
    """Rows that run, where one more has room."""
    batch = Groups(engine.forward, [engine.row(20 + i % 3) for i in range(ROWS - 1)], is_open=True)
    for _ in range(3):
        engine.step(batch.for_step())
    return batch


def running(engine: GpuEngine, sampling: SamplingParams = GREEDY) -> Batch:
    batch = Batch(engine.forward, [engine.row(20 + i % 3, sampling) for i in range(ROWS)])
    for _ in range(2):
        engine.step([batch])
    return batch


def test_that_a_step_is_launched_before_the_tokens_of_the_one_before_are_read(engine: GpuEngine) -> None:
    """What Python does with them takes no time of the GPU then; and none is launched that no row needs."""
    rows = [engine.row(20, SamplingParams(max_tokens=5)) for _ in range(ROWS)]
    seen: list[tuple[int, int]] = []
    with engine.gpu.counting() as work:
        decoding = Decoding(
            engine.forward, MemoryLimit(), ComputeThread(), lambda _: seen.append((work.replays, work.waits.total()))
        )
        decoding.run(rows)
    assert seen == [(2, 1), (3, 2), (4, 3), (5, 4), (5, 5)], "the first step reads the prompts"


def test_that_a_step_is_launched_ahead_while_another_joins(engine: GpuEngine) -> None:
    rows = [engine.row(20, SamplingParams(max_tokens=8)) for _ in range(ROWS - 1)]
    joining = [[], [engine.row(20, SamplingParams(max_tokens=3))]]
    seen: list[tuple[int, int]] = []

    def admit(work: BatchWork, can_join: bool) -> list[Row]:
        return joining.pop(0) if joining else []

    with engine.gpu.counting() as work:
        decoding = Decoding(
            engine.forward, MemoryLimit(), ComputeThread(), lambda _: seen.append((work.replays, work.waits.total()))
        )
        decoding.run(rows, admit)
    replays = [2, 3, 5, 6, 7, 8, 9, 9]  # the prompts and a step ahead; the third reads the prompt that joins as well
    assert seen == [(replayed, step) for step, replayed in enumerate(replays, 1)]


SAMPLINGS = {
    "greedy": GREEDY,
    "sampled": SamplingParams(max_tokens=64, temperature=0.8),
    "nucleus": SamplingParams(max_tokens=64, temperature=0.8, top_p=0.9),
}


@pytest.mark.parametrize("how", SAMPLINGS)
def test_that_a_step_waits_once(engine: GpuEngine, how: str) -> None:
    work = engine.step([running(engine, SAMPLINGS[how])])
    assert (work.replays, work.waits) == (1, {"event": WAITS_A_STEP})


def test_that_a_step_launches_little_beside_its_graph(engine: GpuEngine) -> None:
    work = engine.step([running(engine)])
    assert work.launches <= LAUNCHES_A_STEP, work.kernels


def test_that_attention_under_a_mask_never_holds_the_weights_of_all_columns(
    engine: GpuEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.forward, "prefill_tokens", 300)
    batch = Batch(engine.forward, [engine.row(400), engine.row(390)])
    works = [engine.step([batch]) for _ in range(3)]
    assert [work.kernels["scaled_dot_product_attention"] for work in works] == [LAYERS] * 3
    assert not any(work.squares for work in works)


@pytest.mark.parametrize(
    ("linear", "most"), [(on_a_gpu()[0], 8), (AT_A_GPU, 12)], ids=["kernels of our own", "torch's operators"]
)
def test_that_a_graph_holds_few_operators_a_layer(linear: Linear, most: int) -> None:
    graphs = []
    for layers in (1, 3):
        with GpuEngine.of(tiny_llama(layers, head_size=32), rows=(ROWS,), columns=(64,), linear=linear) as made:
            graphs.append(made.captured)
    one, three = graphs
    assert three.launches - one.launches <= 2 * most, three.kernels - one.kernels


def test_that_for_lack_of_memory_graphs_hold_fewer_columns_before_they_hold_fewer_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_llama(1)
    a_cell = 2 * model.config.hidden_size  # keys and values of half as many heads, of two bytes each
    monkeypatch.setattr(fake_gpu, "FREE_BYTES", MEMORY_SHARE * ROWS * 32 * a_cell)
    with GpuEngine.of(model, rows=(ROWS // 2, ROWS), columns=(32, 64)) as engine:
        batch = Batch(engine.forward, [engine.row(25) for _ in range(ROWS)])
        replays = [engine.step([batch]).replays for _ in range(10)]
    assert replays == [1, *[1] * 7, 0, 0], "the prompts, and steps up to column 32"


@pytest.mark.parametrize("ended", [[31], [3], [0, 5, 17]], ids=["the last", "another", "several"])
def test_that_rows_that_end_cost_no_copy_a_layer(engine: GpuEngine, ended: list[int]) -> None:
    batch = running(engine)
    for number in ended:
        batch.rows[number].is_done = True
    work = engine.step([batch])
    assert work.replays == 1
    assert work.waits.total() <= WAITS_OF_A_CHANGE, work.waits
    assert work.launches <= LAUNCHES_OF_A_CHANGE, work.kernels


@pytest.mark.parametrize("tokens", [20, 40], ids=["a short prompt", "a longer one than theirs"])
def test_that_rows_are_replayed_while_another_joins_and_its_prompt_too(
    engine: GpuEngine, open_batch: Groups, tokens: int
) -> None:
    open_batch.join([engine.row(tokens)])
    work = engine.step(open_batch.for_step())
    assert work.replays == 2
    assert work.waits.total() <= WAITS_OF_A_CHANGE, work.waits
    assert work.launches <= LAUNCHES_OF_A_CHANGE, work.kernels


def test_that_rows_are_replayed_while_a_long_prompt_is_launched_beside(engine: GpuEngine, open_batch: Groups) -> None:
    """That is as many launches as a pass has."""
    alone = engine.step([Batch(engine.forward, [engine.row(200)])])
    open_batch.join([engine.row(200)])
    work = engine.step(open_batch.for_step())
    assert work.replays == 1
    assert work.waits.total() <= WAITS_OF_A_CHANGE, work.waits
    assert work.launches <= alone.launches + LAUNCHES_OF_A_CHANGE, work.kernels


@pytest.mark.parametrize("tokens", [20, 40], ids=["a short prompt", "a longer one than theirs"])
def test_that_its_next_step_is_replayed_with_theirs(engine: GpuEngine, open_batch: Groups, tokens: int) -> None:
    open_batch.join([engine.row(tokens)])
    engine.step(open_batch.for_step())
    work = engine.step(open_batch.for_step())
    assert work.replays == 1
    assert work.waits.total() <= WAITS_OF_A_CHANGE, work.waits
    assert work.launches <= LAUNCHES_OF_A_CHANGE, work.kernels
