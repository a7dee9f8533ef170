"""When batches leave, and how many at a time, seen in the records of batches of the real service."""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import requests

from service.messages.settings import LONGEST_WAIT_S
from tests.service import HANG_S
from tests.service.conftest import Service, error_of
from tests.service.telemetry import Telemetry

STATIC = ("late", "early")


def asked(service: Service, clients: ThreadPoolExecutor, count: int) -> list[Future[requests.Response]]:
    return [clients.submit(service.complete, f"Item {i}", max_tokens=4, ignore_eos=True) for i in range(count)]


def all_answered(answers: list[Future[requests.Response]]) -> bool:
    return {answer.result().status_code for answer in answers} == {200}


def wait_until_waiting(telemetry: Telemetry, count: int) -> None:
    telemetry.read_until(lambda frame: sum(replica.waiting for replica in frame.replicas) == count)


@pytest.mark.parametrize("formation", STATIC)
def test_that_batches_leave_on_the_ticks_of_stride_s(service: Service, formation: str) -> None:
    """What starts them takes its time on a busy machine; by chance all three are so soon after a tick once in 37."""
    stride_s = 1.0
    service.change(formation=formation, max_batch_size=2, batch_wait_timeout_s=0.01, stride_s=stride_s)
    with service.telemetry() as telemetry, ThreadPoolExecutor(6) as clients:
        assert all_answered(asked(service, clients, 6))
        telemetry.read_until_done(6)
    started_s = [batch.started_s or 0.0 for batch in telemetry.batches()]
    assert len(started_s) >= 3
    assert all(at_s % stride_s < 0.3 for at_s in started_s), started_s
    assert len({int(at_s / stride_s) for at_s in started_s}) == len(started_s)


def test_that_a_batch_that_may_not_leave_small_leaves_when_it_is_full(service: Service) -> None:
    service.change(max_batch_size=4, batch_wait_timeout_s=0, allow_small_batch=False)
    with service.telemetry() as telemetry, ThreadPoolExecutor(6) as clients:
        answers = asked(service, clients, 6)
        telemetry.read_until(lambda _: telemetry.done() == 4)
        wait_until_waiting(telemetry, 2)
        service.change(allow_small_batch=True)
        assert all_answered(answers)
        telemetry.read_until_done(6)
    assert [(batch.size, batch.release_reason) for batch in telemetry.batches()] == [(4, "full"), (2, "drained")]


def test_that_in_early_formation_it_is_sealed_when_it_is_full_or_has_waited_long(service: Service) -> None:
    service.change(formation="early", max_batch_size=4, batch_wait_timeout_s=0, allow_small_batch=False)
    with service.telemetry() as telemetry, ThreadPoolExecutor(5) as clients:
        assert all_answered(asked(service, clients, 5))
        telemetry.read_until_done(5)
    full, small = telemetry.batches()
    assert [(batch.size, batch.release_reason) for batch in (full, small)] == [(4, "full"), (1, "timeout")]
    assert small.formed_s - full.formed_s == pytest.approx(LONGEST_WAIT_S, abs=0.5)


@pytest.mark.parametrize("formation", [*STATIC, "continuous"])
def test_that_a_batch_holds_no_more_tokens_than_its_budget(service: Service, formation: str) -> None:
    budget = 40
    service.change(formation=formation, max_batch_size=16, batch_wait_timeout_s=0.2, max_batch_tokens=budget)
    with service.telemetry() as telemetry, ThreadPoolExecutor(8) as clients:
        assert all_answered(asked(service, clients, 8))
        telemetry.read_until_done(8)
    needed = {request.id: request.prompt_tokens + request.max_tokens for request in telemetry.requests()}
    sums = [sum(needed[member] for member in batch.members) for batch in telemetry.batches()]
    assert max(sums) <= budget < sum(needed.values())
    assert max(batch.size for batch in telemetry.batches()) > 1


def test_that_two_batches_run_at_a_time_where_two_may_and_one_where_they_may_not(service: Service) -> None:
    def overlaps(places: int) -> int:
        service.change(max_batch_size=2, batch_wait_timeout_s=0, max_concurrent_batches=places)
        with service.telemetry() as telemetry, ThreadPoolExecutor(8) as clients:
            assert all_answered(asked(service, clients, 8))
            telemetry.read_until_done(8)
        spans = sorted((batch.started_s or 0.0, batch.finished_s or 0.0) for batch in telemetry.batches())
        return sum(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans))

    assert overlaps(1) == 0
    assert overlaps(2) > 0


def test_that_what_could_never_fill_is_refused_in_words_and_nothing_changes(service: Service) -> None:
    before = requests.get(f"{service.url}/batching", timeout=HANG_S).json()
    refused = service.change(max_batch_size=16, max_queued_requests=8, allow_small_batch=False)
    assert refused.status_code == 422
    assert "could never fill where 8 may wait" in error_of(refused)["message"]
    assert requests.get(f"{service.url}/batching", timeout=HANG_S).json() == before
