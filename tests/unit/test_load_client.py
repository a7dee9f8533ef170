"""One request and its stream, against a server whose every byte is decided here."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from service.load.client import BROKEN_OFF, Client, UnreachableError
from service.load.flight import Answer, Flight
from tests.unit.stub_server import DONE, StubServer, answers, breaks_off_after, event, streams, token_event


class Watcher:
    """Keeps what the client tells; each flight's answer can be waited for."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.texts: dict[str, str] = {}
        self._told = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def sent(self, flight: Flight) -> None:
        assert flight.sent_s is not None

    def progressed(self, flight: Flight) -> None:
        self._take_text(flight)

    def concluded(self, flight: Flight, answer: Answer) -> None:
        assert flight.id not in self.answers, "concluded twice"
        self._take_text(flight)
        self.answers[flight.id] = answer
        self._tell()

    def _take_text(self, flight: Flight) -> None:
        self.texts[flight.id] = self.texts.get(flight.id, "") + flight.report().new_text
        self._tell()

    def _tell(self) -> None:
        task = asyncio.get_running_loop().create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._told:
            self._told.notify_all()

    async def answer(self, flight: Flight) -> Answer:
        async with self._told:
            await self._told.wait_for(lambda: flight.id in self.answers)
        return self.answers[flight.id]

    async def text(self, flight: Flight, text: str) -> None:
        async with self._told:
            await self._told.wait_for(lambda: self.texts.get(flight.id) == text)


@pytest.fixture
async def server() -> AsyncIterator[StubServer]:
    async with StubServer() as server:
        yield server


@pytest.fixture
async def client(server: StubServer) -> AsyncIterator[Client]:
    async with Client(server.url) as client:
        yield client


@pytest.fixture
async def watcher() -> Watcher:
    return Watcher()


def make_flight(
    number: int = 1, source: Literal["fire", "load"] = "load", max_tokens: int = 3, streams: bool = True
) -> Flight:
    return Flight(
        id=f"t-{number}",
        source=source,
        prompt="Hallö",
        max_tokens=max_tokens,
        temperature=0.5,
        intended_s=0.0,
        streams=streams,
    )


async def ask(client: Client, watcher: Watcher, flight: Flight) -> Answer:
    client.start(flight, watcher)
    return await watcher.answer(flight)


class TestRequest:
    async def test_that_it_is_an_openai_completion_with_our_id(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        assert await ask(client, watcher, make_flight()) == Answer("ok")
        body, headers = server.requests[0]
        assert body == {
            "prompt": "Hallö",
            "max_tokens": 3,
            "temperature": 0.5,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        assert headers["X-Request-Id"] == "t-1"
        assert headers["Content-Type"] == "application/json"
        assert not any(name in headers for name in ("Origin", "Referer", "Authorization"))

    async def test_that_a_fired_prompt_ends_by_itself(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        await ask(client, watcher, make_flight(source="fire"))
        assert "ignore_eos" not in server.requests[0][0]

    async def test_that_the_first_served_model_is_asked_for(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        server.models = ["first", "second"]
        await client.learn_model()
        await ask(client, watcher, make_flight())
        assert server.requests[0][0]["model"] == "first"

    async def test_that_a_server_without_models_is_asked_without_one(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        server.models = []
        await client.learn_model()
        await ask(client, watcher, make_flight())
        assert "model" not in server.requests[0][0]

    async def test_that_the_token_is_sent(self, server: StubServer, watcher: Watcher) -> None:
        async with Client(server.url, token="secret") as client:
            await ask(client, watcher, make_flight())
        assert server.requests[0][1]["Authorization"] == "Bearer secret"

    async def test_that_connections_are_used_again(self, server: StubServer, client: Client, watcher: Watcher) -> None:
        for number in range(5):
            await ask(client, watcher, make_flight(number))
        assert len(server.connections) == 1

    async def test_that_there_are_as_many_connections_as_requests(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        release = asyncio.Event()
        server.behaviour = server.holds_until(release)
        flights = [make_flight(number) for number in range(150)]
        for flight in flights:
            client.start(flight, watcher)
        await server.has_got(150)
        release.set()
        assert {(await watcher.answer(flight)).outcome for flight in flights} == {"ok"}


class TestStream:
    async def test_that_text_tokens_and_times_are_taken(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        flight = make_flight(max_tokens=24)
        assert await ask(client, watcher, flight) == Answer("ok")
        assert flight.tokens == 24
        assert watcher.texts[flight.id] == "".join(f" {n}" for n in range(1, 25))
        assert flight.sent_s is not None
        assert flight.first_token_s is not None
        assert flight.finished_s is not None
        assert flight.sent_s <= flight.first_token_s <= flight.finished_s

    async def test_that_text_comes_as_it_is_streamed(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        server.behaviour = server.stalls(token_event("so far", 2))
        flight = make_flight()
        client.start(flight, watcher)
        await watcher.text(flight, "so far")
        assert (flight.tokens, flight.finished_s) == (2, None)
        client.cancel(flight)
        assert (await watcher.answer(flight)).outcome == "cancelled"

    async def test_that_chunks_of_several_tokens_are_counted_by_the_server(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        server.behaviour = streams(token_event("a b c", 3), token_event(" d e", 5, "length"), DONE)
        flight = make_flight()
        await ask(client, watcher, flight)
        assert flight.tokens == 5

    async def test_that_events_are_counted_where_the_server_does_not_count(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        server.behaviour = streams(token_event("a"), token_event(""), token_event("b"), DONE)
        flight = make_flight()
        await ask(client, watcher, flight)
        assert flight.tokens == 2

    async def test_that_a_usage_at_the_end_puts_the_count_right(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        usage = event(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 7, "total_tokens": 8})
        server.behaviour = streams(token_event("a"), event(choices=[{"text": "b"}], usage=None), usage, DONE)
        flight = make_flight()
        assert await ask(client, watcher, flight) == Answer("ok")
        assert flight.tokens == 7

    async def test_that_a_token_without_text_is_a_first_token(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        server.behaviour = server.stalls(token_event("", 1))
        flight = make_flight()
        client.start(flight, watcher)
        await watcher.text(flight, "")
        client.cancel(flight)
        await watcher.answer(flight)
        assert flight.first_token_s is not None

    async def test_that_a_chunk_ends_one_gap_however_many_tokens_it_brings(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        usage = event(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10})
        pieces = (token_event("a", 1), token_event(" b c", 3), token_event("", 3), token_event(" d", 4), usage, DONE)
        server.behaviour = streams(*pieces)
        flight = make_flight()
        await ask(client, watcher, flight)
        assert flight.gaps.count == 2
        assert flight.first_token_s is not None
        assert flight.finished_s is not None
        assert 0 <= flight.gaps.longest_s <= flight.gaps.total_s <= flight.finished_s - flight.first_token_s

    async def test_that_an_answer_in_one_piece_has_no_gaps(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        flight = make_flight(streams=False)
        await ask(client, watcher, flight)
        assert (flight.gaps.count, flight.first_token_s) == (0, None)

    async def test_that_cuts_anywhere_also_within_a_character_do_no_harm(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        text = "Grüße, 世界 🙂 e\u0301"
        stream = b"".join(token_event(character, n + 1) for n, character in enumerate(text)) + DONE
        drawn = random.Random(5)
        for number in range(10):
            cuts = sorted(drawn.sample(range(1, len(stream)), 60))
            server.behaviour = streams(*(stream[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)))
            flight = make_flight(number)
            assert await ask(client, watcher, flight) == Answer("ok")
            assert watcher.texts[flight.id] == text

    async def test_that_what_follows_the_last_event_is_not_waited_for_for_ever(
        self, server: StubServer, client: Client, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("service.load.client.DRAIN_TIMEOUT_S", 0.01)
        server.behaviour = server.stalls(token_event("a", 1), DONE)
        assert await ask(client, watcher, make_flight()) == Answer("ok")
        await server.gone.wait()


class TestFailure:
    @pytest.mark.parametrize("pieces", [(), (token_event("a", 1),), (token_event("a", 3, "length"), DONE[:-9])])
    async def test_that_a_stream_that_ends_before_its_last_event_has_failed(
        self, server: StubServer, client: Client, watcher: Watcher, pieces: tuple[bytes, ...]
    ) -> None:
        server.behaviour = streams(*pieces)
        assert await ask(client, watcher, make_flight()) == Answer("failed", BROKEN_OFF)

    async def test_that_a_connection_that_breaks_has_failed_and_what_came_is_kept(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        server.behaviour = breaks_off_after(token_event("so far", 2))
        flight = make_flight()
        assert await ask(client, watcher, flight) == Answer("failed", BROKEN_OFF)

    async def test_that_a_connection_that_breaks_before_the_answer_has_failed(
        self, server: StubServer, client: Client, watcher: Watcher
    ) -> None:
        async def hang_up(request, _body):  # type: ignore[no-untyped-def]
            request.transport.abort()

        server.behaviour = hang_up
        assert await ask(client, watcher, make_flight()) == Answer("failed", BROKEN_OFF)

    @pytest.mark.parametrize(
        ("piece", "message"),
        [
            (event(error={"message": "The model gave up.", "type": "server_error"}), "The model gave up."),
            (event(error="The model gave up."), "The model gave up."),
            (b"event: error\ndata: The model gave up.\n\n", "The model gave up."),
            (b'event: error\ndata: {"message": "The model gave up."}\n\n', "The model gave up."),
            (token_event("a", 1, "error"), "The server ended the request: error."),
            (b"data: {broken\n\n", "The server sent what is not a completion"),
            (b'data: {"choices": [{"text": "\xff"}]}\n\n', "The server sent what is not a completion"),
        ],
    )
    async def test_that_an_error_inside_the_stream_is_a_failure_in_its_words(
        self, server: StubServer, client: Client, watcher: Watcher, piece: bytes, message: str
    ) -> None:
        server.behaviour = streams(token_event("a", 1), piece, DONE)
        answer = await ask(client, watcher, make_flight())
        assert answer.outcome == "failed"
        assert answer.error is not None
        assert answer.error.startswith(message)

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b'{"error": {"message": "The model gave up."}}', "The model gave up."),
            (b'{"choices": [{"text": "a", "finish_reason": "error"}]}', "The server ended the request: error."),
            (b"<html>", "The server sent what is not a completion"),
        ],
    )
    async def test_that_an_error_in_an_answer_in_one_piece_is_a_failure_in_its_words(
        self, server: StubServer, client: Client, watcher: Watcher, body: bytes, message: str
    ) -> None:
        server.behaviour = answers(200, body)
        answer = await ask(client, watcher, make_flight(streams=False))
        assert answer.outcome == "failed"
        assert answer.error is not None
        assert answer.error.startswith(message)

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b'{"error": {"message": "The prompt is too long.", "param": "prompt"}}', "The prompt is too long."),
            (b'{"detail": "The prompt is too long."}', "The prompt is too long."),
            (b'{"detail": [{"loc": ["body"]}]}', '[{"loc":["body"]}]'),
            (b"<h1>Oh,\n no</h1>", "<h1>Oh, no</h1>"),
            (b"\xff" * 3, "���"),
            (b"", "Bad Request"),
            (b"x" * 1_000_000, "x" * 500 + "…"),
        ],
    )
    async def test_that_another_status_is_a_failure_with_the_servers_message(
        self, server: StubServer, client: Client, watcher: Watcher, body: bytes, message: str
    ) -> None:
        server.behaviour = answers(400, body)
        assert await ask(client, watcher, make_flight()) == Answer("failed", f"{message} (HTTP 400)")

    @pytest.mark.parametrize(
        ("header", "seconds"), [({"Retry-After": "2"}, 2.0), ({}, None), ({"Retry-After": "x"}, None)]
    )
    async def test_that_503_is_a_refusal_with_its_message(
        self,
        server: StubServer,
        client: Client,
        watcher: Watcher,
        header: dict[str, str],
        seconds: float | None,
    ) -> None:
        server.behaviour = answers(503, b'{"error": {"message": "The queue is full."}}', **header)
        answer = await ask(client, watcher, make_flight())
        assert answer == Answer("refused", "The queue is full.", retry_after_s=seconds)

    async def test_that_a_redirect_is_not_followed(self, server: StubServer, client: Client, watcher: Watcher) -> None:
        server.behaviour = answers(307, b"", Location="http://127.0.0.1:9/v1/completions")
        answer = await ask(client, watcher, make_flight())
        assert (answer.outcome, answer.error) == ("failed", "Temporary Redirect (HTTP 307)")

    async def test_that_a_refused_connection_is_said_in_a_sentence(self, watcher: Watcher) -> None:
        with socket.socket() as bound_not_listening:
            bound_not_listening.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{bound_not_listening.getsockname()[1]}"
            async with Client(url) as client:
                with pytest.raises(UnreachableError, match=r"cannot be reached: connection refused\."):
                    await client.learn_model()
                answer = await ask(client, watcher, make_flight())
        assert answer == Answer("failed", f"{url} cannot be reached: connection refused.", is_unreachable=True)

    async def test_that_a_server_that_speaks_no_http_is_a_failure(self, watcher: Watcher) -> None:
        async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-nonsense\r\n\r\n")
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(babble, "127.0.0.1", 0) as babbler:
            port = babbler.sockets[0].getsockname()[1]
            async with Client(f"http://127.0.0.1:{port}") as client:
                answer = await ask(client, watcher, make_flight())
        assert answer.outcome == "failed"

    async def test_that_a_bug_of_ours_fails_the_request_and_is_logged(
        self, client: Client, watcher: Watcher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("service.load.client.completion_body", None)
        answer = await ask(client, watcher, make_flight())
        assert answer.outcome == "failed"
        assert "TypeError" in caplog.text


class TestCancel:
    @pytest.mark.parametrize("pieces", [(), (token_event("a", 1),)], ids=["before the first token", "in the stream"])
    async def test_that_the_server_sees_the_client_go(
        self, server: StubServer, client: Client, watcher: Watcher, pieces: tuple[bytes, ...]
    ) -> None:
        server.behaviour = server.stalls(*pieces)
        flight = make_flight()
        client.start(flight, watcher)
        await server.has_got(1)
        client.cancel(flight)
        assert await watcher.answer(flight) == Answer("cancelled")
        await server.gone.wait()

    async def test_that_a_request_can_be_cancelled_before_it_is_sent(self, client: Client, watcher: Watcher) -> None:
        flight = make_flight()
        client.start(flight, watcher)
        client.cancel(flight)
        assert await watcher.answer(flight) == Answer("cancelled")
        assert flight.sent_s is None

    async def test_that_what_has_ended_is_not_cancelled(self, client: Client, watcher: Watcher) -> None:
        flight = make_flight()
        assert await ask(client, watcher, flight) == Answer("ok")
        client.cancel(flight)
        await client.idle()

    async def test_that_closing_ends_everything(self, server: StubServer, watcher: Watcher) -> None:
        server.behaviour = server.stalls()
        flights = [make_flight(number) for number in range(20)]
        async with Client(server.url) as client:
            for flight in flights:
                client.start(flight, watcher)
            await server.has_got(20)
        assert {watcher.answers[flight.id] for flight in flights} == {Answer("cancelled")}
