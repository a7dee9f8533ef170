"""Processes that measure: what is asked of them, what becomes of errors, and that none is left behind."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import psutil
import pytest
import torch

from service.commands.bench import machine, subjects
from service.commands.bench.subjects import EngineAlone, Reference
from service.commands.bench.worker import Worker, WorkerError
from service.engine.engine import TextEngine
from service.engine.loading import LoadedEngine
from service.messages.options import ServiceOptions
from service.messages.settings import Settings
from tests.unit.bench_fakes import Counting
from tests.unit.tiny_models import byte_level_tokenizer, loaded, tiny_llama


@pytest.fixture(scope="module", autouse=True)
def no_helper_left() -> Iterator[None]:
    """End what multiprocessing starts beside the first worker, and would keep until this process ends."""
    yield
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # there is no public way


ORPHAN = """
import asyncio, signal, sys
from service.commands.bench.worker import Worker
from service.messages.options import ServiceOptions
from tests.unit.bench_fakes import Counting

async def main():
    async with Worker(Counting, ServiceOptions()) as worker:
        await worker.ready()
        print(worker.pid, flush=True)
        sys.stdin.read()

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_that_a_worker_answers_what_its_object_returns() -> None:
    async with Worker(Counting, ServiceOptions(model="tiny")) as worker:
        await worker.ready()

        assert await worker.ask("model") == "tiny"
        assert await worker.ask("add", 2, 3) == 5
    assert not multiprocessing.active_children()


async def test_that_a_model_that_is_not_there_is_said_in_its_own_sentence() -> None:
    async with Worker(Counting, ServiceOptions(model="none")) as worker:
        with pytest.raises(WorkerError, match=r"^There is no such model\.$"):
            await worker.ready()


async def test_that_a_failure_is_said_in_a_sentence() -> None:
    async with Worker(Counting, ServiceOptions()) as worker:
        await worker.ready()

        with pytest.raises(WorkerError, match=r"failed: no kernel\.$"):
            await worker.ask("fail")


async def test_that_a_process_that_dies_is_told_of() -> None:
    async with Worker(Counting, ServiceOptions()) as worker:
        await worker.ready()

        with pytest.raises(WorkerError, match=r"exit code 9.*--batch-sizes"):
            await worker.ask("die")
        with pytest.raises(WorkerError, match="exit code 9"):
            await worker.ask("add", 2, 3)


def test_that_a_worker_ends_with_a_parent_that_was_killed() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdin=pipe, stdout=pipe) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)

    assert worker.wait(timeout=120) is None


@pytest.mark.parametrize("formation", ["late", "continuous"])
def test_that_the_engine_alone_decodes_full_batches_to_their_end(
    monkeypatch: pytest.MonkeyPatch, formation: str
) -> None:
    engine = TextEngine(loaded(tiny_llama()))
    monkeypatch.setattr(subjects, "load_engine", lambda _: LoadedEngine(engine, "cpu", "float32"))
    settings = Settings(formation=formation)  # type: ignore[arg-type]

    run = EngineAlone(ServiceOptions(settings=settings)).run(size=6, tokens=5, run_s=0.2)

    assert (run.subject, run.tokens % (6 * 5), run.rows) == ("engine", 0, 6)
    assert run.ran_s >= 0.2
    assert run.step_s is not None
    assert 0 < run.first_token_s < run.ran_s
    assert run.memory_bytes > 0


async def test_that_generate_is_measured_on_the_weights_in_the_folder(tmp_path: Path) -> None:
    model = tiny_llama()
    model.save_pretrained(tmp_path)
    byte_level_tokenizer().save_pretrained(tmp_path)
    everything = sum(each.numel() for each in model.parameters())

    async with Worker(Reference, ServiceOptions(model=str(tmp_path), device="cpu", dtype="float32")) as worker:
        await worker.ready()
        on, weights = await worker.ask("facts")
        run = await worker.ask("run", 3, 4, 0.0)

    assert (on.model, on.device, on.dtype) == (tmp_path.name, "cpu", "float32")
    assert weights.parameters == everything - model.get_input_embeddings().weight.numel()
    assert (run.subject, run.tokens, run.rows) == ("generate", 3 * 4, 3)
    assert run.step_s is not None


def test_that_the_machine_is_measured_in_bytes_and_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(machine.BLOCK_BYTES, "cpu", 1 << 16)
    monkeypatch.setitem(machine.MATRIX_SIDE, "cpu", 32)
    monkeypatch.setattr(machine, "_timed_s", lambda compute, _: compute() is not None and 0.5)

    rates = machine.measured_rates(torch.device("cpu"), torch.float32)

    assert rates.bytes_per_s == 2 * (1 << 16) / 0.5  # a copy reads and writes
    assert rates.operations_per_s == 2 * 32**3 / 0.5
