"""Several batches on one engine: they take turns, and none of them feels the other in its result."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.engine.engine import TextEngine
from service.engine.sequence import SamplingParams, Sequence
from service.engine.thread_pool import EngineThreads
from service.engine.turns import Turns
from tests.unit.tiny_models import run


def sequences(engine: TextEngine, *prompts: str) -> list[Sequence]:
    return [Sequence(prompt, engine.encode(prompt, 12), SamplingParams(max_tokens=12)) for prompt in prompts]


def test_that_batches_that_alternate_compute_what_they_do_alone(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [("Once", "upon a"), ("time", "there was"), ("a", "b")]
    alone = [run(tiny_engine, *sequences(tiny_engine, *each)) for each in prompts]
    compute, is_computing, overlaps = tiny_engine._forward.compute, threading.Lock(), list[int]()

    def watched(parts: Any) -> Any:
        if not is_computing.acquire(blocking=False):
            overlaps.append(len(parts))
            return compute(parts)
        with contextlib.ExitStack() as stack:
            stack.callback(is_computing.release)
            return compute(parts)

    monkeypatch.setattr(tiny_engine._forward, "compute", watched)
    with ThreadPoolExecutor(len(prompts)) as threads:
        beside = list(threads.map(lambda each: run(tiny_engine, *sequences(tiny_engine, *each)), prompts))
    assert [listener.texts for listener in beside] == [listener.texts for listener in alone]
    assert [listener.work.steps for listener in beside] == [listener.work.steps for listener in alone]
    assert not overlaps, "one step at a time"


def test_that_turns_are_had_in_the_order_they_were_asked_for() -> None:
    turns, had = Turns(), list[int]()
    asked = [threading.Event() for _ in range(4)]

    def take(number: int) -> None:
        asked[number].set()
        with turns.next():
            had.append(number)

    with turns.next():
        threads = []
        for number in range(4):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            while len(turns._line) < number + 2:
                asked[number].wait()
    for thread in threads:
        thread.join()
    assert had == [0, 1, 2, 3]


def test_that_the_thread_in_which_the_engine_was_loaded_is_lent_first_and_the_others_are_prepared() -> None:
    prepared: list[str] = []
    with ThreadPoolExecutor(1) as first:
        threads = EngineThreads(first, lambda: prepared.append(threading.current_thread().name))
        with threads.one() as one, threads.one() as other:
            assert one is first
            assert other.submit(lambda: threading.current_thread().name).result() == prepared[0]
        with threads.one() as again, threads.one() as other_again:
            assert (again, other_again) == (first, other)
        other.shutdown()
    assert len(prepared) == 1
