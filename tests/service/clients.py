"""Many clients at once, each of which knows the answer to its request, and what the replicas say of them meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import aiohttp

from service.messages.telemetry import BatchRecord, Ledger, ReplicaStatus, RequestRecord, TelemetryFrame
from tests.service import HANG_S
from tests.service.conftest import Service
from tests.service.telemetry import Reader, reading

IN_FLIGHT: Final = 256
TOKENS: Final = 4
POISON: Final = "stub:error"
LOST: Final = "The replica that held this request ended before its answer did. Send it again."
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: a close that is an RST

Outcome = Literal["right", "wrong", "failed", "left", "refused", "lost"]
"""Of a request; "lost" has no answer, since its replica died."""


@dataclass(frozen=True)
class Question:
    """A request of its own number.

    Attributes:
        text: of its prompt; by default it names the number.
        leaves: how its client goes before the answer is complete.
    """

    number: int
    text: str = ""
    tokens: int = TOKENS
    is_streamed: bool = False
    is_poison: bool = False
    leaves: Literal["", "FIN", "RST"] = ""

    @property
    def prompt(self) -> str:
        return (self.text or f"request {self.number}") + (f" {POISON}" if self.is_poison else "")

    @property
    def answer(self) -> str:
        return "".join(f"<{self.prompt}#{n}>" for n in range(1, self.tokens + 1))


class Clients:
    """`IN_FLIGHT` clients, each of which sends its next request when the last has ended.

    Attributes:
        ended_s: when each request did, in the time of `time.monotonic`.
    """

    def __init__(self, service: Service, session: aiohttp.ClientSession) -> None:
        self._url = f"{service.url}/v1/completions"
        self._session = session
        self.outcomes: dict[Question, Outcome] = {}
        self.ended_s: dict[Question, float] = {}

    async def ask(self, questions: Iterable[Question], clients: int = IN_FLIGHT) -> None:
        left = iter(questions)

        async def client() -> None:
            for question in left:
                assert question not in self.outcomes
                self.outcomes[question] = await self._outcome(question)
                self.ended_s[question] = time.monotonic()

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())

    def count(self) -> Counter[Outcome]:
        return Counter(self.outcomes.values())

    async def _outcome(self, question: Question) -> Outcome:
        if not question.leaves or question.is_streamed:
            return await self._answer(question)
        asked = asyncio.create_task(self._answer(question))
        await asyncio.wait([asked], timeout=question.number % 7 * 0.01)  # it leaves on its way, in the queue, or later
        asked.cancel()
        return "left"

    async def _answer(self, question: Question) -> Outcome:
        body = {"prompt": question.prompt, "max_tokens": question.tokens, "stream": question.is_streamed}
        async with self._session.post(self._url, json=body) as response:
            if response.status == 503:
                assert int(response.headers["Retry-After"]) >= 1
                assert (await response.json())["error"]["code"] == "queue_full"
                return "refused"
            if question.leaves:
                await response.content.readline()
                _leave(response, question.leaves)
                return "left"
            is_stream = response.content_type == "text/event-stream"  # what fails before it begins is none
            answers = await _events(response) if is_stream else [await response.json()]
        errors = [each["error"]["message"] for each in answers if "error" in each]
        if errors == [LOST]:
            return "lost"
        if errors:
            return "failed" if errors == ["The prompt asked for this error."] and question.is_poison else "wrong"
        text = "".join(choice["text"] for each in answers for choice in each["choices"])
        return "right" if text == question.answer and not question.is_poison else "wrong"


def _leave(response: aiohttp.ClientResponse, how: str) -> None:
    connection = response.connection  # ``None`` where all has come
    if how == "RST" and connection is not None and connection.transport is not None:
        own: socket.socket = connection.transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    response.close()


async def _events(response: aiohttp.ClientResponse) -> list[dict[str, Any]]:
    """Of a stream; one whose last event did not come is no answer, and says why."""
    lines = []
    with contextlib.suppress(aiohttp.ClientPayloadError):  # it is broken off after that
        async for line in response.content:
            if line.startswith(b"data: "):
                lines.append(line.removeprefix(b"data: ").strip())  # noqa: PERF401 — what came before the break counts
    whole = lines[-1:] == [b"[DONE]"]
    events: list[dict[str, Any]] = [json.loads(line) for line in lines if line != b"[DONE]"]
    assert whole or "error" in events[-1]
    return events


@contextlib.asynccontextmanager
async def asking(service: Service) -> AsyncIterator[Clients]:
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=HANG_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Clients(service, session)


class Watched:
    """What the replicas reported from a moment at rest to another."""

    def __init__(self, reader: Reader, replicas: int) -> None:
        self._reader = reader
        self._replicas = replicas
        self._latest: dict[str, ReplicaStatus] = {}
        self._before: dict[str, Ledger] = {}
        self._first = 0
        self._done: asyncio.Future[object] | None = None
        self._done_s = 0.0

    async def watch(self, do: Awaitable[object]) -> None:
        """Do it at rest, and return once nothing is held any more."""
        await self._reader.read_until(self._is_at_rest)
        self._before = {name: each.ledger for name, each in self._latest.items()}
        self._first = len(self._reader.frames) - 1
        self._done = asyncio.ensure_future(do)
        self._done.add_done_callback(self._on_done)
        await self._reader.read_until(self._is_at_rest)
        await self._done

    def counted(self, name: str) -> int:
        """Of all replicas, meanwhile."""
        return sum(getattr(each.ledger, name) - getattr(self._before[id], name) for id, each in self._latest.items())

    @property
    def statuses(self) -> Iterator[ReplicaStatus]:
        return (status for frame in self._reader.frames[self._first :] for status in frame.replicas)

    @property
    def records(self) -> list[RequestRecord]:
        """The last of each request that came meanwhile."""
        return self._reader.requests_since(self._begun_s)

    @property
    def batches(self) -> list[BatchRecord]:
        return self._reader.batches_since(self._begun_s)

    @property
    def _begun_s(self) -> float:
        return self._reader.frames[self._first].at_s

    def _on_done(self, _: asyncio.Future[object]) -> None:
        self._done_s = time.monotonic()  # the clock of replicas here; the frames may be some way behind
        self._latest.clear()

    def _is_at_rest(self, frame: TelemetryFrame) -> bool:
        """Whether each replica has reported since that it holds nothing."""
        self._latest |= {each.replica: each for each in frame.replicas if each.at_s > self._done_s}
        is_done = self._done is None or self._done.done()
        return is_done and len(self._latest) == self._replicas and not any(map(_held, self._latest.values()))


def _held(status: ReplicaStatus) -> int:
    return status.waiting + status.formed + status.running


@contextlib.asynccontextmanager
async def watching(service: Service) -> AsyncIterator[Watched]:
    """In each report the ledger of its replica balances."""
    async with reading(service) as reader:
        watched = Watched(reader, service.ready.replicas)
        yield watched
        assert not reader.missed
        for status in watched.statuses:
            ledger = status.ledger
            assert ledger.received == ledger.refused + ledger.admitted
            assert ledger.admitted == ledger.completed + ledger.failed + ledger.cancelled + _held(status)
