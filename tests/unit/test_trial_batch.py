"""The batch that a replica computes as it starts: its times, its end, and what it is given up for."""

from __future__ import annotations

import itertools

import pytest

from service.engine.engine import TextEngine
from service.engine.loading import LEAST_TRIAL_STEPS, MOST_TRIAL_ROWS, TRIAL_S, try_batch
from service.engine.stub import Fault, StubEngine, StubTimes
from service.messages.life import TrialBatch
from tests.unit.tiny_models import loaded, tiny_llama


class Clock:
    """Goes on by what an engine waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


def tried(step_s: float, size: int = 4, fault: Fault | None = None) -> tuple[TrialBatch | None, Clock]:
    clock = Clock()
    engine = StubEngine(
        StubTimes(step_ms=1e3 * step_s, row_ms=0, prompt_token_ms=0), {"": fault} if fault else {}, clock.wait
    )
    return try_batch(engine, size, clock), clock


def test_that_a_step_of_a_full_batch_is_timed() -> None:
    trial, clock = tried(0.01)
    assert trial is not None
    assert (trial.size, trial.first_token_s, trial.step_s) == (4, pytest.approx(0.01), pytest.approx(0.01))
    assert trial.requests_per_s(tokens=24) == pytest.approx(4 / 0.24)
    assert clock.now_s == pytest.approx(0.01 + 0.08), "one step beforehand, and eight"


def test_that_a_slow_engine_is_not_kept_longer_than_it_takes() -> None:
    trial, clock = tried(TRIAL_S)
    assert trial is not None
    assert trial.step_s == pytest.approx(TRIAL_S)
    steps = 1 + 1 + LEAST_TRIAL_STEPS + 1
    assert clock.now_s == pytest.approx(steps * TRIAL_S), "one beforehand, the prompts, these, the rows' leaving"


def test_that_a_trial_has_so_many_rows_at_most() -> None:
    trial, _ = tried(0.0, size=256)
    assert trial is not None
    assert trial.size == MOST_TRIAL_ROWS


def test_that_a_batch_that_fails_says_nothing() -> None:
    assert tried(0.01, fault=Fault())[0] is None


def test_that_a_batch_that_memory_does_not_hold_is_not_tried() -> None:
    assert try_batch(TextEngine(loaded(tiny_llama()), memory_tokens=40), 16) is None


def test_that_a_context_that_is_too_short_for_a_trial_is_no_error() -> None:
    assert try_batch(StubEngine(StubTimes(context_length=10)), 4) is None


def test_that_a_text_engine_is_timed_as_it_computes() -> None:
    ticks = itertools.count()
    trial = try_batch(TextEngine(loaded(tiny_llama())), 3, lambda: float(next(ticks)))
    assert trial is not None
    assert (trial.size, trial.step_s) == (3, pytest.approx(1.0, abs=1.0))
