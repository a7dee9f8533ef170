"""Several batches on one engine: they take turns, and none of them feels the other in its result."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from service.engine.engine import TextEngine
from service.engine.sequence import SamplingParams, Sequence
from service.engine.thread_pool import EngineThreads
from service.engine.turns import Turns
from tests.unit.tiny_models import Listener, run


def sequences(engine: TextEngine, *prompts: str) -> list[Sequence]:
    return [Sequence(prompt, engine.encode(prompt, 12), SamplingParams(max_tokens=12)) for prompt in prompts]


def test_that_batches_that_alternate_compute_what_they_do_alone(tiny_engine: TextEngine) -> None:
    prompts = [("Once", "upon a"), ("time", "there was"), ("a", "b")]
    alone = [run(tiny_engine, *sequences(tiny_engine, *each)) for each in prompts]
    with ThreadPoolExecutor(len(prompts)) as threads:
        beside = list(threads.map(lambda each: run(tiny_engine, *sequences(tiny_engine, *each)), prompts))
    assert [listener.texts for listener in beside] == [listener.texts for listener in alone]
    assert [listener.work.steps for listener in beside] == [listener.work.steps for listener in alone]


def test_that_two_batches_alternate_step_by_step(tiny_engine: TextEngine) -> None:
    """The first begins; once the second has asked for a turn, neither makes two steps in a row until one ends."""
    steps: list[str] = []
    second_is_there = threading.Event()

    class Told(Listener):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __call__(self, progress: list[object]) -> None:  # type: ignore[override]
            steps.append(self.name)
            second_is_there.wait() if self.name == "first" else second_is_there.set()

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(tiny_engine.generate, sequences(tiny_engine, "Once"), Told("first"))
        second = threads.submit(tiny_engine.generate, sequences(tiny_engine, "time"), Told("second"))
        first.result()
        second.result()
    both = steps[2:-2]
    assert {"first", "second"} <= set(both)
    assert max(len(run) for run in _runs(both)) <= 2


def _runs(names: list[str]) -> list[list[str]]:
    """Equal neighbours, together."""
    runs: list[list[str]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1].append(name)
        else:
            runs.append([name])
    return runs


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
