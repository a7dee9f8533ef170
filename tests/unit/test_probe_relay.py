"""A server that is not ours, seen through the relay: what passes is passed on, what is reported becomes telemetry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from service.analysis.findings.ranking import findings
from service.analysis.observed.history import History
from service.commands.remote import RemoteService
from service.messages.life import Ready
from service.messages.settings import SettingError
from service.messages.telemetry import TelemetryFrame
from service.probe.relay import relayed
from service.probe.servers import recognise
from tests.foreign_server import SGLANG, SILENT, VLLM, Answers, ForeignServer, foreign_server

HANG_S = 30.0


class Looking:
    """A client of the relay, and what its telemetry has brought so far."""

    def __init__(self, ready: Ready, session: aiohttp.ClientSession) -> None:
        self.ready = ready
        self.frames: list[TelemetryFrame] = []
        self._session = session
        self._news = asyncio.Condition()

    async def read(self) -> None:
        async with RemoteService(self.ready.url) as remote:
            async for event in remote.telemetry(0):
                if isinstance(event, TelemetryFrame):
                    self.frames.append(event)
                    async with self._news:
                        self._news.notify_all()

    async def until(self, has_come: Callable[[], Any]) -> None:
        async with asyncio.timeout(HANG_S), self._news:
            await self._news.wait_for(has_come)

    async def complete(self, prompt: str = "once upon a time", **fields: Any) -> tuple[int, str]:
        body = {"prompt": prompt, "max_tokens": 5, "stream": True} | fields
        async with self._session.post(f"{self.ready.url}/v1/completions", json=body) as answer:
            return answer.status, await answer.text()

    @property
    def ended(self) -> list[tuple[str, int, int]]:
        """Of each request that has ended its state, and the tokens of its prompt and its answer."""
        last = {each.id: each for frame in self.frames for each in frame.requests}
        return [(e.state, e.prompt_tokens, e.completion_tokens) for e in last.values() if e.finished_s is not None]

    @property
    def running(self) -> list[int]:
        """How many requests run, by each frame that says so."""
        return [replica.running for frame in self.frames for replica in frame.replicas]

    @property
    def stages_s(self) -> list[list[float | None]]:
        """Of each request when it was enqueued, started, and got its first token."""
        last = {each.id: each for frame in self.frames for each in frame.requests}
        return [[each.enqueued_s, each.started_s, each.first_token_s] for each in last.values()]


@asynccontextmanager
async def looking_at(server: ForeignServer, token: str | None = None) -> AsyncIterator[Looking]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        found = await recognise(session, server.url)
        assert found is not None
        async with relayed(found, token) as ready:
            looking = Looking(ready, session)
            reading = asyncio.create_task(looking.read())
            try:
                yield looking
            finally:
                reading.cancel()
                await asyncio.wait([reading])


async def test_that_its_queue_and_its_batches_are_telemetry_and_requests_pass_unchanged() -> None:
    with foreign_server(VLLM, places=2) as server:
        async with looking_at(server) as looking:
            assert looking.ready.server == "vLLM 0.32.0"
            assert (looking.ready.model, looking.ready.context_length) == ("tiny", 128)
            answers = await asyncio.gather(*(looking.complete(max_tokens=40, top_k=3) for _ in range(6)))
            await looking.until(lambda: len(looking.ended) == 6)
    assert all(status == 200 and text.endswith("data: [DONE]\n\n") for status, text in answers)
    assert server.asked == [{"prompt": "once upon a time", "max_tokens": 40, "stream": True, "top_k": 3}] * 6
    assert looking.ended == [("done", 4, 40)] * 6
    statuses = [status for frame in looking.frames for status in frame.replicas]
    assert {(status.waiting, status.running) for status in statuses} >= {(4, 2), (2, 2)}
    assert max(status.cache_share or 0.0 for status in statuses) == pytest.approx(0.2)
    batches = {batch.id: batch for frame in looking.frames for batch in frame.batches}.values()
    assert {batch.size for batch in batches} <= {1, 2}
    assert {batch.members for batch in batches} == {()}, "which requests share a step the server does not report"
    assert sum(batch.tokens for batch in batches) == 240


async def test_that_what_a_server_goes_on_to_report_as_running_does_not_run_when_nothing_is_computed() -> None:
    with foreign_server(SGLANG, places=2) as server:
        async with looking_at(server) as looking:
            await asyncio.gather(*(looking.complete(max_tokens=100) for _ in range(2)))
            await looking.until(lambda: 2 in looking.running)
            await looking.until(lambda: looking.running[-1] == 0)
            assert server.most_running == 2, "which it still says"


async def test_that_a_request_starts_when_the_server_s_queue_says_so() -> None:
    with foreign_server(VLLM, places=2, step_s=0.02) as server:
        async with looking_at(server) as looking:
            await asyncio.gather(*(looking.complete(max_tokens=50) for _ in range(4)))
            await looking.until(lambda: len(looking.ended) == 4)
    waits_s = sorted(started - enqueued for enqueued, started, _ in looking.stages_s)  # type: ignore[operator]
    assert waits_s[:2] == [0.0, 0.0]
    assert waits_s[2] > 0.5, "the other two wait for the second that the first two take"
    assert all(None not in stages and stages == sorted(stages) for stages in looking.stages_s)  # type: ignore[type-var]


async def test_that_of_a_server_that_reports_nothing_all_under_way_count_as_running() -> None:
    with foreign_server(SILENT, places=1, step_s=0.02) as server:
        async with looking_at(server) as looking:
            assert looking.ready.server == "an OpenAI-compatible server"
            assert "reports nothing" in looking.ready.untold
            await asyncio.gather(*(looking.complete(max_tokens=30) for _ in range(3)))
            await looking.until(lambda: len(looking.ended) == 3)
    statuses = [status for frame in looking.frames for status in frame.replicas]
    assert max(status.running for status in statuses) == 3
    assert {status.waiting for status in statuses} == {0}
    assert sum({batch.id: batch.tokens for frame in looking.frames for batch in frame.batches}.values()) == 90


async def test_that_a_finding_says_what_is_not_reported_and_none_advises_on_settings_of_ours() -> None:
    with foreign_server(VLLM, places=1, step_s=0.05) as server:
        async with looking_at(server) as looking:
            await asyncio.gather(*(looking.complete(max_tokens=10) for _ in range(12)))
            await looking.until(lambda: len(looking.ended) == 12)
    history = History(looking.frames[0].clock, lambda: looking.frames[-1].at_s)
    history.service_started(looking.ready)
    for frame in looking.frames:
        history.add_telemetry(frame)
    last_started_s = max(started_s for _, started_s, _ in looking.stages_s if started_s is not None)
    found = {finding.rule: finding for finding in findings(history, last_started_s - 0.1)}
    assert found["little_reported"].evidence == "It does not report which requests share a step."
    assert "requests_wait" in found
    assert {each.change for each in found.values()} == {None}
    assert "--max-num-seqs" in found["requests_wait"].advice


@pytest.mark.parametrize("answers", [VLLM, SILENT])
async def test_that_an_answer_in_one_piece_is_counted_and_has_no_first_token(answers: Answers) -> None:
    with foreign_server(answers) as server:
        async with looking_at(server) as looking:
            status, _ = await looking.complete(stream=False)
            await looking.until(lambda: looking.ended)
    assert (status, looking.ended) == (200, [("done", 4, 5)])
    assert sum({batch.id: batch.tokens for frame in looking.frames for batch in frame.batches}.values()) == 5
    assert [first for _, _, first in looking.stages_s] == [None]


async def test_that_a_stream_without_openai_s_last_event_is_given_it() -> None:
    with foreign_server(SILENT, says_done=False) as server:
        async with looking_at(server) as looking:
            _, text = await looking.complete()
    assert text.count("[DONE]") == 1
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(("newer", "limit"), [(3, 3), (None, 5)])
async def test_that_the_limit_of_an_answer_is_known_by_either_of_its_names(newer: int | None, limit: int) -> None:
    with foreign_server(SILENT) as server:
        async with looking_at(server) as looking:
            await looking.complete(max_tokens=5, max_completion_tokens=newer)
            await looking.until(lambda: looking.ended)
    assert {request.max_tokens for frame in looking.frames for request in frame.requests} == {limit}


async def test_that_a_client_that_leaves_is_let_go_at_the_server_too() -> None:
    with foreign_server(VLLM, places=1, step_s=0.05) as server:
        async with looking_at(server) as looking:
            asked = asyncio.create_task(looking.complete(max_tokens=10_000))
            await looking.until(lambda: any(e.completion_tokens for f in looking.frames for e in f.requests))
            asked.cancel()
            await looking.until(lambda: [state for state, *_ in looking.ended] == ["cancelled"])
            await looking.until(lambda: looking.frames[-1].replicas and looking.frames[-1].replicas[-1].running == 0)


async def test_that_a_server_that_ends_is_lost_and_one_that_comes_back_is_another() -> None:
    with foreign_server(VLLM) as server:
        async with looking_at(server) as looking:
            port = server.port
            server.stop()
            await looking.until(lambda: ("r1",) in [frame.lost_replicas for frame in looking.frames])
            assert "cannot be reached" in (await looking.complete())[1]
            server.start(port)
            await looking.until(lambda: "r2" in [s.replica for frame in looking.frames for s in frame.replicas])
            await looking.complete()
            await looking.until(lambda: looking.ended == [("done", 4, 5)])


async def test_that_settings_are_refused_in_words_that_say_where_they_are_made() -> None:
    with foreign_server(VLLM) as server:
        async with looking_at(server) as looking, RemoteService(looking.ready.url) as remote:
            with pytest.raises(SettingError, match=r"vLLM 0\.32\.0 forms its batches itself.*--max-num-seqs"):
                await remote.change({"max_batch_size": 4})


@pytest.mark.promise("T27")
async def test_that_the_relay_of_a_server_with_a_token_asks_for_that_token() -> None:
    with foreign_server(VLLM, token="secret") as server:
        async with looking_at(server, "secret") as looking:
            assert (await looking.complete())[0] == 200
            async with aiohttp.ClientSession() as stranger, stranger.get(f"{looking.ready.url}/healthz") as answer:
                assert answer.status == 401
            page = aiohttp.ClientSession(headers={"Host": "rebound.test"})
            async with page, page.get(f"{looking.ready.url}/v1/models") as answer:
                assert answer.status == 403


async def test_that_what_completes_no_prompts_is_none() -> None:
    with foreign_server(VLLM) as server:
        async with aiohttp.ClientSession() as session:
            assert await recognise(session, f"{server.url}/elsewhere") is None
            assert await recognise(session, "http://127.0.0.1:1") is None
