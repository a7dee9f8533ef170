"""When a batch counts as stalled, by the time that its engine could have computed in, and when an event loop does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from service.engine.engine import TextEngine
from service.engine.function import FunctionEngine
from service.engine.job import Engine
from service.messages.telemetry import ProcessorUse
from service.replica.background import LOOK_S as TURN_LOOK_S
from service.replica.background import LOOP_LIMIT_S, watch_turns
from service.replica.device import EngineProcessor
from service.replica.step_watch import LOOK_S, EngineStalledError, StepWatch
from service.workloads.adder import Adder
from tests.virtual_time import now_s, run_in_virtual_time

pytestmark = pytest.mark.promise("T24")

LIMIT_S = 4.0


class Run:
    """A batch that gives signs of life when the test says so."""

    signs = 0
    unread_tokens = 7


class Limits:
    """The limit of an engine, and what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[float | None, int]] = []

    def stall_limit_s(self, longest_s: float | None, unread_tokens: int) -> float:
        self.asked.append((longest_s, unread_tokens))
        return LIMIT_S


class Processor:
    """Of what the engine asks for it gets this share."""

    def __init__(self, share: float) -> None:
        self._share = share

    def use(self) -> ProcessorUse:
        return ProcessorUse(got_s=self._share * now_s(), waited_s=(1 - self._share) * now_s())


class Idle:
    """An engine's threads that ask for no time."""

    def use(self) -> ProcessorUse:
        return ProcessorUse(got_s=1.0, waited_s=1.0)


def watch(limits: Limits, processor: object = None) -> StepWatch:
    return StepWatch(cast(Engine, limits), now_s, cast(EngineProcessor, processor or Idle()))


def stalled_after_s(processor: object) -> float:
    async def measured() -> float:
        watching = watch(Limits(), processor)
        with watching.over(Run()), pytest.raises(EngineStalledError, match=r"no step for 4\.\d s; its replica"):
            await watching.run()
        return now_s()

    return run_in_virtual_time(measured())


def test_that_a_batch_without_a_sign_of_life_is_stalled_after_the_limit() -> None:
    assert stalled_after_s(Idle()) == pytest.approx(LIMIT_S, abs=2 * LOOK_S)


def test_that_time_for_which_the_engine_waited_for_a_processor_does_not_count() -> None:
    assert stalled_after_s(Processor(share=0.25)) > 2.5 * LIMIT_S


def test_that_a_batch_that_goes_on_slowly_is_never_stalled_and_its_longest_silence_decides() -> None:
    async def observed() -> list[tuple[float | None, int]]:
        limits, run = Limits(), Run()
        watching = watch(limits)
        work = asyncio.create_task(watching.run())
        with watching.over(run):
            for _ in range(9):
                await asyncio.sleep(0.9 * LIMIT_S)
                run.signs += 1
            await asyncio.sleep(2 * LOOK_S)
        assert not work.done()
        work.cancel()
        return limits.asked

    asked = run_in_virtual_time(observed())
    assert asked[0] == (None, 7)
    longest_s, _ = asked[-1]
    assert longest_s == pytest.approx(0.9 * LIMIT_S, abs=2 * LOOK_S)


def test_that_time_in_which_the_process_stood_still_does_not_count() -> None:
    async def went_on() -> bool:
        stopped_s = 0.0
        watching = StepWatch(cast(Engine, Limits()), lambda: now_s() + stopped_s, cast(EngineProcessor, Idle()))
        work = asyncio.create_task(watching.run())
        with watching.over(Run()):
            await asyncio.sleep(1.5 * LOOK_S)
            stopped_s = 100.0
            await asyncio.sleep(2 * LOOK_S)
            return not work.cancel() or not work.done()

    assert run_in_virtual_time(went_on())


def test_that_nothing_is_stalled_where_no_batch_runs() -> None:
    async def went_on() -> bool:
        watching = watch(Limits())
        work = asyncio.create_task(watching.run())
        with watching.over(Run()):
            await asyncio.sleep(LIMIT_S / 2)
        await asyncio.sleep(100 * LIMIT_S)
        is_at_work = not work.done()
        work.cancel()
        return is_at_work

    assert run_in_virtual_time(went_on())


def test_that_a_text_engine_has_more_time_for_prompts_and_where_its_steps_are_long(
    tiny_engine: TextEngine,
) -> None:
    usual_s = tiny_engine.stall_limit_s(LOOK_S, 0)
    assert usual_s <= 4.0, "T24: the health check fails within 5 s"
    assert tiny_engine.stall_limit_s(LOOK_S, 8000) > usual_s + 60
    assert tiny_engine.stall_limit_s(3.0, 0) == 60.0
    assert tiny_engine.stall_limit_s(None, 0) > 10 * usual_s, "the first step may load libraries"


def test_that_a_function_has_time_by_its_calls_of_late_or_as_it_states_itself() -> None:
    class Stated(Adder):
        longest_call_s = 1.5

    usual = FunctionEngine(Adder())
    assert [usual.stall_limit_s(longest_s, 0) for longest_s in (None, 0.2, 4.0)] == [300.0, 30.0, 80.0]
    assert {FunctionEngine(Stated()).stall_limit_s(longest_s, 0) for longest_s in (None, 0.2, 4.0)} == {1.5}


class Clock:
    """Goes on by `step_s` whenever it is read; `was_read_often` once there were reads enough for any watch."""

    def __init__(self, step_s: float, often: int) -> None:
        self._step_s = step_s
        self._left = often
        self._now_s = 0.0
        self.was_read_often = threading.Event()

    def __call__(self) -> float:
        self._now_s += self._step_s
        self._left -= 1
        if self._left == 0:
            self.was_read_often.set()
        return self._now_s


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_that_a_loop_whose_turn_never_ends_is_seen_within_its_limit() -> None:
    seen, may_go_on = threading.Event(), threading.Event()
    turning_s: list[float] = []

    def end(lasted_s: float) -> None:
        turning_s.append(lasted_s)
        seen.set()

    with running_loop() as loop:
        loop.call_soon_threadsafe(may_go_on.wait)
        watch_turns(loop, end, Clock(step_s=LOOP_LIMIT_S / 12, often=0))
        assert seen.wait(10.0)
        may_go_on.set()
    assert LOOP_LIMIT_S < turning_s[0] < LOOP_LIMIT_S + 2 * TURN_LOOK_S


def test_that_a_loop_is_not_stuck_while_its_process_stands_still() -> None:
    ended: list[float] = []
    may_go_on = threading.Event()
    clock = Clock(step_s=100.0, often=4)  # the process stands still between any two reads
    with running_loop() as loop:
        loop.call_soon_threadsafe(may_go_on.wait)
        watch_turns(loop, ended.append, clock)
        assert clock.was_read_often.wait(10.0)
        may_go_on.set()
    assert ended == []
