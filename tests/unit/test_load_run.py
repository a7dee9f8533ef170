"""A run of load in the caller's loop, against a server in the test's hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from service.load.report import LoadReport
from service.load.run import LoadProgress, run_load
from service.messages.load import Burst, ClosedLoop, RunLoad
from service.messages.text import UserError
from tests.unit.stub_server import DONE, StubServer, answers, event, streams

A_WHILE_S = 60.0


def losses(report: LoadReport) -> list[str]:
    """The warnings but for that of a busy machine, on which the generator itself is late."""
    return [warning for warning in report.warnings if "itself sent late" not in warning]


@pytest.fixture
async def server() -> AsyncIterator[StubServer]:
    async with StubServer() as server:
        yield server


async def test_that_a_burst_is_reported_when_its_last_answer_is_there(server: StubServer) -> None:
    load = RunLoad(pattern=Burst(count=20), prompts=("a", "b"), max_tokens=3, seed=5)
    report = await run_load(server.url, load, A_WHILE_S)
    assert (report.totals.sent, report.totals.ok, len(report.requests)) == (20, 20, 20)
    assert (report.url, report.model, report.pattern, report.seed) == (server.url, "stub", Burst(count=20), 5)
    assert (report.prompts, report.max_tokens, losses(report)) == (2, 3, [])
    for request in report.requests:
        assert request.sent_s is not None
        assert request.first_token_s is not None
        assert request.finished_s is not None
        assert 0 <= request.intended_s <= request.sent_s <= request.first_token_s <= request.finished_s
        assert (request.tokens, request.outcome) == (3, "ok")
    assert report.latency_s is not None
    assert report.latency_s.max <= report.ran_s


async def test_that_answers_that_are_not_streamed_have_no_first_token(server: StubServer) -> None:
    completion = {"choices": [{"text": " a b c"}], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}
    server.behaviour = answers(200, msgspec.json.encode(completion))
    report = await run_load(server.url, RunLoad(pattern=Burst(count=2), prompts=("a",), stream=False), A_WHILE_S)
    assert [body.get("stream") for body, _ in server.requests] == [None, None]
    assert (report.totals.ok, report.stream, report.time_to_first_token_s) == (2, False, None)
    assert {(each.tokens, each.prompt_tokens, each.first_token_s) for each in report.requests} == {(3, 2, None)}
    assert report.latency_s is not None


async def test_that_a_report_survives_its_file(server: StubServer) -> None:
    report = await run_load(server.url, RunLoad(pattern=Burst(count=3), prompts=("a",)), A_WHILE_S)
    assert msgspec.json.decode(msgspec.json.encode(report), type=LoadReport) == report


async def test_that_arrivals_end_with_the_time_and_what_is_under_way_is_let_finish(server: StubServer) -> None:
    release = asyncio.Event()
    server.behaviour = server.holds_until(release)
    run = asyncio.create_task(run_load(server.url, RunLoad(pattern=ClosedLoop(users=4), prompts=("a",)), 0.05))
    await server.has_got(4)
    await asyncio.wait([run], timeout=0.1)
    assert not run.done()
    release.set()
    report = await run
    assert (report.totals.sent, report.totals.ok, report.totals.outstanding) == (4, 4, 0)


async def test_that_what_does_not_finish_in_bounded_time_is_broken_off_and_named(server: StubServer) -> None:
    server.behaviour = server.stalls()
    load = RunLoad(pattern=ClosedLoop(users=2), prompts=("a",))
    report = await run_load(server.url, load, 0.01, finish_within_s=0.05)
    assert report.totals.cancelled == 2
    assert losses(report) == ["2 requests were broken off before they were answered."]


async def test_that_a_run_can_be_stopped_and_reports_what_there_is(server: StubServer) -> None:
    stop = asyncio.Event()
    load = RunLoad(pattern=ClosedLoop(users=2), prompts=("a",))
    run = asyncio.create_task(run_load(server.url, load, A_WHILE_S, stop=stop))
    await server.has_got(10)
    stop.set()
    report = await run
    assert report.totals.ok >= 8
    assert report.totals.outstanding == 0


async def test_that_a_run_whose_caller_is_cancelled_sends_nothing_more(server: StubServer) -> None:
    load = RunLoad(pattern=ClosedLoop(users=2), prompts=("a",))
    run = asyncio.create_task(run_load(server.url, load, A_WHILE_S))
    await server.has_got(10)
    run.cancel()
    _, running = await asyncio.wait([run], timeout=A_WHILE_S)
    assert not running
    assert run.cancelled()


async def test_that_progress_is_told(server: StubServer) -> None:
    release, told = asyncio.Event(), []
    server.behaviour = server.holds_until(release)

    def on_progress(progress: LoadProgress) -> None:
        told.append(progress)
        if progress.totals.sent == 3:
            release.set()

    await run_load(server.url, RunLoad(pattern=Burst(count=3), prompts=("a",)), A_WHILE_S, on_progress=on_progress)
    assert told[-1].duration_s == A_WHILE_S
    assert [told[0].totals.outstanding, told[-1].totals.outstanding, told[-1].totals.ok] == [3, 0, 3]


async def test_that_the_tokens_of_the_prompt_are_kept_where_the_server_counts_them(server: StubServer) -> None:
    usage = {"completion_tokens": 2, "prompt_tokens": 7}
    server.behaviour = streams(event(choices=[{"text": "x"}], usage=usage), DONE)
    report = await run_load(server.url, RunLoad(pattern=Burst(count=1), prompts=("a",)), A_WHILE_S)
    assert [(request.tokens, request.prompt_tokens) for request in report.requests] == [(2, 7)]


async def test_that_failures_are_in_the_report(server: StubServer) -> None:
    server.behaviour = answers(500, b'{"error": {"message": "It broke"}}')
    report = await run_load(server.url, RunLoad(pattern=Burst(count=2), prompts=("a",)), A_WHILE_S)
    assert report.totals.failed == 2
    assert losses(report) == ["2 requests failed. Most often: It broke (HTTP 500)"]
    assert report.latency_s is None


async def test_that_a_server_that_is_not_there_is_named() -> None:
    async with StubServer() as server:
        url = server.url
    with pytest.raises(UserError, match=r"cannot be reached: connection refused. Start the service"):
        await run_load(url, RunLoad(pattern=Burst(count=1), prompts=("a",)), A_WHILE_S)


async def test_that_a_load_that_cannot_be_run_is_refused(server: StubServer) -> None:
    with pytest.raises(UserError, match="at least one prompt"):
        await run_load(server.url, RunLoad(pattern=Burst(count=1), prompts=()), A_WHILE_S)
