"""From idle to idle, and what becomes of requests that were not answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest

from service.commands import remote
from service.commands.remote import NotIdleError, RemoteService, ServiceUnreachableError, ServiceWatch
from service.commands.runs import MeasuringError, run_of
from service.load.report import LoadReport, ReportedRequest, load_figures
from service.messages.load import ClientOutcome, ClientTotals, Poisson
from service.messages.objectives import Objectives
from service.messages.settings import Settings, VersionedSettings
from service.messages.telemetry import BatchRecord, ReplicaStatus, TelemetryFrame


class ToldService:
    """Says what a test lets it say; at the end it goes silent, or is gone."""

    url = "http://told"

    def __init__(self) -> None:
        self.frames: asyncio.Queue[TelemetryFrame | None] = asyncio.Queue()

    def say(self, *replicas: ReplicaStatus, batches: tuple[BatchRecord, ...] = (), lost: tuple[str, ...] = ()) -> None:
        in_force = VersionedSettings(version=1, settings=Settings())
        self.frames.put_nowait(
            TelemetryFrame(
                number=1, at_s=0.0, clock="c", in_force=in_force, replicas=replicas, batches=batches, lost_replicas=lost
            )
        )

    def be_gone(self) -> None:
        self.frames.put_nowait(None)

    async def telemetry(self) -> AsyncIterator[TelemetryFrame]:
        while (frame := await self.frames.get()) is not None:
            yield frame
        raise ServiceUnreachableError("http://told does not answer.")


def status(replica: str, running: int = 0) -> ReplicaStatus:
    return ReplicaStatus(
        replica=replica, pid=1, at_s=0.0, settings_version=1, waiting=0, formed=0, running=running,
        model="m", device="cpu", dtype="float32", cpu_percent=0.0, memory_bytes=0,
    )  # fmt: skip


def batch(number: int, size: int) -> BatchRecord:
    return BatchRecord(
        id=f"r1-b{number}", number=number, replica="r1", settings_version=1, formation="late", size=size, cap=16,
        release_reason="drained", formed_s=0.0, started_s=0.0,
    )  # fmt: skip


@pytest.fixture
def told() -> ToldService:
    return ToldService()


@pytest.fixture
async def watch(told: ToldService) -> AsyncIterator[ServiceWatch]:
    async with ServiceWatch(cast(RemoteService, told)) as entered:
        yield entered


async def settled(task: asyncio.Task[None]) -> bool:
    """Whether it is done when all that can happen has happened."""
    for _ in range(20):
        await asyncio.sleep(0)
    return task.done()


async def test_that_it_waits_until_every_replica_has_said_anew_that_it_is_idle(
    told: ToldService, watch: ServiceWatch
) -> None:
    told.say(status("r1"), status("r2"))
    await watch.replicas()

    waiting = asyncio.create_task(watch.until_idle())
    told.say(status("r1", running=3))
    assert not await settled(waiting)
    told.say(status("r1"))
    assert not await settled(waiting)
    told.say(status("r2"))
    assert await settled(waiting)


async def test_that_a_replica_that_was_lost_is_not_waited_for(told: ToldService, watch: ServiceWatch) -> None:
    told.say(status("r1"), status("r2", running=1))
    await watch.replicas()

    waiting = asyncio.create_task(watch.until_idle())
    told.say(status("r1"), lost=("r2",))
    assert await settled(waiting)


async def test_that_a_backlog_is_waited_for_as_long_as_it_becomes_less(told: ToldService, watch: ServiceWatch) -> None:
    told.say(status("r1"), status("r2"))
    await watch.replicas()
    held: list[int] = []

    waiting = asyncio.create_task(watch.until_idle(held.append))
    for first, second in ((30, 11), (30, 9), (31, 8), (0, 4), (0, 0)):
        told.say(status("r1", running=first), status("r2", running=second))
        await settled(waiting)

    assert waiting.done()
    assert held == [41, 39, 4]


async def test_that_somebody_elses_load_is_named(
    told: ToldService, watch: ServiceWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "IDLE_WITHIN_S", 0.0)
    told.say(status("r1", running=5))
    await watch.replicas()

    with pytest.raises(NotIdleError, match="still holds 5 requests"):
        await watch.until_idle()


async def test_that_a_service_that_goes_while_it_is_waited_for_is_an_error(
    told: ToldService, watch: ServiceWatch
) -> None:
    told.be_gone()

    with pytest.raises(ServiceUnreachableError):
        await watch.until_idle()


async def test_that_batches_are_those_told_of_since_they_were_forgotten(told: ToldService, watch: ServiceWatch) -> None:
    told.say(status("r1"), batches=(batch(1, 4),))
    await watch.replicas()
    watch.forget()
    told.say(status("r1"), batches=(batch(2, 1),))
    told.say(status("r1"), batches=(batch(2, 3),))
    await watch.until_idle()

    assert [each.size for each in watch.batches()] == [3]


def report(*outcomes: tuple[ClientOutcome, float]) -> LoadReport:
    requests = tuple(
        ReportedRequest(
            id=str(number),
            intended_s=float(number),
            sent_s=float(number),
            first_token_s=number + latency_s / 2 if outcome == "ok" else None,
            finished_s=number + latency_s,
            max_tokens=8,
            tokens=8,
            prompt_tokens=4,
            outcome=outcome,
        )
        for number, (outcome, latency_s) in enumerate(outcomes)
    )
    counts = {
        name: sum(outcome == name for outcome, _ in outcomes) for name in ("ok", "refused", "failed", "cancelled")
    }
    figures = load_figures(requests)
    return LoadReport(
        url="http://told", model="m", pattern=Poisson(rate_per_s=1), seed=7, prompts=1, max_tokens=8, prompt_words=None,
        temperature=0.0, started=0.0, clock="c", start_s=0.0, duration_s=3.0, requests=requests,
        totals=ClientTotals(sent=len(requests), **counts),
        **{name: getattr(figures, name) for name in figures.__struct_fields__},
    )  # fmt: skip


def test_that_what_was_broken_off_counts_with_the_time_until_then() -> None:
    run = run_of(
        report(("ok", 0.5), ("cancelled", 9.0), ("refused", 0.01), ("failed", 0.1)), [batch(1, 1), batch(2, 4)]
    )

    assert run.latencies_s == (0.5, 9.0)
    assert (run.answered, run.broken_off, run.refused, run.failed) == (1, 1, 1, 1)
    assert run.tokens == 8
    assert run.mean_batch == 2.5


def test_that_where_requests_join_and_leave_the_mean_batch_is_one_over_time() -> None:
    stretches = [
        msgspec.structs.replace(batch(number, size), formation="continuous", started_s=0.0, finished_s=ran_s)
        for number, (size, ran_s) in enumerate([(1, 0.1), (5, 0.3)], start=1)
    ]

    assert run_of(report(("ok", 0.5)), stretches).mean_batch == pytest.approx(4.0)


def test_that_a_run_without_an_answer_says_why_nothing_can_be_compared() -> None:
    with pytest.raises(MeasuringError, match="No request was answered"):
        run_of(report(("refused", 0.01)), [])


def test_that_a_run_has_the_times_of_its_answers_and_those_that_met_the_objectives() -> None:
    found = report(("ok", 0.5), ("ok", 4.0), ("refused", 0.01))
    run = run_of(msgspec.structs.replace(found, objectives=Objectives(latency_s=1.0)), [batch(1, 2)])

    assert run.ttfts_s == pytest.approx((0.25, 2.0))
    assert run.tpots_s == pytest.approx((0.25 / 7, 2.0 / 7))
    assert (run.good, run.sent) == (1, 3)
    assert run_of(found, [batch(1, 2)]).good is None
