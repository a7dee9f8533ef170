"""Several batches on one engine: they take turns, and none of them feels the other in its result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from service.engine.compute_thread import EngineThreads, Home
from service.engine.engine import TextEngine
from service.engine.sequence import SamplingParams, Sequence
from tests.unit.tiny_models import run


def sequences(engine: TextEngine, *prompts: str) -> list[Sequence]:
    return [Sequence(prompt, engine.encode(prompt, 12), SamplingParams(max_tokens=12)) for prompt in prompts]


@pytest.fixture
def home() -> Iterator[ThreadPoolExecutor]:
    """The thread in which the engine computes."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_that_batches_side_by_side_compute_what_they_do_alone_and_all_in_one_thread(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch, home: ThreadPoolExecutor
) -> None:
    prompts = [("Once", "upon a"), ("time", "there was"), ("a", "b")]
    alone = [run(tiny_engine, *sequences(tiny_engine, *each)) for each in prompts]
    compute, threads = tiny_engine._forward.compute, set[int]()

    def watched(parts: Any) -> Any:
        threads.add(threading.get_ident())
        return compute(parts)

    monkeypatch.setattr(tiny_engine._forward, "compute", watched)
    monkeypatch.setattr(tiny_engine, "_home", home.submit(Home, home).result())
    at_home = home.submit(threading.get_ident).result()
    with ThreadPoolExecutor(2) as others:
        executors = (home, others, others)
        running = [
            executor.submit(run, tiny_engine, *sequences(tiny_engine, *each))
            for executor, each in zip(executors, prompts, strict=True)
        ]
        beside = [each.result() for each in running]
    assert [listener.texts for listener in beside] == [listener.texts for listener in alone]
    assert [listener.work.steps for listener in beside] == [listener.work.steps for listener in alone]
    assert threads == {at_home}


def test_that_a_batch_at_home_lets_a_guest_have_its_turn_before_its_own_next(home: ThreadPoolExecutor) -> None:
    computed, has_begun, guest_has_asked = list[str](), threading.Event(), threading.Event()

    def stay(at: Home) -> None:
        at.compute(lambda: computed.append("own"))
        has_begun.set()
        guest_has_asked.wait()
        at.compute(lambda: computed.append("own"))

    at = home.submit(Home, home).result()
    staying = home.submit(stay, at)
    put = at._guests.put
    at._guests = SimpleNamespace(  # type: ignore[assignment]
        put=lambda each: (put(each), guest_has_asked.set()), qsize=at._guests.qsize, get_nowait=at._guests.get_nowait
    )
    has_begun.wait()
    at.compute(lambda: computed.append("guest's"))
    staying.result()
    assert computed == ["own", "guest's", "own"]


def test_that_what_a_step_raises_reaches_who_asked_for_it(home: ThreadPoolExecutor) -> None:
    at = home.submit(Home, home).result()
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
