"""Several batches on one engine: they take turns, and none of them feels the other in its result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from service.engine.compute_thread import ComputeThread, EngineThreads
from service.engine.engine import TextEngine
from service.engine.job import SamplingParams, Sequence
from tests.unit.tiny_models import run


def sequences(engine: TextEngine, *prompts: str) -> list[Sequence]:
    return [Sequence(prompt, engine.encode(prompt, 12), SamplingParams(max_tokens=12)) for prompt in prompts]


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """The thread in which the engine computes."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_that_batches_side_by_side_compute_what_they_do_alone_and_all_in_one_thread(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    prompts = [("Once", "upon a"), ("time", "there was"), ("a", "b")]
    alone = [run(tiny_engine, *sequences(tiny_engine, *each)) for each in prompts]
    compute, threads = tiny_engine.forward.compute, set[int]()

    def watched(parts: Any) -> Any:
        threads.add(threading.get_ident())
        return compute(parts)

    monkeypatch.setattr(tiny_engine.forward, "compute", watched)
    monkeypatch.setattr(tiny_engine, "_thread", executor.submit(ComputeThread, executor).result())
    own_thread = executor.submit(threading.get_ident).result()
    with ThreadPoolExecutor(2) as others:
        executors = (executor, others, others)
        running = [
            executor.submit(run, tiny_engine, *sequences(tiny_engine, *each))
            for executor, each in zip(executors, prompts, strict=True)
        ]
        beside = [each.result() for each in running]
    assert [listener.texts for listener in beside] == [listener.texts for listener in alone]
    assert [listener.work.steps for listener in beside] == [listener.work.steps for listener in alone]
    assert threads == {own_thread}


def test_that_a_batch_in_the_compute_thread_lets_a_submitted_step_go_before_its_own_next(
    executor: ThreadPoolExecutor,
) -> None:
    computed, has_begun, other_has_submitted = list[str](), threading.Event(), threading.Event()

    def stay(at: ComputeThread) -> None:
        at.compute(lambda: computed.append("own"))
        has_begun.set()
        other_has_submitted.wait()
        at.compute(lambda: computed.append("own"))

    at = executor.submit(ComputeThread, executor).result()
    staying = executor.submit(stay, at)
    put = at._submitted.put
    at._submitted = SimpleNamespace(  # type: ignore[assignment]
        put=lambda each: (put(each), other_has_submitted.set()),
        qsize=at._submitted.qsize,
        get_nowait=at._submitted.get_nowait,
    )
    has_begun.wait()
    at.compute(lambda: computed.append("submitted"))
    staying.result()
    assert computed == ["own", "submitted", "own"]


def test_that_what_a_step_raises_reaches_its_submitter(executor: ThreadPoolExecutor) -> None:
    at = executor.submit(ComputeThread, executor).result()
    with pytest.raises(ZeroDivisionError):
        at.compute(lambda: 1 / 0)
    assert at.compute(lambda: 1) == 1


def test_that_the_thread_in_which_the_engine_computes_is_lent_first() -> None:
    with ThreadPoolExecutor(1) as first:
        threads = EngineThreads(first)
        with threads.one() as one, threads.one() as other:
            assert one is first
        with threads.one() as again, threads.one() as other_again:
            assert (again, other_again) == (first, other)
        other.shutdown()
