"""The simulation lets requests join and leave as the service's own batcher does, step by step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.analysis.observed.history import History
from service.analysis.predict.cost import CostModel, Executed
from service.analysis.predict.load import Arrival, ClosedLoop, OpenLoop
from service.analysis.predict.observation import Observation
from service.analysis.predict.predict import Predictor
from service.analysis.predict.replicas import Ran, RunningBatch, SimulatedRun
from service.analysis.predict.simulation import Held, Start, simulate
from service.batching.batcher import Batcher
from service.batching.queue import Batch
from service.messages.settings import Settings, VersionedSettings
from tests.synthetic_run import Step, SyntheticRun, continuous_run, filled_history
from tests.virtual_time import now_s, run_in_virtual_time

Stretches = list[tuple[list[int], str]]


class EngineOfSteps:
    """A prompt is read in `read_s`, in as many steps as it has `parts`; else a step takes ``base + per_row · rows``."""

    def __init__(self, read_s: float, base_s: float, per_row_s: float = 0.0, parts: int = 1) -> None:
        self._read_s, self._base_s, self._per_row_s, self._parts = read_s, base_s, per_row_s, parts

    def read_s(self, _at_s: float, joining: Sequence[Arrival]) -> float:
        return self._read_s * len(joining)

    def parts(self, _joining: Sequence[Arrival]) -> int:
        return self._parts

    def step_s(self, _at_s: float, rows: int) -> float:
        return self._base_s + self._per_row_s * rows

    def run(self, _at_s: float, members: Sequence[Arrival]) -> Ran:
        raise AssertionError("nothing runs as a whole")


def arriving(times_s: Sequence[float], tokens: Sequence[int] | int = 5) -> OpenLoop:
    lengths = [tokens] * len(times_s) if isinstance(tokens, int) else tokens
    return OpenLoop([Arrival(at_s, at_s, length) for at_s, length in zip(times_s, lengths, strict=True)])


def continuous(max_batch_size: int, batch_wait_timeout_s: float, **others: int) -> Settings:
    return Settings(
        formation="continuous", max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s, **others
    )


async def run_by_the_batcher(
    times_s: Sequence[float], tokens: Sequence[int], rules: Settings, engine: EngineOfSteps
) -> tuple[Stretches, list[float]]:
    """The service's batcher before an engine that asks between two steps which requests join, as `TextEngine` does."""
    formed: list[Batch[int]] = []
    batcher: Batcher[int] = Batcher(VersionedSettings(version=1, settings=rules), formed.append, now_s)
    for number, at_s in enumerate(times_s):
        asyncio.get_running_loop().call_at(at_s, batcher.submit, number, tokens[number])
    left, finished_s, told = dict(enumerate(tokens)), [0.0] * len(times_s), Stretches()
    while any(left.values()):
        batch = await batcher.next_batch()
        joining, running, reason = [entry.item for entry in batch.entries], list[int](), str(batch.release_reason)
        while joining or running:
            running += joining
            told.append((list(running), reason))
            read_s, has_left, joining = engine.read_s(now_s(), [Arrival(0.0, 0.0, 1)] * len(joining)), False, []
            while not joining and not has_left:
                await asyncio.sleep(read_s + engine.step_s(now_s(), len(running)))
                read_s = 0.0
                for number in running:
                    left[number] -= 1
                for number in [each for each in running if left[each] == 0]:
                    running.remove(number)
                    finished_s[number], has_left = now_s(), True
                held = sum(tokens[number] for number in running)
                segment = batcher.take_joining(len(running), held)
                joining = [entry.item for entry in segment.entries] if segment else []
            reason = "joined" if joining else "left"
        batcher.free_place()
    return told, finished_s


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    requests=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 30)), min_size=1, max_size=40),
    max_batch_size=st.integers(1, 12),
    timeout_ms=st.sampled_from([0, 7, 50, 210]),
    budget=st.sampled_from([0, 0, 20, 60]),
    step_ms=st.integers(5, 90),
    read_ms=st.integers(1, 60),
)
def test_that_requests_join_and_leave_when_the_batcher_says(
    requests: list[tuple[int, int]],
    max_batch_size: int,
    timeout_ms: int,
    budget: int,
    step_ms: int,
    read_ms: int,
) -> None:
    """Odd microseconds keep arrivals and steps from falling on one moment, where either may come first."""
    times_s = [sum(gap for gap, _ in requests[: n + 1]) / 1e3 + n * 1.7e-6 for n in range(len(requests))]
    tokens = [length for _, length in requests]
    rules = continuous(max_batch_size, timeout_ms / 1e3, max_batch_tokens=budget)
    engine = EngineOfSteps(read_ms / 1e3 + 0.31e-6, step_ms / 1e3 + 0.13e-6, 0.0007)
    run = simulate(rules, engine, arriving(times_s, tokens), until_s=1e9)
    real, finished_s = run_in_virtual_time(run_by_the_batcher(times_s, tokens, rules, engine))
    assert segments(run, times_s) == real
    assert [r.finished_s for r in run.requests] == pytest.approx(finished_s, abs=1e-6)


def segments(run: SimulatedRun, times_s: Sequence[float]) -> Stretches:
    return [([times_s.index(m.arrival.intended_s) for m in b.members], str(b.release_reason)) for b in run.batches]


def test_that_a_request_that_comes_while_others_run_joins_at_the_next_step() -> None:
    run = simulate(continuous(8, 0.0), EngineOfSteps(0.1, 0.2), arriving([0.0, 0.35], 4), until_s=10)
    first, second = run.requests
    assert second.started_s == pytest.approx(0.5)  # steps end at 0.3, which reads as well, and at 0.5
    assert [(len(b.members), b.release_reason) for b in run.batches] == [(1, "drained"), (2, "joined"), (1, "left")]
    assert first.finished_s == pytest.approx(1.0)  # its third token came with the reading of the other's prompt
    assert second.finished_s == pytest.approx(1.4)


def test_that_nobody_joins_beyond_the_cap_and_the_oldest_takes_the_place_that_comes_free() -> None:
    run = simulate(continuous(2, 0.0), EngineOfSteps(0.01, 0.1), arriving([0.0, 0.05, 0.06, 0.07], 6), until_s=10)
    assert max(len(batch.members) for batch in run.batches) == 2
    started = [request.started_s for request in run.requests]
    assert started == sorted(started)  # type: ignore[type-var]
    assert run.requests[2].started_s == run.requests[0].finished_s


def test_that_only_an_idle_engine_waits_for_company() -> None:
    run = simulate(continuous(8, 0.5), EngineOfSteps(0.01, 0.1), arriving([0.0, 0.65, 9.0], 6), until_s=20)
    waited = [request.started_s - request.arrival.enqueued_s for request in run.requests if request.started_s]
    assert waited[0] == waited[2] == pytest.approx(0.5)
    assert waited[1] < 0.1


def test_that_a_long_prompt_is_read_in_parts_between_which_the_others_get_their_tokens() -> None:
    engine = EngineOfSteps(0.4, 0.1, parts=4)
    first, second, third = simulate(continuous(8, 0.0), engine, arriving([0.0, 0.75, 0.85], [9, 2, 1]), 10).requests
    assert first.first_s == pytest.approx(0.5), "nobody runs beside it, so it is read at once"
    assert second.started_s == pytest.approx(0.8)
    assert second.first_s == pytest.approx(1.6), "four steps, each a quarter of the prompt longer"
    assert third.started_s == pytest.approx(1.6), "it joins when that prompt is read"
    assert first.finished_s == pytest.approx(1.8), "8 tokens by then, and one in the first part of the third's prompt"
    assert second.finished_s == pytest.approx(1.8)
    assert third.finished_s == pytest.approx(2.4)


def test_that_a_prompt_is_read_on_after_a_request_has_left() -> None:
    engine = EngineOfSteps(0.4, 0.1, parts=4)
    requests = simulate(continuous(8, 0.0), engine, arriving([0.0, 0.1, 1.35], [12, 3, 2]), 10).requests
    long, short, newcomer = requests
    assert newcomer.started_s == pytest.approx(1.4)
    assert short.finished_s == pytest.approx(1.6), "after the first of four parts"
    assert newcomer.first_s == pytest.approx(2.2)
    assert (newcomer.finished_s, long.finished_s) == (pytest.approx(2.3), pytest.approx(2.4))


def test_that_a_full_queue_refuses_and_users_come_back_one_by_one() -> None:
    rules = continuous(1, 0.0, max_queued_requests=2)
    run = simulate(rules, EngineOfSteps(0.1, 1.0), arriving([0.1 * n for n in range(5)]), until_s=10)
    assert [request.refused for request in run.requests] == [False] * 3 + [True] * 2
    numbers = itertools.count()
    users = ClosedLoop(3, lambda at_s, _: Arrival(at_s, at_s, 3 + next(numbers) % 4), Random(1))
    run = simulate(continuous(8, 0.0), EngineOfSteps(0.01, 0.1), users, until_s=20)
    assert len({request.answered_s for request in run.requests}) > len(run.requests) / 2


def busy(waiting: tuple[Arrival, ...]) -> Start:
    """One replica, busy for half a second."""
    return Start((Held(waiting, running=(RunningBatch((), 0.5),)),))


def test_that_it_can_start_from_a_queue_and_a_running_batch() -> None:
    waiting = tuple(Arrival(-1.0 + 0.1 * n, -1.0 + 0.1 * n, 3) for n in range(3))
    run = simulate(
        continuous(2, 0.0),
        EngineOfSteps(0.01, 0.1),
        arriving([]),
        10,
        start=busy(waiting),
    )
    assert [request.started_s for request in run.requests] == [0.5, 0.5, pytest.approx(0.82)]


# -------------------------------------------------------------------------------------------------- prices, predictions


def observed(run: SyntheticRun) -> History:
    return filled_history(run)[0]


def steady(**values: Any) -> SyntheticRun:
    settings = Settings(formation="continuous", max_batch_size=16, batch_wait_timeout_s=0.0).revised(values)
    return SyntheticRun(60.0, (Step(0.0, 4.0, settings),), seed=5, tokens_spread=16, step_s=0.029, per_request_s=0.0022)


def test_that_segments_tell_the_price_of_a_step_and_of_a_row() -> None:
    cost = CostModel.of_history(observed(steady()))
    assert cost is not None
    for rows in (1, 4, 8, 12):
        assert cost.step_s + cost.row_s * rows == pytest.approx(0.029 + 0.0022 * rows, rel=0.12)
    assert cost.tokens == pytest.approx(24, rel=0.1)
    assert cost.longest_over_mean == 1.0


def test_that_segments_become_pieces_that_are_long_enough_to_tell_something() -> None:
    history = observed(steady())
    executed = Executed.of_history(history)
    table = history.batches.columns
    ended = np.isfinite(table["finished"])
    assert executed.is_open.all()
    assert len(executed) < np.count_nonzero(ended) / 2
    assert executed.run_s.sum() == pytest.approx((table["finished"] - table["started"])[ended].sum())
    assert executed.tokens.sum() == table["tokens"][ended].sum()
    assert np.percentile(executed.run_s, 10) > 0.3


def test_that_prompts_are_those_that_were_told_and_older_recordings_are_read_as_before() -> None:
    history = observed(SyntheticRun(30.0, (Step(0.0, 4.0, Settings()),)))
    told = Executed.of_history(history).prompt_tokens
    history.batches.columns["prompts"][:] = 0
    assert Executed.of_history(history).prompt_tokens.tolist() == told.tolist()


def test_that_a_prediction_of_the_settings_in_force_is_what_is_measured() -> None:
    run = steady()
    latencies_s = [r.finished_s - r.received_s for r in run.requests if r.finished_s and r.finished_s < 60.0]
    observation = Observation.of_history(observed(run), over_s=60.0)
    assert observation is not None
    predicted = Predictor.of(observation).predict(run.steps[0].settings or Settings())
    assert not predicted.saturated
    assert predicted.p50_s.value == pytest.approx(np.percentile(latencies_s, 50), rel=0.1)
    assert predicted.p95_s.value == pytest.approx(np.percentile(latencies_s, 95), rel=0.15)


def test_that_smaller_parts_of_long_prompts_make_first_tokens_later() -> None:
    observation = Observation.of_history(observed(steady()), over_s=60.0)
    assert observation is not None
    requests = replace(observation.load.requests, prompt_tokens=np.full_like(observation.load.requests.tokens, 256))
    predictor = replace(Predictor.of(observation), load=replace(observation.load, requests=requests))
    small, usual, set_so = (
        predictor.predict(continuous(16, 0.0, prefill_chunk_tokens=tokens)) for tokens in (32, 0, 128)
    )
    assert small.ttft_p50_s.value > usual.ttft_p50_s.value + 4 * 0.03, "six steps more"
    assert usual.ttft_p50_s == set_so.ttft_p50_s, "on a processor"


def test_that_continuous_is_foretold_from_late_batches() -> None:
    """The same arrivals, measured under both."""
    late, then = steady(formation="late"), steady()
    observation = Observation.of_history(observed(late), over_s=60.0)
    assert observation is not None
    predicted = Predictor.of(observation).predict(then.steps[0].settings or Settings())
    latencies_s = [r.finished_s - r.received_s for r in then.requests if r.finished_s and r.finished_s < 60.0]
    assert predicted.p50_s.value == pytest.approx(np.percentile(latencies_s, 50), rel=0.2)
    assert predicted.p95_s.value == pytest.approx(np.percentile(latencies_s, 95), rel=0.25)


def test_that_each_request_of_a_running_batch_needs_the_tokens_it_has_not() -> None:
    run = continuous_run()
    history, _ = filled_history(run, until_s=55.0)
    observation = Observation.of_history(history)
    assert observation is not None
    ((running,),) = (each.running for each in observation.backlog.replicas)
    at_s = history.now_s() - run.start_s
    present = [r for r in run.requests if r.started_s is not None and r.started_s <= at_s < r.ended_s]
    assert running.is_open
    assert running.made == tuple(request.tokens_at(at_s) for request in present)
    cost = CostModel.of_history(history)
    assert cost is not None
    for member in running.as_start(cost).members:
        assert member.left < member.arrival.tokens
        assert member.done_s == pytest.approx(member.left * (cost.step_s + cost.row_s * len(present)), rel=0.5)
