"""What a bench says of runs: medians, floors, ratios, and the table."""

from __future__ import annotations

import pytest

from service.commands.bench.command import table
from service.commands.bench.other_work import OtherWork, Used, processor_time
from service.commands.bench.report import (
    BenchPlan,
    BenchReport,
    BenchRun,
    MeasuredOn,
    Rates,
    Weights,
    concluded,
    floor,
    interleaved,
    prompts_for,
)
from service.messages.load import USUAL_PROMPTS
from tests.unit.bench_fakes import RATES, WEIGHTS, run
from tests.unit.tiny_models import tiny_gpt2, tiny_llama

ON = MeasuredOn(model="tiny", device="cpu", dtype="float32", hardware="a processor", versions={"torch": "2"})


def report(*runs: BenchRun, rates: Rates | None = RATES) -> BenchReport:
    sizes = tuple(sorted({each.size for each in runs}))
    return concluded(BenchPlan(sizes=sizes), ON, runs, rates, WEIGHTS if rates else None, [], measured_at=0.0)


def test_that_every_size_is_measured_in_every_round_and_another_comes_first_in_the_next() -> None:
    planned = list(interleaved(("engine", "generate"), (1, 16), 2))

    assert [(run.round, run.size) for run in planned] == [(0, 1)] * 2 + [(0, 16)] * 2 + [(1, 1)] * 2 + [(1, 16)] * 2
    assert [run.subject for run in planned] == ["engine", "generate"] * 2 + ["generate", "engine"] * 2


def test_that_large_batches_repeat_the_usual_prompts() -> None:
    assert prompts_for(len(USUAL_PROMPTS) + 1) == [*USUAL_PROMPTS, USUAL_PROMPTS[0]]


def test_that_the_median_of_the_rounds_counts_and_their_spread_is_told() -> None:
    of_rounds = report(*[run("engine", 4, rate) for rate in (90.0, 100.0, 130.0)]).at(4, "engine")

    assert of_rounds is not None
    assert of_rounds.tokens_per_s == 100.0
    assert of_rounds.spread == pytest.approx(0.2)
    assert of_rounds.step_s == pytest.approx(0.04)
    assert of_rounds.rounds == 3


def test_that_the_floor_is_the_slower_of_reading_and_multiplying() -> None:
    small, large = (floor(WEIGHTS, RATES, size) for size in (1, 4096))

    assert small.step_s == small.memory_s == pytest.approx(0.01)
    assert large.step_s == large.matrix_s == pytest.approx(2 * 5e6 * 4096 / 1e12)


def test_that_a_step_reads_the_table_of_input_tokens_only_where_it_is_the_output_layer_too() -> None:
    separate, shared = tiny_llama(), tiny_gpt2()

    everything = sum(each.numel() for each in separate.parameters())
    assert Weights.of(separate).parameters == everything - separate.get_input_embeddings().weight.numel()
    assert Weights.of(shared).parameters == sum(each.numel() for each in shared.parameters())
    assert Weights.of(shared).bytes == 4 * Weights.of(shared).parameters


def test_that_what_was_reached_is_held_against_generate_the_engine_and_the_floor() -> None:
    concluded_report = report(run("generate", 4, 50.0), run("engine", 4, 200.0), run("http", 4, 180.0))

    http = concluded_report.at(4, "http")
    assert http is not None
    assert http.over_generate == pytest.approx(3.6)
    assert http.over_engine == pytest.approx(0.9)
    assert http.over_floor == pytest.approx(4 / 180 / 0.01)


def test_that_a_ratio_to_what_was_not_measured_is_none() -> None:
    http = report(run("http", 4), rates=None).at(4, "http")

    assert http is not None
    assert (http.over_generate, http.over_engine, http.over_floor) == (None, None, None)


def test_that_batches_that_were_not_full_are_named() -> None:
    notes = report(*[run("http", 16, rows=9.5), run("http", 4, rows=4.0)] * 3).notes

    assert len(notes) == 1
    assert "than the batch holds, at 16:" in notes[0]


def test_that_a_bench_that_was_ended_early_says_what_is_missing() -> None:
    ended = report(*[run("engine", 16)] * 3, *[run("engine", 4)] * 2)

    assert ended.notes == ("It was ended early, with 1 run to come.",)


def test_that_the_table_has_a_block_for_each_size_with_its_floors() -> None:
    lines = table(report(run("engine", 16, 200.0), run("generate", 16, 50.0), run("engine", 1, 60.0))).splitlines()

    rows = [line.split() for line in lines]
    assert next(row for row in rows if row[:2] == ["16", "engine"])[2:6] == ["200.0", "±0", "%", "4.00"]
    assert [row[0] for row in rows if row and row[0] in ("1", "16")] == ["1", "16"]
    assert sum(line.lstrip().startswith("floor, memory") for line in lines) == 2
    assert "1 round of 3 s" in lines[1]


def test_that_the_table_of_a_service_elsewhere_leaves_out_what_is_not_known() -> None:
    text = table(report(run("http", 16), rates=None))

    assert "floor," not in text
    assert "–" in next(line for line in text.splitlines() if "HTTP, streamed" in line)


def test_that_the_work_of_other_programs_is_told_as_a_share_of_all_cores() -> None:
    readings = iter([Used(0.0, 10.0, 4.0), Used(2.0, 14.0, 7.0), Used(9.0, 50.0, 8.0), Used(11.0, 52.0, 10.0)])
    work = OtherWork(lambda: next(readings), cores=2)

    for _ in range(2):
        with work:
            pass

    assert work.share == pytest.approx(1.0 / 8.0)  # 1 s in the first run, none in the second, of 2 × 4 s
    assert work.warnings == ["Other programs used 12 % of the processor meanwhile: the figures are too slow."]


def test_that_what_this_program_does_itself_is_not_the_work_of_others() -> None:
    before = processor_time()
    while (now := processor_time()).own_s < before.own_s + 0.05:
        pass

    assert now.all_s >= before.all_s
