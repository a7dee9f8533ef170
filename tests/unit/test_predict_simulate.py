"""The simulation forms the batches that the real queue, and Ray's own decorator, would form."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ray.serve import batching

from service.analysis.predict.load import Arrival, ClosedLoop, OpenLoop, ReturnDelays
from service.analysis.predict.replicas import Ran, RunningBatch, SimulatedRun
from service.analysis.predict.simulation import Held, Start, simulate
from service.batching.batcher import Batcher
from service.messages.settings import LONGEST_WAIT_S, Settings, VersionedSettings
from tests.virtual_time import now_s, run_in_virtual_time

Formed = list[tuple[list[int], str, float]]


class EngineOfOneTime:
    """Each batch takes ``base + per_member · size``."""

    def __init__(self, base_s: float, per_member_s: float = 0.0) -> None:
        self._base_s, self._per_member_s = base_s, per_member_s

    def run(self, _at_s: float, members: Sequence[Arrival]) -> Ran:
        run_s = self._base_s + self._per_member_s * len(members)
        return Ran(run_s, run_s, [run_s] * len(members))


def arriving(times_s: Sequence[float]) -> OpenLoop:
    return OpenLoop([Arrival(at_s, at_s, tokens=1) for at_s in times_s])


def late(max_batch_size: int, batch_wait_timeout_s: float, **others: int) -> Settings:
    return Settings(max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s, **others)


def early(max_batch_size: int, batch_wait_timeout_s: float) -> Settings:
    return Settings(formation="early", max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s)


def formed_at(run: SimulatedRun) -> list[float]:
    return [batch.formed_s for batch in run.batches]


def started_at(run: SimulatedRun) -> list[float]:
    return [batch.started_s for batch in run.batches]


def sizes(run: SimulatedRun) -> list[int]:
    return [len(batch.members) for batch in run.batches]


async def formed_by_the_batcher(requests: Sequence[Arrival], rules: Settings, engine: EngineOfOneTime) -> Formed:
    batcher: Batcher[int] = Batcher(VersionedSettings(version=1, settings=rules), lambda _: None, now_s)
    loop = asyncio.get_running_loop()
    for number, arrival in enumerate(requests):
        loop.call_at(arrival.enqueued_s, batcher.submit, number, arrival.tokens)
    formed: Formed = []
    while sum(len(members) for members, _, _ in formed) < len(requests):
        batch = await batcher.next_batch()
        formed.append(([entry.item for entry in batch.entries], batch.release_reason, batch.formed_s))
        run_s, *_ = engine.run(0.0, [Arrival(0.0, 0.0, 1)] * len(batch.entries))
        loop.call_at(batch.formed_s + run_s, batcher.free_place)
    return formed


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 30)), min_size=1, max_size=60),
    base_ms=st.integers(1, 900),
    per_member_ms=st.integers(0, 50),
    rules=st.builds(
        Settings,
        max_batch_size=st.integers(1, 20),
        batch_wait_timeout_s=st.sampled_from([0.0, 0.007, 0.05, 0.21, 1.0]),
        allow_small_batch=st.booleans(),
        stride_s=st.sampled_from([0.0, 0.0, 0.01, 0.3]),
        max_batch_tokens=st.sampled_from([0, 0, 20, 90]),
        max_concurrent_batches=st.sampled_from([1, 1, 2, 3]),
    ),
)
def test_that_late_batches_are_those_of_the_real_queue(
    asked: list[tuple[int, int]],
    base_ms: int,
    per_member_ms: int,
    rules: Settings,
) -> None:
    """Odd microseconds keep arrivals, ends and deadlines from falling on one moment, where either may come first."""
    times_s = [sum(gap for gap, _ in asked[: n + 1]) / 1e3 + n * 1.7e-6 for n in range(len(asked))]
    requests = [Arrival(at_s, at_s, tokens) for at_s, (_, tokens) in zip(times_s, asked, strict=True)]
    engine = EngineOfOneTime(base_ms / 1e3 + 0.31e-6, per_member_ms / 1e3)
    run = simulate(rules, engine, OpenLoop(requests), until_s=1e9)
    simulated = [
        ([times_s.index(m.arrival.intended_s) for m in b.members], b.release_reason, b.formed_s) for b in run.batches
    ]
    real = run_in_virtual_time(formed_by_the_batcher(requests, rules, engine))
    assert [(members, reason) for members, reason, _ in simulated] == [(m, reason) for m, reason, _ in real]
    assert [at_s for *_, at_s in simulated] == pytest.approx([at_s for *_, at_s in real], abs=1e-9)


async def sealed_by_ray(times_s: Sequence[float], rules: Settings) -> list[tuple[list[int], float]]:
    """What the loop behind `@serve.batch` would hand over, which it does whatever the engine does meanwhile."""
    queue = ray_s_queue(rules)
    for number, at_s in enumerate(times_s):
        asyncio.get_running_loop().call_at(at_s, queue.put, number)
    sealed: list[tuple[list[int], float]] = []
    while sum(len(members) for members, _ in sealed) < len(times_s):
        members, _ = await queue.wait_for_batch()
        sealed.append((members, now_s()))
    return sealed


def ray_s_queue(rules: Settings) -> Any:
    """Ray's own queue, without the replica and the metrics that it wants around it."""
    queue: Any = object.__new__(batching._BatchQueue)
    queue.queue, queue.requests_available_event = asyncio.Queue(), asyncio.Event()
    queue.max_batch_size, queue.batch_wait_timeout_s = rules.max_batch_size, rules.batch_wait_timeout_s
    queue.batch_size_fn = queue._handle_batch_task = None
    queue._batch_queue_length_gauge = queue._batch_wait_time_histogram = Mock()
    queue._function_name = "handle_batch"
    return queue


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gaps_ms=st.lists(st.integers(1, 400), min_size=1, max_size=60),
    max_batch_size=st.integers(1, 12),
    timeout_ms=st.sampled_from([0, 7, 50, 210, 1000]),
    base_ms=st.integers(1, 900),
)
def test_that_early_batches_are_those_of_ray(
    monkeypatch: pytest.MonkeyPatch, gaps_ms: list[int], max_batch_size: int, timeout_ms: int, base_ms: int
) -> None:
    looks = itertools.count()  # at the clock; each takes a nanosecond, or rounding could keep Ray waiting for ever
    monkeypatch.setattr(batching, "time", SimpleNamespace(time=lambda: now_s() + 1e-9 * next(looks)))
    times_s = [sum(gaps_ms[: n + 1]) / 1e3 + n * 1.7e-6 for n in range(len(gaps_ms))]
    rules = early(max_batch_size, timeout_ms / 1e3)
    run = simulate(rules, EngineOfOneTime(base_ms / 1e3), arriving(times_s), until_s=1e9)
    real = run_in_virtual_time(sealed_by_ray(times_s, rules))
    assert [[times_s.index(m.arrival.intended_s) for m in b.members] for b in run.batches] == [m for m, _ in real]
    assert [batch.formed_s for batch in run.batches] == pytest.approx([at_s for _, at_s in real], abs=1e-6)


def test_that_an_early_batch_is_sealed_by_the_clock_while_the_engine_runs() -> None:
    run = simulate(early(8, 0.1), EngineOfOneTime(1.0), arriving([0.0, 0.25, 0.5, 0.55]), until_s=10)
    assert sizes(run) == [1, 1, 2]
    assert [batch.formed_s for batch in run.batches] == pytest.approx([0.1, 0.35, 0.6])
    assert [batch.started_s for batch in run.batches] == pytest.approx([0.1, 1.1, 2.1])


def test_that_an_early_batch_is_sealed_when_it_is_full() -> None:
    run = simulate(early(2, 5.0), EngineOfOneTime(0.1), arriving([0.0, 0.1, 0.2, 0.3]), until_s=10)
    assert [(batch.formed_s, batch.release_reason) for batch in run.batches] == [(0.1, "full"), (0.3, "full")]


def test_that_without_a_timeout_early_seals_everyone_alone() -> None:
    run = simulate(early(8, 0.0), EngineOfOneTime(1.0), arriving([0.0, 0.1, 0.2]), until_s=10)
    assert [(len(batch.members), batch.release_reason) for batch in run.batches] == [(1, "drained")] * 3


def test_that_an_early_batch_that_may_not_be_small_is_sealed_when_it_is_full_or_has_waited_long() -> None:
    rules = early(2, 0.1).revised({"allow_small_batch": False})
    run = simulate(rules, EngineOfOneTime(0.1), arriving([0.0, 3.0, 4.0]), until_s=60)
    assert formed_at(run) == pytest.approx([3.0, 4.0 + LONGEST_WAIT_S])
    assert [batch.release_reason for batch in run.batches] == ["full", "timeout"]


def test_that_early_batches_are_sealed_as_ever_and_leave_on_the_ticks() -> None:
    rules = early(8, 0.1).revised({"stride_s": 0.5})
    run = simulate(rules, EngineOfOneTime(0.3), arriving([0.0, 0.25, 1.7]), until_s=60)
    assert formed_at(run) == pytest.approx([0.1, 0.35, 1.8])
    assert started_at(run) == pytest.approx([0.5, 1.0, 2.0])


def test_that_what_ray_has_sealed_is_divided_by_the_budget() -> None:
    rules = early(8, 0.1).revised({"max_batch_tokens": 100})
    run = simulate(rules, EngineOfOneTime(1.0), OpenLoop([Arrival(0.0, 0.0, 40) for _ in range(3)]), until_s=60)
    assert [(len(batch.members), batch.release_reason) for batch in run.batches] == [(2, "full"), (1, "timeout")]
    assert started_at(run) == pytest.approx([0.1, 1.1])


def test_that_sealed_batches_run_side_by_side_where_there_are_places() -> None:
    rules = early(1, 0.0).revised({"max_concurrent_batches": 2})
    run = simulate(rules, EngineOfOneTime(1.0), arriving([0.0, 0.1, 0.2]), until_s=60)
    assert started_at(run) == pytest.approx([0.0, 0.1, 1.0])


@pytest.mark.parametrize("rules", [late(4, 0.0, max_queued_requests=3), early(1, 0.0)])
def test_that_a_full_queue_refuses(rules: Settings) -> None:
    rules = rules.revised({"max_queued_requests": 3})
    run = simulate(rules, EngineOfOneTime(10.0), arriving([0.1 * n for n in range(6)]), until_s=10)
    assert [request.refused for request in run.requests] == [False] * 4 + [True] * 2


def test_that_users_wait_for_their_answers_and_think() -> None:
    users = ClosedLoop(3, lambda at_s, _: Arrival(at_s, at_s, 1), Random(1), think_s=lambda: 0.5)
    run = simulate(late(8, 0.0), EngineOfOneTime(1.0), users, until_s=10.0)
    assert max(sizes(run)) <= 3
    # The first runs alone, the other two when it is done; from then on each comes 1.5 s after its last start at best.
    assert [round(batch.started_s, 3) for batch in run.batches[:4]] == [0.0, 1.0, 2.0, 3.0]


def test_that_users_that_are_answered_together_come_back_together() -> None:
    """Half of the bursts are 100 ms late, but in none of them are two users more than 10 ms apart."""
    bursts = tuple(tuple(ReturnDelays(0.0, late_s + 0.002 * n) for n in range(6)) for late_s in (0.0, 0.1))
    users = ClosedLoop(12, lambda at_s, before_s: Arrival(at_s, at_s + before_s, 1), Random(1), bursts)
    run = simulate(late(16, 0.05), EngineOfOneTime(1.0), users, until_s=30.0)
    assert set(sizes(run)) == {12}


def test_that_a_request_is_followed_to_its_end_beyond_the_last_arrival() -> None:
    run = simulate(late(1, 0.0), EngineOfOneTime(1.0), arriving([0.0, 0.1, 0.2, 99.0]), until_s=1.0)
    assert [request.answered_s for request in run.requests] == [1.0, 2.0, 3.0]


def test_that_the_way_to_the_queue_and_back_adds_up() -> None:
    run = simulate(late(1, 0.0), EngineOfOneTime(1.0), OpenLoop([Arrival(0.0, 0.1, 1)], return_s=lambda: 0.02), 10)
    assert [request.answered_s for request in run.requests] == [pytest.approx(1.12)]


def test_that_two_replicas_share_the_load() -> None:
    run = simulate(late(1, 0.0), EngineOfOneTime(1.0), arriving([0.1 * n for n in range(10)]), 10, replicas=2)
    counts = [sum(batch.replica == replica for batch in run.batches) for replica in (0, 1)]
    assert counts == [5, 5]


def test_that_a_replica_holds_no_more_than_ray_lets_it() -> None:
    run = simulate(
        late(8, 0.2), EngineOfOneTime(1.0), arriving([0.01 * n for n in range(12)]), 10, max_ongoing_requests=5
    )
    assert sizes(run) == [5, 5, 2]
    assert {batch.release_reason for batch in run.batches} == {"timeout"}


def busy(waiting: tuple[Arrival, ...]) -> Start:
    """One replica, busy for half a second."""
    return Start((Held(waiting, running=(RunningBatch((), 0.5),)),))


def test_that_it_can_start_from_a_queue_that_is_there() -> None:
    waiting = tuple(Arrival(-1.0 + 0.1 * n, -1.0 + 0.1 * n, 1) for n in range(3))
    run = simulate(
        late(2, 0.05),
        EngineOfOneTime(1.0),
        arriving([]),
        10,
        start=busy(waiting),
    )
    assert [(len(batch.members), batch.started_s) for batch in run.batches] == [(2, 0.5), (1, pytest.approx(1.55))]
